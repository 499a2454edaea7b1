package simd

import "math"

// The portable kernels. They are also the specification of the assembly: each comment there names the function it replaces.

func dotGo(a, b []float32) float32 {
	b = b[:len(a)]
	var s0, s1, s2, s3 float32 // four sums, so that additions need not wait for each other
	i := 0
	for ; i+4 <= len(a); i += 4 {
		x, y := a[i:i+4:i+4], b[i:i+4:i+4]
		s0 += x[0] * y[0]
		s1 += x[1] * y[1]
		s2 += x[2] * y[2]
		s3 += x[3] * y[3]
	}
	for ; i < len(a); i++ {
		s0 += a[i] * b[i]
	}
	return (s0 + s1) + (s2 + s3)
}

func axpyGo(alpha float32, x, y []float32) {
	y = y[:len(x)]
	for i, v := range x {
		y[i] += alpha * v
	}
}

func scaleGo(alpha float32, x []float32) {
	for i := range x {
		x[i] *= alpha
	}
}

func maxGo(x []float32) float32 {
	m := x[0]
	for _, v := range x[1:] {
		m = max(m, v) // the builtin returns NaN if either is
	}
	return m
}

func expSumGo(s []float32, m float32) (sum float32) {
	for i, v := range s {
		e := float32(math.Exp(float64(v - m)))
		s[i] = e
		sum += e
	}
	return sum
}

func dotRowsGo(dst []float32, ldd int, q []float32, ldq, nq int, k []float32, ldk, nk, d int) {
	for i := range nq {
		row := q[i*ldq:][:d]
		for j := range nk {
			dst[i*ldd+j] = dotGo(row, k[j*ldk:][:d])
		}
	}
}

func axpyRowsGo(o []float32, ldo, nq int, p []float32, ldp int, v []float32, ldv, nk, d int) {
	for i := range nq {
		row := o[i*ldo:][:d]
		for j := range nk {
			axpyGo(p[i*ldp+j], v[j*ldv:][:d], row)
		}
	}
}
