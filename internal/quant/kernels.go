package quant

type (
	// dotFunc multiplies x with 4·groups rows of n weights, stride bytes apart: y[j] = Σ_i x[i]·w[j,i], added up in the order of
	// simd.DotRows. n is a positive multiple of 32 and of the block length.
	dotFunc func(y *float32, w *byte, stride int, x *float32, n, groups int)
	// expandFunc widens blocks, at least one, to float32.
	expandFunc func(dst *float32, w *byte, blocks int)
)

// kernels are the assembly for one type of weights; nil where there is none.
type kernels struct {
	expand expandFunc
	dot    dotFunc
}
