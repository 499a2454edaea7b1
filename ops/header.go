package ops

import (
	"reflect"
	"slices"
	"unsafe"

	"gorgonia.org/tensor"
)

// header is a tensor over memory that has another header, for whoever asks for it. It is made once and given again for as long as
// nobody has changed it: Gorgonia's machines reshape and transpose what they were given, and UnbindAllNonInputs empties it and puts it
// into package tensor's pool, where it becomes somebody else's. A view's is never given again, for it names the view's parent.
type header struct {
	tensor.Dense
	// Shape and strides lie here while the header is as it was made. They are longer than what package tensor keeps in its pools, so
	// they can't come to another tensor through these.
	shape, strides [9]int
	comparable     bool // its engine is
}

// newHeader makes a header over t's memory.
func newHeader(t *tensor.Dense, shape, strides []int) *header {
	h := &header{Dense: *t, comparable: reflect.ValueOf(t.Engine()).Comparable()}
	h.Dense.AP.Init(append(h.shape[:0], shape...), append(h.strides[:0], strides...))
	return h
}

// is tells whether h, which may be nil, is as newHeader would make it.
func (h *header) is(t *tensor.Dense, shape, strides []int) bool {
	return h != nil && h.comparable &&
		unsafe.SliceData(h.Shape()) == &h.shape[0] && slices.Equal(h.Shape(), shape) &&
		unsafe.SliceData(h.Strides()) == &h.strides[0] && slices.Equal(h.Strides(), strides) &&
		h.Uintptr() == t.Uintptr() && h.MemSize() == t.MemSize() && h.Dtype() == t.Dtype() && h.Engine() == t.Engine() &&
		h.IsNativelyAccessible() == t.IsNativelyAccessible() && h.IsManuallyManaged() == t.IsManuallyManaged() &&
		h.DataOrder() == t.DataOrder() && !h.IsMaterializable() && len(h.Mask()) == 0
}

// over gives a header over t's memory: the one at h, or a new one, kept there, if that isn't as it was made.
func over(h **header, t *tensor.Dense, shape, strides []int) *tensor.Dense {
	if !(*h).is(t, shape, strides) {
		*h = newHeader(t, shape, strides)
	}
	return &(*h).Dense
}
