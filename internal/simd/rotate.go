package simd

// The kernels here do full vectors and say how many pairs that were; the rest is done one by one.

// RotateAdjacent turns the pairs a = x[2i], b = x[2i+1] by the angles whose cosines and sines are given, over the elements of cos [n]:
// out[2i] = a·cos[i] - b·sin[i], out[2i+1] = a·sin[i] + b·cos[i]. sin must have at least n elements, x and out 2n; out may be x.
func RotateAdjacent(out, x, cos, sin []float32) {
	n := len(cos)
	out, x, sin = out[:2*n], x[:2*n], sin[:n]
	for i := rotateAdjacent(out, x, cos, sin); i < n; i++ {
		a, b := x[2*i], x[2*i+1]
		out[2*i], out[2*i+1] = a*cos[i]-b*sin[i], a*sin[i]+b*cos[i]
	}
}

// RotateHalves is [RotateAdjacent] for the pairs a = x[i], b = x[n+i].
func RotateHalves(out, x, cos, sin []float32) {
	n := len(cos)
	out, x, sin = out[:2*n], x[:2*n], sin[:n]
	for i := rotateHalves(out, x, cos, sin); i < n; i++ {
		a, b := x[i], x[n+i]
		out[i], out[n+i] = a*cos[i]-b*sin[i], a*sin[i]+b*cos[i]
	}
}
