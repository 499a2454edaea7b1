//go:build !purego

#include "textflag.h"
#include "blocks32_avx2.h"
#include "blocks256_avx2.h"

// Products of x with 4·groups rows of n weights, n a multiple of 32, stride bytes apart:
//	for j := range 4 * groups {
//		sum := [8]float32{}
//		for i := 0; i < n; i += 8 { sum += x[i:i+8] * w[j][i:i+8] }
//		y[j] = sum over lanes
//	}
// Four rows go side by side: each row's sum has the time of the other three to finish before the next addition. They are rows j,
// j+groups, j+2·groups and j+3·groups, so that memory is read in four long streams, which the processor fetches ahead.

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

// ADD(sum, at): adds the products of the weights in Y4-Y7 with x's at SI+at.
#define ADD(sum, at) \
	VFMADD231PS at(SI), Y4, sum      \
	VFMADD231PS (at+32)(SI), Y5, sum \
	VFMADD231PS (at+64)(SI), Y6, sum \
	VFMADD231PS (at+96)(SI), Y7, sum

// BEGIN, END: around the loop over a row's blocks; it starts at label block, and END goes on to label group.
#define BEGIN \
	VXORPS X0, X0, X0 \
	VXORPS X1, X1, X1 \
	VXORPS X2, X2, X2 \
	VXORPS X3, X3, X3 \
	MOVQ   R8, R11    \
	MOVQ   BX, SI     \
	MOVQ   DX, CX

#define END \
	STORE4         \
	ADDQ   R13, R8 \
	DECQ   R12     \
	JNZ    group   \
	VZEROUPPER     \
	RET

// STORE4: adds up the lanes of Y0-Y3, as simd.DotRows does, and stores the results in y.
#define STORE4 \
	VHADDPS      Y1, Y0, Y0         \
	VHADDPS      Y3, Y2, Y2         \
	VHADDPS      Y2, Y0, Y0         \
	VEXTRACTF128 $1, Y0, X1         \
	VADDPS       X1, X0, X0         \
	MOVQ         groups+40(FP), AX  \
	VMOVSS       X0, (DI)           \
	VEXTRACTPS   $1, X0, (DI)(AX*4) \
	VEXTRACTPS   $2, X0, (DI)(AX*8) \
	LEAQ         (AX)(AX*2), AX     \
	VEXTRACTPS   $3, X0, (DI)(AX*4) \
	ADDQ         $4, DI

// GROUPS(NAME, size): all there is to do after ARGS and NAME_INIT, for blocks of size bytes.
#define GROUPS(NAME, size) \
group:                      \
	BEGIN               \
block:                      \
	NAME((R11))         \
	ADD(Y0, 0)          \
	NAME((R11)(R9*1))   \
	ADD(Y1, 0)          \
	NAME((R11)(R9*2))   \
	ADD(Y2, 0)          \
	NAME((R11)(R10*1))  \
	ADD(Y3, 0)          \
	ADDQ $size, R11     \
	ADDQ $128, SI       \
	SUBQ $32, CX        \
	JNZ  block          \
	END

// FOUR(RUN, at): a run of the blocks of four rows with x's at SI+at.
#define FOUR(RUN, at) \
	RUN((R11), 0)          \
	ADD(Y0, at)            \
	RUN((R11)(R9*1), 64)   \
	ADD(Y1, at)            \
	RUN((R11)(R9*2), 128)  \
	ADD(Y2, at)            \
	RUN((R11)(R10*1), 192) \
	ADD(Y3, at)

// GROUPS256(HEAD, RUN0, …, size): as GROUPS, for blocks of 256 weights.
#define GROUPS256(HEAD, RUN0, RUN1, RUN2, RUN3, RUN4, RUN5, RUN6, RUN7, size) \
group:                          \
	BEGIN                   \
