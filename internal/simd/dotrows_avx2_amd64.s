//go:build !purego

#include "textflag.h"

// Register-blocked tiles. A tile keeps rows×4 sums in registers: Y0-Y3 for its first row, Y4-Y7 for the second, Y8-Y11 for the
// third. Three rows from a base register with stride R9: (R8) (R8)(R9*1) (R8)(R9*2).

#define ZERO4(a, b, c, d) \
	VXORPS a, a, a \
	VXORPS b, b, b \
	VXORPS c, c, c \
	VXORPS d, d, d

// dotRows: dst[i][j] = Σ_c q[i][c]·k[j][c] for a few rows i and 4·groups rows j
//
//	for ; groups > 0; groups-- {
//		sum := [rows][4][8]float32{}
//		for c := 0; c < d; c += 8 { sum[i][j] += q[i][c:c+8] * k[j][c:c+8] } // the last step under a mask
//		dst[i][0:4] = sum over lanes of sum[i]
//		k, dst = k[4*ldk:], dst[4:]
//	}

// Q1, Q2, Q3: the vectors of q's rows into Y12-Y14; MASKQ1, …: under the mask Y15.
#define Q1 VMOVUPS (R8), Y12
#define Q2 Q1; VMOVUPS (R8)(R9*1), Y13
#define Q3 Q2; VMOVUPS (R8)(R9*2), Y14
#define MASKQ1 VMASKMOVPS (R8), Y15, Y12
#define MASKQ2 MASKQ1; VMASKMOVPS (R8)(R9*1), Y15, Y13
#define MASKQ3 MASKQ2; VMASKMOVPS (R8)(R9*2), Y15, Y14

// K1(k, a), …: one vector of k times those of q into the sums a, b, c. MASKK1, …: the same with Y15 = the mask on entry; the mask
// is fetched again for the next.
#define TIMES1(a) VFMADD231PS Y12, Y15, a
#define TIMES2(a, b) TIMES1(a); VFMADD231PS Y13, Y15, b
#define TIMES3(a, b, c) TIMES2(a, b); VFMADD231PS Y14, Y15, c
#define K1(k, a) VMOVUPS k, Y15; TIMES1(a)
#define K2(k, a, b) VMOVUPS k, Y15; TIMES2(a, b)
#define K3(k, a, b, c) VMOVUPS k, Y15; TIMES3(a, b, c)
#define MASK VMOVDQU (R11), Y15
#define MASKK1(k, a) VMASKMOVPS k, Y15, Y15; TIMES1(a); MASK
#define MASKK2(k, a, b) VMASKMOVPS k, Y15, Y15; TIMES2(a, b); MASK
#define MASKK3(k, a, b, c) VMASKMOVPS k, Y15, Y15; TIMES3(a, b, c); MASK

// STORE4(a, b, c, d, xa, xb): adds up the lanes of four sums, stores the results at AX and moves AX to the next row of dst.
#define STORE4(a, b, c, d, xa, xb) \
	VHADDPS      b, a, a    \
	VHADDPS      d, c, c    \
	VHADDPS      c, a, a    \
	VEXTRACTF128 $1, a, xb  \
	VADDPS       xb, xa, xa \
	VMOVUPS      xa, (AX)   \
	ADDQ         R13, AX

// ARGS: dst DI by R13, q R8 by R9, k SI by DX (BX = 3·DX), groups CX, R10 = bytes of a row in full vectors, R11 the mask of the rest.
#define ARGS \
	MOVQ dst+0(FP), DI         \
	MOVQ ldd+8(FP), R13        \
	SHLQ $2, R13               \
	MOVQ q+16(FP), R8          \
	MOVQ ldq+24(FP), R9        \
	SHLQ $2, R9                \
	MOVQ k+32(FP), SI          \
	MOVQ ldk+40(FP), DX        \
	SHLQ $2, DX                \
	LEAQ (DX)(DX*2), BX        \
	MOVQ groups+48(FP), CX     \
	MOVQ d+56(FP), R10         \
	MOVQ R10, AX               \
	ANDQ $7, AX                \
	SHLQ $2, AX                \
	LEAQ lanes<>+32(SB), R11   \
	SUBQ AX, R11               \
	SHRQ $3, R10               \
	SHLQ $5, R10

#define NEXTVEC \
	ADDQ $32, R8  \
	ADDQ $32, SI  \
	SUBQ $32, R12

