// Package quant holds GGUF's block formats of weights: their layout, conversion from and to float32, and the product of
// activations with matrices of them (and of float32, float16 and bfloat16).
//
// A block is 32 weights (Q8_0, Q4_0, Q4_1, Q5_0, Q5_1) or 256 (Q4_K, Q5_K, Q6_K) of one row of a matrix, stored as in ggml.
// Activations stay float32: weights are widened, exactly but for one rounding where a format adds an offset, and every product
// and sum is a float32 one.
//
// The kernels in assembly are chosen by [simd.Active].
package quant

import (
	"unsafe"

	"github.com/gaze-ml/gaze/internal/attn"
	"github.com/gaze-ml/gaze/internal/half"
)

// The blocks, as Go types of their size. d, m and dmin are float16, little-endian like everything; q are unsigned codes unless
// said otherwise, of which nibbles are the low four bits, the rest standing apart.
type (
	BlockQ8_0 [34]byte  // d, 32 signed q: weight d·q
	BlockQ4_0 [18]byte  // d, 16 bytes of nibbles: d·(q-8)
	BlockQ4_1 [20]byte  // d, m, 16 bytes of nibbles: d·q + m
	BlockQ5_0 [22]byte  // d, 32 fifth bits, 16 bytes of nibbles: d·(q-16)
	BlockQ5_1 [24]byte  // d, m, 32 fifth bits, 16 bytes of nibbles: d·q + m
	BlockQ4_K [144]byte // d, dmin, 12 bytes of s and t, 128 bytes of nibbles: (d·s)·q - dmin·t; 6-bit s and t for every 32 weights
	BlockQ5_K [176]byte // d, dmin, 12 bytes of s and t, 32 bytes of fifth bits, 128 bytes of nibbles: as Q4_K
	BlockQ6_K [210]byte // 128 bytes of nibbles, 64 bytes of upper bits, 16 signed s, d: (d·s)·(q-32); an s for every 16 weights
)

// codecs convert single blocks: the portable versions, and the specification of the rest.
var codecs = [...]struct {
	decode func(dst []float32, block []byte)
	encode func(block []byte, src []float32)
}{
	attn.Q8_0: {decodeQ8_0, encodeQ8_0},
	attn.Q4_0: {decodeQ4_0, encodeQ4_0},
	attn.Q4_1: {decodeQ4_1, encodeQ4_1},
	attn.Q5_0: {decodeQ5_0, encodeQ5_0},
	attn.Q5_1: {decodeQ5_1, encodeQ5_1},
	attn.Q4_K: {decodeQ4_K, encodeQ4_K},
	attn.Q5_K: {decodeQ5_K, encodeQ5_K},
	attn.Q6_K: {decodeQ6_K, encodeQ6_K},
}

// Dequantize widens elements of type d to float32: len(dst) weights, a multiple of the type's block length, from the bytes they
// take at the front of src. d is a block type, F32, F16 or BF16.
func Dequantize(d attn.DType, dst []float32, src []byte) {
	blocks := len(dst) / d.BlockLen()
	if blocks == 0 {
		return
	}
	src = src[:blocks*d.Size()]
	switch d {
	case attn.F32:
		copy(dst, view[float32](src))
	case attn.F16:
		half.DecodeF16(dst, view[half.F16](src))
	case attn.BF16:
		half.DecodeBF16(dst, view[half.BF16](src))
	default:
		if k := kernelsOf(d); k.expand != nil {
			k.expand(&dst[0], &src[0], blocks)
			return
		}
		for i := range blocks {
			codecs[d].decode(dst[i*d.BlockLen():][:d.BlockLen()], src[i*d.Size():][:d.Size()])
		}
	}
}

// Quantize is the inverse of [Dequantize], as near as the format comes with the obvious choice of its scales: for tests and small
// files. (ggml's tools search for better scales.) Weights must lie within float16's range.
func Quantize(d attn.DType, dst []byte, src []float32) {
	blocks := len(src) / d.BlockLen()
	dst = dst[:blocks*d.Size()]
	switch d {
	case attn.F32:
		copy(view[float32](dst), src)
	case attn.F16:
		half.EncodeF16(view[half.F16](dst), src)
	case attn.BF16:
		half.EncodeBF16(view[half.BF16](dst), src)
	default:
		for i := range blocks {
			codecs[d].encode(dst[i*d.Size():][:d.Size()], src[i*d.BlockLen():][:d.BlockLen()])
		}
	}
}

// view is b as a slice of T, which it may be misaligned for.
func view[T float32 | half.F16 | half.BF16](b []byte) []T {
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/int(unsafe.Sizeof(*new(T))))
}
