package ops

import (
	"fmt"
	"unsafe"

	"gorgonia.org/tensor"

	"github.com/gaze-ml/gaze/internal/attn"
	"github.com/gaze-ml/gaze/internal/half"
)

// NewTensor makes a host tensor of any float dtype from float32 values, rounded to nearest even (Float8E4M3 saturates at
// ±448), or of an integer dtype from whole values. A nil slice makes zeros.
func NewTensor(dt tensor.Dtype, shape tensor.Shape, values []float32) (*tensor.Dense, error) {
	t, err := describe("tensor", "shape", dt, shape)
	if err != nil {
		return nil, err
	}
	if fromAttn[t.DType] != dt {
		return nil, attn.Errorf(ErrDType, "tensor", "dtype", "a dtype of gaze", "%v", dt)
	}
	if values != nil && (len(values) != t.Len() || t.DType.Quantised()) {
		return nil, attn.Errorf(ErrShape, "tensor", "values", fmt.Sprintf("%d values of a plain dtype", t.Len()), "%d for %v", len(values), &t)
	}
	d := Alloc(t)
	if len(values) == 0 {
		return d, nil
	}
	if t, err = View("tensor", "values", d); err != nil {
		return nil, err
	}
	switch t.DType {
	case attn.F32:
		copy(elements[float32](&t), values)
	case attn.F16:
		convert(elements[half.F16](&t), values, half.F16FromFloat32)
	case attn.BF16:
		convert(elements[half.BF16](&t), values, half.BF16FromFloat32)
	case attn.E4M3:
		convert(elements[half.E4M3](&t), values, half.E4M3FromFloat32)
	case attn.U8:
		convert(elements[uint8](&t), values, func(x float32) uint8 { return uint8(x) })
	case attn.U16:
		convert(elements[uint16](&t), values, func(x float32) uint16 { return uint16(x) })
	case attn.I32:
		convert(elements[int32](&t), values, func(x float32) int32 { return int32(x) })
	case attn.U32:
		convert(elements[uint32](&t), values, func(x float32) uint32 { return uint32(x) })
	case attn.I64:
		convert(elements[int64](&t), values, func(x float32) int64 { return int64(x) })
	}
	return d, nil
}

// Float32s gives the values of a host tensor of float32, Float16, BFloat16 or Float8E4M3 in row-major order, views included.
func Float32s(d *tensor.Dense) ([]float32, error) {
	if d == nil {
		return nil, attn.Errorf(ErrArgument, "tensor", "tensor", "a tensor", "nil")
	}
	t, err := View("tensor", "tensor", d)
	if err != nil {
		return nil, err
	}
	if !d.IsNativelyAccessible() {
		return nil, attn.Errorf(ErrDevice, "tensor", "tensor", "a host tensor", "device memory")
	}
	var at func(offset int) float32
	switch t.DType {
	case attn.F32:
		at = func(o int) float32 { return *(*float32)(t.At(o)) }
	case attn.F16:
		at = func(o int) float32 { return (*(*half.F16)(t.At(o))).Float32() }
	case attn.BF16:
		at = func(o int) float32 { return (*(*half.BF16)(t.At(o))).Float32() }
	case attn.E4M3:
		at = func(o int) float32 { return (*(*half.E4M3)(t.At(o))).Float32() }
	default:
		return nil, attn.Errorf(ErrDType, "tensor", "tensor", "a float dtype", "%v", t.DType)
	}
	out := make([]float32, 0, t.Len())
	var walk func(dim, offset int)
	walk = func(dim, offset int) {
		if dim == t.Rank {
			out = append(out, at(offset))
			return
		}
		for i := range t.Shape[dim] {
			walk(dim+1, offset+i*t.Stride[dim])
		}
	}
	walk(0, 0)
	return out, nil
}

// elements is a packed tensor's memory as a slice.
func elements[T any](t *attn.Tensor) []T { return unsafe.Slice((*T)(t.Ptr), t.Len()) }

func convert[T any](dst []T, src []float32, f func(float32) T) {
	for i, x := range src {
		dst[i] = f(x)
	}
}
