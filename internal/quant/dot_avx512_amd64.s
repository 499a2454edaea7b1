//go:build !purego

#include "textflag.h"
#include "blocks32_avx512.h"
#include "blocks256_avx512.h"

// Products of x with 4·groups rows of n weights, n a multiple of 32, stride bytes apart:
//	for j := range 4 * groups {
//		sum := [16]float32{}
//		for i := 0; i < n; i += 16 { sum += x[i:i+16] * w[j][i:i+16] }
//		y[j] = sum over lanes
//	}
// Four rows go side by side: they share x, and each row's sum has the time of the other three to finish before the next addition.
// They are rows j, j+groups, j+2·groups and j+3·groups, so that memory is read in four long streams, which the processor fetches ahead.

// ARGS: y DI, w R8, x BX, n DX, groups R12, stride R13; R9, R10 = 1 and 3 times the distance between rows that go side by side.
#define ARGS \
	MOVQ  y+0(FP), DI        \
	MOVQ  w+8(FP), R8        \
	MOVQ  stride+16(FP), R13 \
	MOVQ  x+24(FP), BX       \
	MOVQ  n+32(FP), DX       \
	MOVQ  groups+40(FP), R12 \
	MOVQ  R12, R9            \
	IMULQ R13, R9            \
	LEAQ  (R9)(R9*2), R10

// ROW(NAME, p, sum): adds the products of a block at p with Z10 and Z11.
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
	ADDQ    R13, R8             \
	DECQ    R12                 \
	JNZ     group               \
	VZEROUPPER                  \
	RET

// STORE4: adds up the lanes of Z0-Z3, as simd.DotRows does, and stores the results in y.
#define STORE4 \
	VUNPCKLPS     Z1, Z0, Z4         \
	VUNPCKHPS     Z1, Z0, Z5         \
	VUNPCKLPS     Z3, Z2, Z6         \
	VUNPCKHPS     Z3, Z2, Z7         \
	VADDPS        Z5, Z4, Z4         \
	VADDPS        Z7, Z6, Z6         \
	VUNPCKLPD     Z6, Z4, Z5         \
	VUNPCKHPD     Z6, Z4, Z7         \
	VADDPS        Z7, Z5, Z4         \
	VEXTRACTF64X4 $1, Z4, Y5         \
	VADDPS        Y5, Y4, Y4         \
	VEXTRACTF128  $1, Y4, X5         \
	VADDPS        X5, X4, X4         \
	MOVQ          groups+40(FP), AX  \
	VMOVSS        X4, (DI)           \
	VEXTRACTPS    $1, X4, (DI)(AX*4) \
	VEXTRACTPS    $2, X4, (DI)(AX*8) \
	LEAQ          (AX)(AX*2), AX     \
	VEXTRACTPS    $3, X4, (DI)(AX*4) \
	ADDQ          $4, DI

// PAIRS(PAIR, p, at, sum): adds the products of 64 weights of the block at p, prepared at the stack's at, with x's in Z10, Z11, Z15 and Z16.
#define PAIRS(PAIR, p, at, sum) \
	PAIR(p, at)               \
	VFMADD231PS Z10, Z8, sum  \
	VFMADD231PS Z11, Z9, sum  \
	VFMADD231PS Z15, Z12, sum \
	VFMADD231PS Z16, Z13, sum

// QUARTER(PAIR, x): a quarter of the blocks of four rows.
#define QUARTER(PAIR, x) \
	VMOVUPS x(SI), Z10                 \
	VMOVUPS (x+64)(SI), Z11            \
	VMOVUPS (x+128)(SI), Z15           \
	VMOVUPS (x+192)(SI), Z16           \
	PAIRS(PAIR, (R11), 0, Z0)          \
	PAIRS(PAIR, (R11)(R9*1), 64, Z1)   \
	PAIRS(PAIR, (R11)(R9*2), 128, Z2)  \
	PAIRS(PAIR, (R11)(R10*1), 192, Z3)

// GROUPS256(HEAD, PAIR0, PAIR1, PAIR2, PAIR3, size): as GROUPS, for blocks of 256 weights.
#define GROUPS256(HEAD, PAIR0, PAIR1, PAIR2, PAIR3, size) \
group:                             \
	VXORPS X0, X0, X0          \
	VXORPS X1, X1, X1          \
	VXORPS X2, X2, X2          \
	VXORPS X3, X3, X3          \
	MOVQ   R8, R11             \
	MOVQ   BX, SI              \
	MOVQ   DX, CX              \
block:                             \
	HEAD((R11), 0)             \
	HEAD((R11)(R9*1), 64)      \
	HEAD((R11)(R9*2), 128)     \
	HEAD((R11)(R10*1), 192)    \
	QUARTER(PAIR0, 0)          \
	QUARTER(PAIR1, 256)        \
	QUARTER(PAIR2, 512)        \
	QUARTER(PAIR3, 768)        \
	ADDQ   $size, R11          \
	ADDQ   $1024, SI           \
	SUBQ   $256, CX            \
	JNZ    block               \
	STORE4                     \
	ADDQ   R13, R8             \
	DECQ   R12                 \
	JNZ    group               \
	VZEROUPPER                 \
	RET

// func dotQ8_0AVX512(y *float32, w *byte, stride int, x *float32, n, groups int)
TEXT ·dotQ8_0AVX512(SB), NOSPLIT, $0-48
	ARGS
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
	GROUPS(F16, 64)

// func dotBF16AVX512(y *float32, w *byte, stride int, x *float32, n, groups int)
TEXT ·dotBF16AVX512(SB), NOSPLIT, $0-48
	ARGS
	GROUPS(BF16, 64)

// func dotQ4_KAVX512(y *float32, w *byte, stride int, x *float32, n, groups int)
TEXT ·dotQ4_KAVX512(SB), NOSPLIT, $256-48
	ARGS
	Q4_K_INIT
	GROUPS256(Q4_K_HEAD, Q4_K_PAIR0, Q4_K_PAIR1, Q4_K_PAIR2, Q4_K_PAIR3, 144)

// func dotQ5_KAVX512(y *float32, w *byte, stride int, x *float32, n, groups int)
TEXT ·dotQ5_KAVX512(SB), NOSPLIT, $256-48
	ARGS
	Q5_K_INIT
	GROUPS256(Q5_K_HEAD, Q5_K_PAIR0, Q5_K_PAIR1, Q5_K_PAIR2, Q5_K_PAIR3, 176)

// func dotQ6_KAVX512(y *float32, w *byte, stride int, x *float32, n, groups int)
TEXT ·dotQ6_KAVX512(SB), NOSPLIT, $256-48
	ARGS
	Q6_K_INIT
	GROUPS256(Q6_K_HEAD, Q6_K_PAIR0, Q6_K_PAIR1, Q6_K_PAIR2, Q6_K_PAIR3, 210)
