package ops

import (
	"slices"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// bound is what a Do's call was bound to, so that the next Do on the same memory needs no look at it.
type bound struct {
	to      []operandHeader
	backend Backend   // nil: not bound
	devices *[]Device // that were registered then
}

// operandHeader is what of an operand's header View doesn't keep.
type operandHeader struct {
	dtype tensor.Dtype
	bytes uintptr
}

// again tells whether vals lie where the call was bound to, in the same shapes, while no device came or went. That the memory is still
// the device's is the backend's to see.
func (t *tape) again(vals []gorgonia.Value) bool {
	if t.bound.backend == nil || t.bound.devices != devices.Load() {
		return false
	}
	for i, v := range vals {
		d, ok := v.(*tensor.Dense)
		if !ok || d == nil {
			return false
		}
		in, h := &t.in[i], &t.bound.to[i]
		if d.Uintptr() != uintptr(in.Ptr) || d.MemSize() != h.bytes || d.Dtype() != h.dtype || d.IsMasked() ||
			!slices.Equal(d.Shape(), in.Shape[:in.Rank]) || !slices.Equal(d.Strides(), in.Stride[:in.Rank]) {
			return false
		}
	}
	return true
}

// remember notes what the call was bound to.
func (t *tape) remember(vals []gorgonia.Value, be Backend, registered *[]Device) {
	t.bound.to = t.bound.to[:0]
	for _, v := range vals {
		h := operandHeader{dtype: v.Dtype()}
		if d, ok := v.(*tensor.Dense); ok {
			h.bytes = d.MemSize()
		}
		t.bound.to = append(t.bound.to, h)
	}
	t.bound.backend, t.bound.devices = be, registered
}
