//go:build !purego

#include "textflag.h"

// Register-blocked tiles. A tile keeps rows×4 sums in registers: Z0-Z3 for its first row, Z4-Z7 for the second and so on.
//
// Six rows from a base register with stride R9, R10 = 3·R9 and R11 = 5·R9:
//	(R8) (R8)(R9*1) (R8)(R9*2) (R8)(R10*1) (R8)(R9*4) (R8)(R11*1)

// ZERO4(a, b, c, d): four sums = 0; arguments are xmm names.
#define ZERO4(a, b, c, d) \
	VXORPS a, a, a \
	VXORPS b, b, b \
	VXORPS c, c, c \
	VXORPS d, d, d

// dotRows: dst[i][j] = Σ_c q[i][c]·k[j][c] for a few rows i and 4·groups rows j
//
//	for ; groups > 0; groups-- {
//		sum := [rows][4][16]float32{}
//		for c := 0; c < d; c += 16 { sum[i][j] += q[i][c:c+16] * k[j][c:c+16] } // the last step under a mask
//		dst[i][0:4] = sum over lanes of sum[i]
//		k, dst = k[4*ldk:], dst[4:]
//	}

// Q1, Q2, Q4, Q6: the vectors of q's rows into Z24-Z29.
#define Q1 VMOVUPS.Z (R8), K1, Z24
#define Q2 Q1; VMOVUPS.Z (R8)(R9*1), K1, Z25
#define Q4 Q2; VMOVUPS.Z (R8)(R9*2), K1, Z26; VMOVUPS.Z (R8)(R10*1), K1, Z27
#define Q6 Q4; VMOVUPS.Z (R8)(R9*4), K1, Z28; VMOVUPS.Z (R8)(R11*1), K1, Z29

// K1x(k, a), …: one vector of k times those of q into the sums a, b, ….
#define K1x(k, a) \
	VMOVUPS.Z   k, K1, Z30  \
	VFMADD231PS Z24, Z30, a
#define K2x(k, a, b) \
	K1x(k, a) \
	VFMADD231PS Z25, Z30, b
#define K4x(k, a, b, c, d) \
	K2x(k, a, b) \
	VFMADD231PS Z26, Z30, c \
	VFMADD231PS Z27, Z30, d
#define K6x(k, a, b, c, d, e, f) \
	K4x(k, a, b, c, d) \
	VFMADD231PS Z28, Z30, e \
	VFMADD231PS Z29, Z30, f

// STORE4(a, b, c, d, ya, xa): adds up the lanes of four sums, stores the results at AX and moves AX to the next row of dst.
#define STORE4(a, b, c, d, ya, xa) \
	VUNPCKLPS     b, a, Z24      \
	VUNPCKHPS     b, a, Z25      \
	VUNPCKLPS     d, c, Z26      \
	VUNPCKHPS     d, c, Z27      \
	VADDPS        Z25, Z24, Z24  \
	VADDPS        Z27, Z26, Z26  \
	VUNPCKLPD     Z26, Z24, Z25  \
	VUNPCKHPD     Z26, Z24, Z27  \
	VADDPS        Z27, Z25, a    \
	VEXTRACTF64X4 $1, a, Y24     \
	VADDPS        Y24, ya, ya    \
	VEXTRACTF32X4 $1, ya, X24    \
	VADDPS        X24, xa, xa    \
	VMOVUPS       xa, (AX)       \
	ADDQ          R13, AX

// ARGS: dst DI by R13, q R8 by R9, k SI by DX (BX = 3·DX), groups CX, K2 the mask of the last step.
#define ARGS \
	MOVQ  dst+0(FP), DI      \
	MOVQ  ldd+8(FP), R13     \
	SHLQ  $2, R13            \
	MOVQ  q+16(FP), R8       \
	MOVQ  ldq+24(FP), R9     \
	SHLQ  $2, R9             \
	LEAQ  (R9)(R9*2), R10    \
	LEAQ  (R9)(R9*4), R11    \
	MOVQ  k+32(FP), SI       \
	MOVQ  ldk+40(FP), DX     \
	SHLQ  $2, DX             \
	LEAQ  (DX)(DX*2), BX     \
	MOVQ  groups+48(FP), CX  \
	MOVQ  d+56(FP), R12      \
	DECQ  R12                \
	ANDQ  $15, R12           \
	MOVL  $2, AX             \
	SHLXL R12, AX, AX        \
	DECL  AX                 \
	KMOVW AX, K2

// STEPS: R12 = the number of vectors in a row, K1 = all lanes.
#define STEPS \
	MOVQ   d+56(FP), R12 \
	ADDQ   $15, R12      \
	SHRQ   $4, R12       \
	KXNORW K1, K1, K1

// LASTMASK(label): skips to label unless this is the last vector.
#define LASTMASK(label) \
	CMPQ  R12, $1 \
	JNE   label   \
	KMOVW K2, K1

