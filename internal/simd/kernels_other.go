//go:build !amd64 || purego

package simd

func detect() ISA { return Portable }

func dot(a, b []float32) float32            { return dotGo(a, b) }
func axpy(alpha float32, x, y []float32)    { axpyGo(alpha, x, y) }
func scale(alpha float32, x []float32)      { scaleGo(alpha, x) }
func maximum(x []float32) float32           { return maxGo(x) }
func expSum(s []float32, m float32) float32 { return expSumGo(s, m) }

func dotRows(dst []float32, ldd int, q []float32, ldq, nq int, k []float32, ldk, nk, d int) {
	dotRowsGo(dst, ldd, q, ldq, nq, k, ldk, nk, d)
}

func axpyRows(o []float32, ldo, nq int, p []float32, ldp int, v []float32, ldv, nk, d int) {
	axpyRowsGo(o, ldo, nq, p, ldp, v, ldv, nk, d)
}
