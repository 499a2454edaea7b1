package simd

// The kernels here do full vectors and say how many elements that were; the rest is done one by one.

// ScaledMul multiplies element by element: dst[i] = alpha·x[i]·y[i] over the elements of x [n], alpha and x first. dst and y must have
// at least n elements; dst may be x or y.
func ScaledMul(dst []float32, alpha float32, x, y []float32) {
	dst, y = dst[:len(x)], y[:len(x)]
	for i := scaledMul(dst, alpha, x, y); i < len(x); i++ {
		dst[i] = alpha * x[i] * y[i]
	}
}

// SiLUMul is dst[i] = gate[i] / (1 + exp(-gate[i])) · up[i] over the elements of gate [n], with the exponential of [ExpSumInPlace]. dst
// and up must have at least n elements; dst must not overlap the others.
func SiLUMul(dst, gate, up []float32) {
	dst, up = dst[:len(gate)], up[:len(gate)]
	copy(dst, gate)
	Scale(-1, dst)
	ExpSumInPlace(dst, 0)
	for i := gated(dst, gate, up); i < len(gate); i++ {
		dst[i] = gate[i] / (1 + dst[i]) * up[i]
	}
}