// NEXTVEC, NEXTGROUP: moves q and k by one vector; moves them back, k on by four rows and dst by four columns.
#define NEXTVEC \
	ADDQ $64, R8 \
	ADDQ $64, SI \
	DECQ R12

#define NEXTGROUP \
	MOVQ d+56(FP), R12     \
	ADDQ $15, R12          \
	ANDQ $-16, R12         \
	SHLQ $2, R12           \
	SUBQ R12, R8           \
	SUBQ R12, SI           \
	LEAQ (SI)(DX*4), SI    \
	ADDQ $16, DI           \
	DECQ CX

// func dotRows6AVX512(dst *float32, ldd int, q *float32, ldq int, k *float32, ldk, groups, d int)
TEXT ·dotRows6AVX512(SB), NOSPLIT, $0-64
	ARGS

group:
	STEPS
	ZERO4(X0, X1, X2, X3)
	ZERO4(X4, X5, X6, X7)
	ZERO4(X8, X9, X10, X11)
	ZERO4(X12, X13, X14, X15)
	ZERO4(X16, X17, X18, X19)
	ZERO4(X20, X21, X22, X23)

step:
	LASTMASK(full)

full:
	Q6
	K6x((SI), Z0, Z4, Z8, Z12, Z16, Z20)
	K6x((SI)(DX*1), Z1, Z5, Z9, Z13, Z17, Z21)
	K6x((SI)(DX*2), Z2, Z6, Z10, Z14, Z18, Z22)
	K6x((SI)(BX*1), Z3, Z7, Z11, Z15, Z19, Z23)
	NEXTVEC
	JNZ step

	MOVQ DI, AX
	STORE4(Z0, Z1, Z2, Z3, Y0, X0)
	STORE4(Z4, Z5, Z6, Z7, Y4, X4)
	STORE4(Z8, Z9, Z10, Z11, Y8, X8)
	STORE4(Z12, Z13, Z14, Z15, Y12, X12)
	STORE4(Z16, Z17, Z18, Z19, Y16, X16)
	STORE4(Z20, Z21, Z22, Z23, Y20, X20)
	NEXTGROUP
	JNZ group
	VZEROUPPER
	RET

// func dotRows4AVX512(dst *float32, ldd int, q *float32, ldq int, k *float32, ldk, groups, d int)
TEXT ·dotRows4AVX512(SB), NOSPLIT, $0-64
	ARGS

group:
	STEPS
	ZERO4(X0, X1, X2, X3)
	ZERO4(X4, X5, X6, X7)
	ZERO4(X8, X9, X10, X11)
	ZERO4(X12, X13, X14, X15)

step:
	LASTMASK(full)

full:
	Q4
	K4x((SI), Z0, Z4, Z8, Z12)
	K4x((SI)(DX*1), Z1, Z5, Z9, Z13)
	K4x((SI)(DX*2), Z2, Z6, Z10, Z14)
	K4x((SI)(BX*1), Z3, Z7, Z11, Z15)
	NEXTVEC
	JNZ step

	MOVQ DI, AX
	STORE4(Z0, Z1, Z2, Z3, Y0, X0)
	STORE4(Z4, Z5, Z6, Z7, Y4, X4)
	STORE4(Z8, Z9, Z10, Z11, Y8, X8)
	STORE4(Z12, Z13, Z14, Z15, Y12, X12)
	NEXTGROUP
	JNZ group
	VZEROUPPER
	RET

// func dotRows2AVX512(dst *float32, ldd int, q *float32, ldq int, k *float32, ldk, groups, d int)
TEXT ·dotRows2AVX512(SB), NOSPLIT, $0-64
	ARGS

group:
	STEPS
	ZERO4(X0, X1, X2, X3)
	ZERO4(X4, X5, X6, X7)

step:
	LASTMASK(full)

full:
	Q2
	K2x((SI), Z0, Z4)
	K2x((SI)(DX*1), Z1, Z5)
	K2x((SI)(DX*2), Z2, Z6)
	K2x((SI)(BX*1), Z3, Z7)
	NEXTVEC
	JNZ step

	MOVQ DI, AX
	STORE4(Z0, Z1, Z2, Z3, Y0, X0)
	STORE4(Z4, Z5, Z6, Z7, Y4, X4)
	NEXTGROUP
	JNZ group
	VZEROUPPER
	RET

// func dotRows1AVX512(dst *float32, ldd int, q *float32, ldq int, k *float32, ldk, groups, d int)
TEXT ·dotRows1AVX512(SB), NOSPLIT, $0-64
	ARGS

group:
	STEPS
	ZERO4(X0, X1, X2, X3)

step:
	LASTMASK(full)

full:
	Q1
	K1x((SI), Z0)
	K1x((SI)(DX*1), Z1)
	K1x((SI)(DX*2), Z2)
	K1x((SI)(BX*1), Z3)
	NEXTVEC
	JNZ step

	MOVQ DI, AX
	STORE4(Z0, Z1, Z2, Z3, Y0, X0)
	NEXTGROUP
	JNZ group
	VZEROUPPER
	RET
