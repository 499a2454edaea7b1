//go:build !purego

package quant

import (
	"github.com/gaze-ml/gaze/internal/attn"
	"github.com/gaze-ml/gaze/internal/simd"
)

// kernelsOf gives the kernels for d under the instruction set in use.
func kernelsOf(d attn.DType) kernels { return byISA[simd.Active()][d] }

var byISA = [...][attn.Q6_K + 1]kernels{
	simd.AVX2: {
		attn.F16:  {nil, dotF16AVX2},
		attn.BF16: {nil, dotBF16AVX2},
		attn.Q8_0: {expandQ8_0AVX2, dotQ8_0AVX2},
		attn.Q4_0: {expandQ4_0AVX2, dotQ4_0AVX2},
		attn.Q4_1: {expandQ4_1AVX2, dotQ4_1AVX2},
		attn.Q5_0: {expandQ5_0AVX2, dotQ5_0AVX2},
		attn.Q5_1: {expandQ5_1AVX2, dotQ5_1AVX2},
		attn.Q4_K: {expandQ4_KAVX2, dotQ4_KAVX2},
		attn.Q5_K: {expandQ5_KAVX2, dotQ5_KAVX2},
		attn.Q6_K: {expandQ6_KAVX2, dotQ6_KAVX2},
	},
	simd.AVX512: {
		attn.F16:  {nil, dotF16AVX512},
		attn.BF16: {nil, dotBF16AVX512},
		attn.Q8_0: {expandQ8_0AVX512, dotQ8_0AVX512},
		attn.Q4_0: {expandQ4_0AVX512, dotQ4_0AVX512},
		attn.Q4_1: {expandQ4_1AVX512, dotQ4_1AVX512},
		attn.Q5_0: {expandQ5_0AVX512, dotQ5_0AVX512},
		attn.Q5_1: {expandQ5_1AVX512, dotQ5_1AVX512},
		attn.Q4_K: {expandQ4_KAVX512, dotQ4_KAVX512},
		attn.Q5_K: {expandQ5_KAVX512, dotQ5_KAVX512},
		attn.Q6_K: {expandQ6_KAVX512, dotQ6_KAVX512},
	},
}

//go:noescape
func expandQ8_0AVX2(dst *float32, w *byte, blocks int)

//go:noescape
func expandQ4_0AVX2(dst *float32, w *byte, blocks int)

//go:noescape
func expandQ4_1AVX2(dst *float32, w *byte, blocks int)

//go:noescape
func expandQ5_0AVX2(dst *float32, w *byte, blocks int)

//go:noescape
func expandQ5_1AVX2(dst *float32, w *byte, blocks int)

//go:noescape
func expandQ4_KAVX2(dst *float32, w *byte, blocks int)

//go:noescape
func expandQ5_KAVX2(dst *float32, w *byte, blocks int)

//go:noescape
func expandQ6_KAVX2(dst *float32, w *byte, blocks int)

//go:noescape
func dotF16AVX2(y *float32, w *byte, stride int, x *float32, n, groups int)

//go:noescape
func dotBF16AVX2(y *float32, w *byte, stride int, x *float32, n, groups int)

//go:noescape
func dotQ8_0AVX2(y *float32, w *byte, stride int, x *float32, n, groups int)

//go:noescape
func dotQ4_0AVX2(y *float32, w *byte, stride int, x *float32, n, groups int)

//go:noescape
func dotQ4_1AVX2(y *float32, w *byte, stride int, x *float32, n, groups int)

//go:noescape
func dotQ5_0AVX2(y *float32, w *byte, stride int, x *float32, n, groups int)

//go:noescape
func dotQ5_1AVX2(y *float32, w *byte, stride int, x *float32, n, groups int)

//go:noescape
func dotQ4_KAVX2(y *float32, w *byte, stride int, x *float32, n, groups int)

//go:noescape
func dotQ5_KAVX2(y *float32, w *byte, stride int, x *float32, n, groups int)

//go:noescape
func dotQ6_KAVX2(y *float32, w *byte, stride int, x *float32, n, groups int)

//go:noescape
func expandQ8_0AVX512(dst *float32, w *byte, blocks int)

//go:noescape
func expandQ4_0AVX512(dst *float32, w *byte, blocks int)

//go:noescape
func expandQ4_1AVX512(dst *float32, w *byte, blocks int)

//go:noescape
func expandQ5_0AVX512(dst *float32, w *byte, blocks int)

//go:noescape
func expandQ5_1AVX512(dst *float32, w *byte, blocks int)

//go:noescape
func expandQ4_KAVX512(dst *float32, w *byte, blocks int)

//go:noescape
func expandQ5_KAVX512(dst *float32, w *byte, blocks int)

//go:noescape
func expandQ6_KAVX512(dst *float32, w *byte, blocks int)

//go:noescape
func dotF16AVX512(y *float32, w *byte, stride int, x *float32, n, groups int)

//go:noescape
func dotBF16AVX512(y *float32, w *byte, stride int, x *float32, n, groups int)

//go:noescape
func dotQ8_0AVX512(y *float32, w *byte, stride int, x *float32, n, groups int)

//go:noescape
func dotQ4_0AVX512(y *float32, w *byte, stride int, x *float32, n, groups int)

//go:noescape
func dotQ4_1AVX512(y *float32, w *byte, stride int, x *float32, n, groups int)

//go:noescape
func dotQ5_0AVX512(y *float32, w *byte, stride int, x *float32, n, groups int)

//go:noescape
func dotQ5_1AVX512(y *float32, w *byte, stride int, x *float32, n, groups int)

//go:noescape
func dotQ4_KAVX512(y *float32, w *byte, stride int, x *float32, n, groups int)

//go:noescape
func dotQ5_KAVX512(y *float32, w *byte, stride int, x *float32, n, groups int)

//go:noescape
func dotQ6_KAVX512(y *float32, w *byte, stride int, x *float32, n, groups int)