// NEXTGROUP: moves q and k back to the start of a row, k on by four rows and dst by four columns.
#define NEXTGROUP \
	SUBQ R10, R8        \
	SUBQ R10, SI        \
	LEAQ (SI)(DX*4), SI \
	ADDQ $16, DI        \
	DECQ CX

// func dotRows3AVX2(dst *float32, ldd int, q *float32, ldq int, k *float32, ldk, groups, d int)
TEXT ·dotRows3AVX2(SB), NOSPLIT, $0-64
	ARGS

group:
	ZERO4(X0, X1, X2, X3)
	ZERO4(X4, X5, X6, X7)
	ZERO4(X8, X9, X10, X11)
	MOVQ  R10, R12
	TESTQ R12, R12
	JZ    rest

step:
	Q3
	K3((SI), Y0, Y4, Y8)
	K3((SI)(DX*1), Y1, Y5, Y9)
	K3((SI)(DX*2), Y2, Y6, Y10)
	K3((SI)(BX*1), Y3, Y7, Y11)
	NEXTVEC
	JNZ step

rest:
	TESTQ $7, d+56(FP)
	JZ    store
	MASK
	MASKQ3
	MASKK3((SI), Y0, Y4, Y8)
	MASKK3((SI)(DX*1), Y1, Y5, Y9)
	MASKK3((SI)(DX*2), Y2, Y6, Y10)
	MASKK3((SI)(BX*1), Y3, Y7, Y11)

store:
	MOVQ DI, AX
	STORE4(Y0, Y1, Y2, Y3, X0, X1)
	STORE4(Y4, Y5, Y6, Y7, X4, X5)
	STORE4(Y8, Y9, Y10, Y11, X8, X9)
	NEXTGROUP
	JNZ group
	VZEROUPPER
	RET

// func dotRows2AVX2(dst *float32, ldd int, q *float32, ldq int, k *float32, ldk, groups, d int)
TEXT ·dotRows2AVX2(SB), NOSPLIT, $0-64
	ARGS

group:
	ZERO4(X0, X1, X2, X3)
	ZERO4(X4, X5, X6, X7)
	MOVQ  R10, R12
	TESTQ R12, R12
	JZ    rest

step:
	Q2
	K2((SI), Y0, Y4)
	K2((SI)(DX*1), Y1, Y5)
	K2((SI)(DX*2), Y2, Y6)
	K2((SI)(BX*1), Y3, Y7)
	NEXTVEC
	JNZ step

rest:
	TESTQ $7, d+56(FP)
	JZ    store
	MASK
	MASKQ2
	MASKK2((SI), Y0, Y4)
	MASKK2((SI)(DX*1), Y1, Y5)
	MASKK2((SI)(DX*2), Y2, Y6)
	MASKK2((SI)(BX*1), Y3, Y7)

store:
	MOVQ DI, AX
	STORE4(Y0, Y1, Y2, Y3, X0, X1)
	STORE4(Y4, Y5, Y6, Y7, X4, X5)
	NEXTGROUP
	JNZ group
	VZEROUPPER
	RET

// func dotRows1AVX2(dst *float32, ldd int, q *float32, ldq int, k *float32, ldk, groups, d int)
TEXT ·dotRows1AVX2(SB), NOSPLIT, $0-64
	ARGS

group:
	ZERO4(X0, X1, X2, X3)
	MOVQ  R10, R12
	TESTQ R12, R12
	JZ    rest

step:
	Q1
	K1((SI), Y0)
	K1((SI)(DX*1), Y1)
	K1((SI)(DX*2), Y2)
	K1((SI)(BX*1), Y3)
	NEXTVEC
	JNZ step

rest:
	TESTQ $7, d+56(FP)
	JZ    store
	MASK
	MASKQ1
	MASKK1((SI), Y0)
	MASKK1((SI)(DX*1), Y1)
	MASKK1((SI)(DX*2), Y2)
	MASKK1((SI)(BX*1), Y3)

store:
	MOVQ DI, AX
	STORE4(Y0, Y1, Y2, Y3, X0, X1)
	NEXTGROUP
	JNZ group
	VZEROUPPER
	RET

DATA lanes<>+0(SB)/8, $-1
DATA lanes<>+8(SB)/8, $-1
DATA lanes<>+16(SB)/8, $-1
DATA lanes<>+24(SB)/8, $-1
DATA lanes<>+32(SB)/8, $0
DATA lanes<>+40(SB)/8, $0
DATA lanes<>+48(SB)/8, $0
DATA lanes<>+56(SB)/8, $0
GLOBL lanes<>(SB), RODATA|NOPTR, $64
