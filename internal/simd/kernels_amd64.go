//go:build !purego

package simd

// Every kernel needs n, d, groups, nk and width at least 1; their comments in the assembly are the loops they replace.

//go:noescape
func dotAVX512(a, b *float32, n int) float32

//go:noescape
func dotAVX2(a, b *float32, n int) float32

//go:noescape
func axpyAVX512(alpha float32, x, y *float32, n int)

//go:noescape
func axpyAVX2(alpha float32, x, y *float32, n int)

//go:noescape
func scaleAVX512(alpha float32, x *float32, n int)

//go:noescape
func scaleAVX2(alpha float32, x *float32, n int)

//go:noescape
func maxAVX512(x *float32, n int) float32

//go:noescape
func maxAVX2(x *float32, n int) float32

//go:noescape
func expSumAVX512(s *float32, n int, m float32) float32

//go:noescape
func expSumAVX2(s *float32, n int, m float32) float32

//go:noescape
func dotRows6AVX512(dst *float32, ldd int, q *float32, ldq int, k *float32, ldk, groups, d int)

//go:noescape
func dotRows4AVX512(dst *float32, ldd int, q *float32, ldq int, k *float32, ldk, groups, d int)

//go:noescape
func dotRows2AVX512(dst *float32, ldd int, q *float32, ldq int, k *float32, ldk, groups, d int)

//go:noescape
func dotRows1AVX512(dst *float32, ldd int, q *float32, ldq int, k *float32, ldk, groups, d int)

//go:noescape
func dotRows3AVX2(dst *float32, ldd int, q *float32, ldq int, k *float32, ldk, groups, d int)

//go:noescape
func dotRows2AVX2(dst *float32, ldd int, q *float32, ldq int, k *float32, ldk, groups, d int)

//go:noescape
func dotRows1AVX2(dst *float32, ldd int, q *float32, ldq int, k *float32, ldk, groups, d int)

//go:noescape
func axpyRows6AVX512(o *float32, ldo int, p *float32, ldp int, v *float32, ldv, nk, width int)

//go:noescape
func axpyRows4AVX512(o *float32, ldo int, p *float32, ldp int, v *float32, ldv, nk, width int)

//go:noescape
func axpyRows2AVX512(o *float32, ldo int, p *float32, ldp int, v *float32, ldv, nk, width int)

//go:noescape
func axpyRows1AVX512(o *float32, ldo int, p *float32, ldp int, v *float32, ldv, nk, width int)

//go:noescape
func axpyRows3AVX2(o *float32, ldo int, p *float32, ldp int, v *float32, ldv, nk int)

//go:noescape
func axpyRows2AVX2(o *float32, ldo int, p *float32, ldp int, v *float32, ldv, nk int)

//go:noescape
func axpyRows1AVX2(o *float32, ldo int, p *float32, ldp int, v *float32, ldv, nk int)

//go:noescape
func axpyRest1AVX2(o *float32, ldo int, p *float32, ldp int, v *float32, ldv, nk, width int)
