package ops

import (
	"fmt"
	"unsafe"

	"gorgonia.org/tensor"

	"github.com/gaze-ml/gaze/internal/attn"
	"github.com/gaze-ml/gaze/internal/half"
)

// maxTensor is what an amd64 program can address, in bytes, with room to spare: larger sizes are mistakes.
const maxTensor = 1 << 46

// NewTensor makes a host tensor of any float dtype from float32 values, rounded to nearest even (Float8E4M3 saturates at
// ±448), or of an integer dtype from whole values in its range. A nil slice makes zeros.
func NewTensor(dt tensor.Dtype, shape tensor.Shape, values []float32) (*tensor.Dense, error) {
	if d := DTypeOf(dt); dt.Type == nil || fromAttn[d] != dt {
		return nil, attn.Errorf(ErrDType, "tensor", "dtype", "a dtype of gaze", "%v", dt.Type)
	}
	t, err := describe("tensor", "shape", dt, shape)
	if err != nil {
		return nil, err
	}
	bytes := float64(t.DType.Size())
	for _, n := range shape {
		bytes *= float64(n)
		if n < 0 || bytes > maxTensor {
			return nil, attn.Errorf(ErrShape, "tensor", "shape", "sizes ≥ 0 and at most 2^46 bytes", "%v", []int(shape))
		}
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
		err = whole(elements[uint8](&t), values)
	case attn.U16:
		err = whole(elements[uint16](&t), values)
	case attn.I32:
		err = whole(elements[int32](&t), values)
	case attn.U32:
		err = whole(elements[uint32](&t), values)
	case attn.I64:
		err = whole(elements[int64](&t), values)
	}
	if err != nil {
		return nil, err
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

// whole stores values that T holds exactly, or none.
func whole[T uint8 | uint16 | int32 | uint32 | int64](dst []T, src []float32) error {
	for i, x := range src {
		if n := T(x); float64(n) != float64(x) || n < 0 != (x < 0) {
			return attn.Errorf(ErrArgument, "tensor", fmt.Sprintf("values[%d]", i), fmt.Sprintf("a whole number that %T holds", n), "%v", x)
		}
	}
	convert(dst, src, func(x float32) T { return T(x) })
	return nil
}
