package ops

import (
	"slices"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/gaze-ml/gaze/internal/attn"
)

// bound is what a Do's call was bound to, so that the next Do on the same memory needs no look at it.
type bound struct {
	to      []seen
	backend Backend   // nil: not bound
	devices *[]Device // that were registered then
}

// seen is what of an operand's header View doesn't keep.
type seen struct {
	dtype tensor.Dtype
	bytes uintptr
}

func see(v gorgonia.Value) seen {
	s := seen{dtype: v.Dtype()}
	if d, ok := v.(*tensor.Dense); ok {
		s.bytes = d.MemSize()
	}
	return s
}

// again tells whether d is what View made t of, when it was seen.
func (s *seen) again(d *tensor.Dense, t *attn.Tensor) bool {
	return d.Uintptr() == uintptr(t.Ptr) && d.MemSize() == s.bytes && d.Dtype() == s.dtype && len(d.Mask()) == 0 &&
		slices.Equal(d.Shape(), t.Shape[:t.Rank]) && slices.Equal(d.Strides(), t.Stride[:t.Rank])
}

// again tells whether vals lie where the call was bound to, in the same shapes, while no device came or went. That the memory is still
// the device's is the backend's to see.
func (t *tape) again(vals []gorgonia.Value) bool {
	if t.bound.backend == nil || t.bound.devices != devices.Load() {
		return false
	}
	for i, v := range vals {
		if d, ok := v.(*tensor.Dense); !ok || d == nil || !t.bound.to[i].again(d, &t.in[i]) {
			return false
		}
	}
	return true
}

// remember notes what the call was bound to.
func (t *tape) remember(vals []gorgonia.Value, be Backend, registered *[]Device) {
	t.bound.to = t.bound.to[:0]
	for _, v := range vals {
		t.bound.to = append(t.bound.to, see(v))
	}
	t.bound.backend, t.bound.devices = be, registered
}
