package cpu

import (
	"unsafe"

	"github.com/gaze-ml/gaze/internal/attn"
	"github.com/gaze-ml/gaze/internal/half"
)

// slice is n elements at p as a Go slice.
func slice[T any](p unsafe.Pointer, n int) []T { return unsafe.Slice((*T)(p), n) }

// f32 is the n elements of a float32 tensor from element offset on.
func f32(t *attn.Tensor, offset, n int) []float32 { return slice[float32](t.At(offset), n) }

// integer is element i of a packed int32, uint32 or int64 tensor.
func integer(t *attn.Tensor, i int) int {
	switch t.DType {
	case attn.I32:
		return int(*(*int32)(t.At(i)))
	case attn.U32:
		return int(*(*uint32)(t.At(i)))
	}
	return int(*(*int64)(t.At(i)))
}

// scalar is the one element of t, or host where t is absent.
func scalar(t *attn.Tensor, host float64) float64 {
	if !t.Valid() {
		return host
	}
	return float64(*(*float32)(t.Ptr))
}

// extent is the number of elements from t's first to behind its last.
func extent(t *attn.Tensor) int {
	n := 1
	for i, d := range t.Shape[:t.Rank] {
		if d == 0 {
			return 0
		}
		n += (d - 1) * t.Stride[i]
	}
	return n
}

// load widens len(dst) elements at p to float32.
func load(dst []float32, dt attn.DType, p unsafe.Pointer) {
	n := len(dst)
	if n == 0 {
		return
	}
	switch dt {
	case attn.F32:
		copy(dst, slice[float32](p, n))
	case attn.F16:
		half.DecodeF16(dst, slice[half.F16](p, n))
	case attn.BF16:
		half.DecodeBF16(dst, slice[half.BF16](p, n))
	case attn.E4M3:
		half.DecodeE4M3(dst, slice[half.E4M3](p, n))
	default:
		panic("cpu: load of " + dt.String())
	}
}

// store rounds src to dt at p, to nearest even; e4m3 saturates.
func store(p unsafe.Pointer, dt attn.DType, src []float32) {
	n := len(src)
	if n == 0 {
		return
	}
	switch dt {
	case attn.F32:
		copy(slice[float32](p, n), src)
	case attn.F16:
		half.EncodeF16(slice[half.F16](p, n), src)
	case attn.BF16:
		half.EncodeBF16(slice[half.BF16](p, n), src)
	case attn.E4M3:
		half.EncodeE4M3(slice[half.E4M3](p, n), src)
	default:
		panic("cpu: store of " + dt.String())
	}
}

// row gives n elements at element offset of t as float32: t's own memory where it is float32, else widened in buf.
func row(buf []float32, t *attn.Tensor, offset, n int) []float32 {
	if t.DType == attn.F32 {
		return f32(t, offset, n)
	}
	load(buf[:n], t.DType, t.At(offset))
	return buf[:n]
}

// loadRows widens n rows of d elements, stride elements apart, to packed rows of dst.
func loadRows(dst []float32, dt attn.DType, p unsafe.Pointer, stride, n, d int) {
	if stride == d {
		load(dst[:n*d], dt, p)
		return
	}
	for i := range n {
		load(dst[i*d:][:d], dt, unsafe.Add(p, i*stride*dt.Size()))
	}
}
