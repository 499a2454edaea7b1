//go:build !purego

package simd

// The kernels turn pairs pairs, a positive multiple of 8 and 16 (AVX-512) or 4 and 8 (AVX2). half is the distance of a pair's elements.

//go:noescape
func rotateAdjacentAVX512(out, x, cos, sin *float32, pairs int)

//go:noescape
func rotateAdjacentAVX2(out, x, cos, sin *float32, pairs int)

//go:noescape
func rotateHalvesAVX512(out, x, cos, sin *float32, pairs, half int)

//go:noescape
func rotateHalvesAVX2(out, x, cos, sin *float32, pairs, half int)

func rotateAdjacent(out, x, cos, sin []float32) int {
	n := fullVectors(2*len(cos)) / 2
	switch {
	case n == 0:
	case active == AVX512:
		rotateAdjacentAVX512(&out[0], &x[0], &cos[0], &sin[0], n)
	default:
		rotateAdjacentAVX2(&out[0], &x[0], &cos[0], &sin[0], n)
	}
	return n
}

func rotateHalves(out, x, cos, sin []float32) int {
	n := fullVectors(len(cos))
	switch {
	case n == 0:
	case active == AVX512:
		rotateHalvesAVX512(&out[0], &x[0], &cos[0], &sin[0], n, len(cos))
	default:
		rotateHalvesAVX2(&out[0], &x[0], &cos[0], &sin[0], n, len(cos))
	}
	return n
}
