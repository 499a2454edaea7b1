// Package simd holds the float32 vector kernels under the CPU backend: the inner loops of attention and of the linear layers.
//
// Every function has a portable Go version and, on amd64, versions for [AVX2] and [AVX512]; the best one the machine runs is
// chosen when the program starts. They add in different orders, so their results agree within float32 rounding, not bit for bit.
// The build tag purego leaves the assembly out.
//
// No function allocates. Matrices are row-major slices with a leading dimension (the distance between rows, in elements), as in
// BLAS. Slices that are too short for the given dimensions panic as a slice expression would, before anything is written.
package simd

import "math"

// Dot returns Σ a[i]·b[i] over the elements of a [n]. b must have at least n elements.
func Dot(a, b []float32) float32 {
	b = b[:len(a)]
	if len(a) == 0 {
		return 0
	}
	return dot(a, b)
}

// Axpy adds alpha·x to y: y[i] += alpha·x[i] over the elements of x [n]. y must have at least n elements and not overlap x
// unless it is x.
func Axpy(alpha float32, x, y []float32) {
	y = y[:len(x)]
	if len(x) != 0 {
		axpy(alpha, x, y)
	}
}

// Scale multiplies x [n] by alpha in place.
func Scale(alpha float32, x []float32) {
	if len(x) != 0 {
		scale(alpha, x)
	}
}

// Max returns the largest element of x [n]: NaN if any element is NaN, -Inf for an empty x.
func Max(x []float32) float32 {
	if len(x) == 0 {
		return float32(math.Inf(-1))
	}
	return maximum(x)
}

// ExpSumInPlace replaces s [n] by exp(s[i]-m), the difference rounded to float32 first, and returns the sum of the results: the
// numerators and the denominator of a softmax whose maximum is m. The exponential is within 2e-7 of the exact one, relative, down
// to the subnormal range, where it is within one unit in the last place; -Inf gives 0 and NaN stays NaN. A row of -Inf with m =
// -Inf gives NaN (Inf-Inf), so callers treat rows without keys apart.
func ExpSumInPlace(s []float32, m float32) (sum float32) {
	if len(s) == 0 {
		return 0
	}
	return expSum(s, m)
}

// DotRows multiplies the rows of q [nq, d] with those of k [nk, d]: dst[i*ldd+j] = Σ_c q[i*ldq+c]·k[j*ldk+c], the tile Q·Kᵀ of
// attention and, with weights for k, a linear layer. dst [nq, nk] must not overlap q or k. d = 0 gives zeros. Under one
// instruction set an element depends on its two rows alone: not on nq, nk, the strides or its place, down to the last bit.
func DotRows(dst []float32, ldd int, q []float32, ldq, nq int, k []float32, ldk, nk int, d int) {
	if nq == 0 || nk == 0 {
		return
	}
	dst = dst[:(nq-1)*ldd+nk]
	if d == 0 {
		for i := range nq {
			clear(dst[i*ldd:][:nk])
		}
		return
	}
	dotRows(dst, ldd, q[:(nq-1)*ldq+d], ldq, nq, k[:(nk-1)*ldk+d], ldk, nk, d)
}

// AxpyRows adds the rows of v [nk, d] weighted by p [nq, nk] to o [nq, d]: o[i*ldo+c] += Σ_j p[i*ldp+j]·v[j*ldv+c], the tile P·V
// of attention. Every row of v is read, weight zero or not, so rows that must not count have to hold finite values. o must not
// overlap p or v. As in DotRows an element depends on its operands alone; the rows of v may also be added by several calls in
// turn, with the same bits.
func AxpyRows(o []float32, ldo, nq int, p []float32, ldp int, v []float32, ldv, nk, d int) {
	if nq == 0 || nk == 0 || d == 0 {
		return
	}
	axpyRows(o[:(nq-1)*ldo+d], ldo, nq, p[:(nq-1)*ldp+nk], ldp, v[:(nk-1)*ldv+d], ldv, nk, d)
}
