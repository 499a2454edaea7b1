//go:build !purego

package half

import "github.com/gaze-ml/gaze/internal/simd"

// The kernels convert n elements, n a positive multiple of 16.

//go:noescape
func decodeF16AVX512(dst *float32, src *F16, n int)

//go:noescape
func decodeF16AVX2(dst *float32, src *F16, n int)

//go:noescape
func decodeBF16AVX512(dst *float32, src *BF16, n int)

//go:noescape
func decodeBF16AVX2(dst *float32, src *BF16, n int)

//go:noescape
func decodeE4M3AVX512(dst *float32, src *E4M3, n int)

//go:noescape
func decodeE4M3AVX2(dst *float32, src *E4M3, n int)

//go:noescape
func encodeF16AVX512(dst *F16, src *float32, n int)

//go:noescape
func encodeF16AVX2(dst *F16, src *float32, n int)

//go:noescape
func encodeBF16AVX512(dst *BF16, src *float32, n int)

//go:noescape
func encodeBF16AVX2(dst *BF16, src *float32, n int)

//go:noescape
func encodeE4M3AVX512(dst *E4M3, src *float32, n int)

//go:noescape
func encodeE4M3AVX2(dst *E4M3, src *float32, n int)

func decodeF16(dst []float32, src []F16) (n int) {
	n = len(src) &^ 15
	switch isa := simd.Active(); {
	case n == 0 || isa == simd.Portable:
		return 0
	case isa == simd.AVX512:
		decodeF16AVX512(&dst[0], &src[0], n)
	default:
		decodeF16AVX2(&dst[0], &src[0], n)
	}
	return n
}

func decodeBF16(dst []float32, src []BF16) (n int) {
	n = len(src) &^ 15
	switch isa := simd.Active(); {
	case n == 0 || isa == simd.Portable:
		return 0
	case isa == simd.AVX512:
		decodeBF16AVX512(&dst[0], &src[0], n)
	default:
		decodeBF16AVX2(&dst[0], &src[0], n)
	}
	return n
}

func decodeE4M3(dst []float32, src []E4M3) (n int) {
	n = len(src) &^ 15
	switch isa := simd.Active(); {
	case n == 0 || isa == simd.Portable:
		return 0
	case isa == simd.AVX512:
		decodeE4M3AVX512(&dst[0], &src[0], n)
	default:
		decodeE4M3AVX2(&dst[0], &src[0], n)
	}
	return n
}

func encodeF16(dst []F16, src []float32) (n int) {
	n = len(src) &^ 15
	switch isa := simd.Active(); {
	case n == 0 || isa == simd.Portable:
		return 0
	case isa == simd.AVX512:
		encodeF16AVX512(&dst[0], &src[0], n)
	default:
		encodeF16AVX2(&dst[0], &src[0], n)
	}
	return n
}

func encodeBF16(dst []BF16, src []float32) (n int) {
	n = len(src) &^ 15
	switch isa := simd.Active(); {
	case n == 0 || isa == simd.Portable:
		return 0
	case isa == simd.AVX512:
		encodeBF16AVX512(&dst[0], &src[0], n)
	default:
		encodeBF16AVX2(&dst[0], &src[0], n)
	}
	return n
}

func encodeE4M3(dst []E4M3, src []float32) (n int) {
	n = len(src) &^ 15
	switch isa := simd.Active(); {
	case n == 0 || isa == simd.Portable:
		return 0
	case isa == simd.AVX512:
		encodeE4M3AVX512(&dst[0], &src[0], n)
	default:
		encodeE4M3AVX2(&dst[0], &src[0], n)
	}
	return n
}
