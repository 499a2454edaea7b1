package ops

import (
	"unsafe"

	"gorgonia.org/tensor"

	"github.com/gaze-ml/gaze/internal/attn"
	"github.com/gaze-ml/gaze/internal/cpu"
)

// Convert copies a contiguous host tensor of float32, Float16, BFloat16 or blocks to a new one of float32, Float16 or BFloat16, rounding
// once, to the nearest; what is beyond Float16's range becomes infinite. The last dimension of blocks grows by their length. It is for
// weights that a device has no kernel for.
func Convert(t *tensor.Dense, dt tensor.Dtype) (*tensor.Dense, error) {
	const op = "convert"
	v, err := View(op, "tensor", t)
	if err != nil {
		return nil, err
	}
	on, err := Locate(op, "tensor", t)
	switch d := DTypeOf(dt); {
	case err != nil:
		return nil, err
	case !v.DType.Float() && !v.DType.Quantised():
		return nil, attn.Errorf(ErrDType, op, "tensor", "float32, float16, bfloat16 or blocks", "%v", v.DType)
	case !d.Float() || fromAttn[d] != dt:
		return nil, attn.Errorf(ErrDType, op, "dtype", "float32, Float16 or BFloat16", "%v", dt.Type)
	case on != nil:
		return nil, attn.Errorf(ErrDevice, op, "tensor", "a host tensor", "memory of %s", on.Name())
	case v.Rank == 0 || !v.Packed():
		return nil, attn.Errorf(ErrShape, op, "tensor", "a contiguous tensor of rank 1 or more", "%v with strides %v", v.String(), append([]int(nil), v.Stride[:v.Rank]...))
	}
	shape := append([]int(nil), v.Shape[:v.Rank]...)
	last := &shape[len(shape)-1]
	columns := *last
	*last *= v.DType.BlockLen()
	out := attn.Of(DTypeOf(dt), shape...)
	if out.Len() == 0 {
		return nil, attn.Errorf(ErrShape, op, "tensor", "a tensor with elements", "%v", v.String())
	}
	rows := v.Len() / columns
	ids := make([]int32, rows)
	for i := range ids {
		ids[i] = int32(i)
	}
	c := attn.EmbeddingCall{IDs: attn.Of(attn.I32, rows), Weight: attn.Of(v.DType, rows, columns), OutDType: out.DType}
	if err := c.Infer(); err != nil {
		return nil, err
	}
	d := Alloc(out)
	at, err := View(op, "out", d)
	if err != nil {
		return nil, err
	}
	c.IDs.Ptr, c.Weight.Ptr, c.Out.Ptr = unsafe.Pointer(unsafe.SliceData(ids)), v.Ptr, at.Ptr
	return d, cpu.Default().Embedding(&c)
}