block:                          \
	HEAD((R11), 0)          \
	HEAD((R11)(R9*1), 64)   \
	HEAD((R11)(R9*2), 128)  \
	HEAD((R11)(R10*1), 192) \
	FOUR(RUN0, 0)           \
	FOUR(RUN1, 128)         \
	FOUR(RUN2, 256)         \
	FOUR(RUN3, 384)         \
	FOUR(RUN4, 512)         \
	FOUR(RUN5, 640)         \
	FOUR(RUN6, 768)         \
	FOUR(RUN7, 896)         \
	ADDQ $size, R11         \
	ADDQ $1024, SI          \
	SUBQ $256, CX           \
	JNZ  block              \
	END

// func dotQ8_0AVX2(y *float32, w *byte, stride int, x *float32, n, groups int)
TEXT ·dotQ8_0AVX2(SB), NOSPLIT, $0-48
	ARGS
	GROUPS(Q8_0, 34)

// func dotQ4_0AVX2(y *float32, w *byte, stride int, x *float32, n, groups int)
TEXT ·dotQ4_0AVX2(SB), NOSPLIT, $0-48
	ARGS
	Q4_0_INIT
	GROUPS(Q4_0, 18)

// func dotQ4_1AVX2(y *float32, w *byte, stride int, x *float32, n, groups int)
TEXT ·dotQ4_1AVX2(SB), NOSPLIT, $0-48
	ARGS
	Q4_1_INIT
	GROUPS(Q4_1, 20)

// func dotQ5_0AVX2(y *float32, w *byte, stride int, x *float32, n, groups int)
TEXT ·dotQ5_0AVX2(SB), NOSPLIT, $0-48
	ARGS
	Q5_0_INIT
	GROUPS(Q5_0, 22)

// func dotQ5_1AVX2(y *float32, w *byte, stride int, x *float32, n, groups int)
TEXT ·dotQ5_1AVX2(SB), NOSPLIT, $0-48
	ARGS
	Q5_1_INIT
	GROUPS(Q5_1, 24)

// func dotF16AVX2(y *float32, w *byte, stride int, x *float32, n, groups int)
TEXT ·dotF16AVX2(SB), NOSPLIT, $0-48
	ARGS
	GROUPS(F16, 64)

// func dotBF16AVX2(y *float32, w *byte, stride int, x *float32, n, groups int)
TEXT ·dotBF16AVX2(SB), NOSPLIT, $0-48
	ARGS
	GROUPS(BF16, 64)

// func dotQ4_KAVX2(y *float32, w *byte, stride int, x *float32, n, groups int)
TEXT ·dotQ4_KAVX2(SB), NOSPLIT, $256-48
	ARGS
	Q4_K_INIT
	GROUPS256(Q4_K_HEAD, Q4_K_RUN0, Q4_K_RUN1, Q4_K_RUN2, Q4_K_RUN3, Q4_K_RUN4, Q4_K_RUN5, Q4_K_RUN6, Q4_K_RUN7, 144)

// func dotQ5_KAVX2(y *float32, w *byte, stride int, x *float32, n, groups int)
TEXT ·dotQ5_KAVX2(SB), NOSPLIT, $256-48
	ARGS
	Q5_K_INIT
	GROUPS256(Q5_K_HEAD, Q5_K_RUN0, Q5_K_RUN1, Q5_K_RUN2, Q5_K_RUN3, Q5_K_RUN4, Q5_K_RUN5, Q5_K_RUN6, Q5_K_RUN7, 176)

// func dotQ6_KAVX2(y *float32, w *byte, stride int, x *float32, n, groups int)
TEXT ·dotQ6_KAVX2(SB), NOSPLIT, $256-48
	ARGS
	Q6_K_INIT
	GROUPS256(Q6_K_HEAD, Q6_K_RUN0, Q6_K_RUN1, Q6_K_RUN2, Q6_K_RUN3, Q6_K_RUN4, Q6_K_RUN5, Q6_K_RUN6, Q6_K_RUN7, 210)
