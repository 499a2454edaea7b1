//go:build !purego

package simd

// The kernels do n elements, n a positive multiple of 16 (AVX-512) or 8 (AVX2).

//go:noescape
func scaledMulAVX512(dst *float32, alpha float32, x, y *float32, n int)

//go:noescape
func scaledMulAVX2(dst *float32, alpha float32, x, y *float32, n int)

//go:noescape
func gatedAVX512(dst, gate, up *float32, n int)

//go:noescape
func gatedAVX2(dst, gate, up *float32, n int)

func scaledMul(dst []float32, alpha float32, x, y []float32) int {
	n := fullVectors(len(x))
	switch {
	case n == 0:
	case active == AVX512:
		scaledMulAVX512(&dst[0], alpha, &x[0], &y[0], n)
	default:
		scaledMulAVX2(&dst[0], alpha, &x[0], &y[0], n)
	}
	return n
}

func gated(dst, gate, up []float32) int {
	n := fullVectors(len(gate))
	switch {
	case n == 0:
	case active == AVX512:
		gatedAVX512(&dst[0], &gate[0], &up[0], n)
	default:
		gatedAVX2(&dst[0], &gate[0], &up[0], n)
	}
	return n
}

// fullVectors is how many of n elements the vectors of the active instruction set cover.
func fullVectors(n int) int {
	switch active {
	case AVX512:
		return n &^ 15
	case AVX2:
		return n &^ 7
	}
	return 0
}
