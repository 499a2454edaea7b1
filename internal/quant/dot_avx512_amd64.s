//go:build !purego

#include "textflag.h"
#include "blocks_avx512.h"

// Products of x with 4·groups rows of n weights, n a multiple of 32, stride bytes apart:
//	for j := range 4 * groups {
//		sum := [16]float32{}
//		for i := 0; i < n; i += 16 { sum += x[i:i+16] * w[j][i:i+16] }
//		y[j] = sum over lanes
//	}
// Four rows go side by side: they share x, and each row's sum has the time of the other three to finish before the next addition.

// ARGS: y DI, w R8 with strides R9 and R10 = 3·R9, x BX, n DX, groups R12.
#define ARGS \
	MOVQ y+0(FP), DI        \
	MOVQ w+8(FP), R8        \
	MOVQ stride+16(FP), R9  \
	LEAQ (R9)(R9*2), R10    \
	MOVQ x+24(FP), BX       \
	MOVQ n+32(FP), DX       \
	MOVQ groups+40(FP), R12

#define ROW(NAME, p, sum) \
	NAME(p)                  \
	VFMADD231PS Z10, Z8, sum \
	VFMADD231PS Z11, Z9, sum

// GROUPS(NAME, size): all there is to do after ARGS and NAME_INIT, for blocks of size bytes.
#define GROUPS(NAME, size) \
group:                              \
	VXORPS  X0, X0, X0          \
	VXORPS  X1, X1, X1          \
	VXORPS  X2, X2, X2          \
	VXORPS  X3, X3, X3          \
	MOVQ    R8, R11             \
	MOVQ    BX, SI              \
	MOVQ    DX, CX              \
block:                              \
	VMOVUPS (SI), Z10           \
	VMOVUPS 64(SI), Z11         \
	ROW(NAME, (R11), Z0)        \
	ROW(NAME, (R11)(R9*1), Z1)  \
	ROW(NAME, (R11)(R9*2), Z2)  \
	ROW(NAME, (R11)(R10*1), Z3) \
	ADDQ    $size, R11          \
	ADDQ    $128, SI            \
	SUBQ    $32, CX             \
	JNZ     block               \
	STORE4                      \
	LEAQ    (R8)(R9*4), R8      \
	DECQ    R12                 \
	JNZ     group               \
	VZEROUPPER                  \
	RET

// STORE4: adds up the lanes of Z0-Z3, as simd.DotRows does, and stores the results at DI, which moves on.
#define STORE4 \
	VUNPCKLPS     Z1, Z0, Z4 \
	VUNPCKHPS     Z1, Z0, Z5 \
	VUNPCKLPS     Z3, Z2, Z6 \
	VUNPCKHPS     Z3, Z2, Z7 \
	VADDPS        Z5, Z4, Z4 \
	VADDPS        Z7, Z6, Z6 \
	VUNPCKLPD     Z6, Z4, Z5 \
	VUNPCKHPD     Z6, Z4, Z7 \
	VADDPS        Z7, Z5, Z4 \
	VEXTRACTF64X4 $1, Z4, Y5 \
	VADDPS        Y5, Y4, Y4 \
	VEXTRACTF128  $1, Y4, X5 \
	VADDPS        X5, X4, X4 \
	VMOVUPS       X4, (DI)   \
	ADDQ          $16, DI

// func dotQ8_0AVX512(y *float32, w *byte, stride int, x *float32, n, groups int)
TEXT ·dotQ8_0AVX512(SB), NOSPLIT, $0-48
	ARGS
	Q8_0_INIT
	GROUPS(Q8_0, 34)

// func dotQ4_0AVX512(y *float32, w *byte, stride int, x *float32, n, groups int)
TEXT ·dotQ4_0AVX512(SB), NOSPLIT, $0-48
	ARGS
	Q4_0_INIT
	GROUPS(Q4_0, 18)

// func dotQ4_1AVX512(y *float32, w *byte, stride int, x *float32, n, groups int)
TEXT ·dotQ4_1AVX512(SB), NOSPLIT, $0-48
	ARGS
	Q4_1_INIT
	GROUPS(Q4_1, 20)

// func dotQ5_0AVX512(y *float32, w *byte, stride int, x *float32, n, groups int)
TEXT ·dotQ5_0AVX512(SB), NOSPLIT, $0-48
	ARGS
	Q5_0_INIT
	GROUPS(Q5_0, 22)

// func dotQ5_1AVX512(y *float32, w *byte, stride int, x *float32, n, groups int)
TEXT ·dotQ5_1AVX512(SB), NOSPLIT, $0-48
	ARGS
	Q5_1_INIT
	GROUPS(Q5_1, 24)

// func dotF16AVX512(y *float32, w *byte, stride int, x *float32, n, groups int)
TEXT ·dotF16AVX512(SB), NOSPLIT, $0-48
	ARGS
	F16_INIT
	GROUPS(F16, 64)

// func dotBF16AVX512(y *float32, w *byte, stride int, x *float32, n, groups int)
TEXT ·dotBF16AVX512(SB), NOSPLIT, $0-48
	ARGS
	BF16_INIT
	GROUPS(BF16, 64)
