//go:build !purego

#include "textflag.h"

// axpyRows: o[i][c] += Σ_j p[i][j]·v[j][c] for a few rows i, nk rows j and 32 columns c, or up to 8
//
//	for j := range nk { o[i][0:width] += p[i][j] * v[j][0:width] } // o[i] stays in registers

// OARGS: o DI by R13, p R8 by R9, v SI by DX, nk CX.
#define OARGS \
	MOVQ o+0(FP), DI    \
	MOVQ ldo+8(FP), R13 \
	SHLQ $2, R13        \
	MOVQ p+16(FP), R8   \
	MOVQ ldp+24(FP), R9 \
	SHLQ $2, R9         \
	MOVQ v+32(FP), SI   \
	MOVQ ldv+40(FP), DX \
	SHLQ $2, DX         \
	MOVQ nk+48(FP), CX

// LOADO, SAVEO(a, b, c, d): four vectors of o's row at AX, which moves on to the next row.
#define LOADO(a, b, c, d) \
	VMOVUPS (AX), a   \
	VMOVUPS 32(AX), b \
	VMOVUPS 64(AX), c \
	VMOVUPS 96(AX), d \
	ADDQ    R13, AX

#define SAVEO(a, b, c, d) \
	VMOVUPS a, (AX)   \
	VMOVUPS b, 32(AX) \
	VMOVUPS c, 64(AX) \
	VMOVUPS d, 96(AX) \
	ADDQ    R13, AX

// P1, P2, P3: the weights of v's row for each row of o, in all lanes of Y12-Y14.
#define P1 VBROADCASTSS (R8), Y12
#define P2 P1; VBROADCASTSS (R8)(R9*1), Y13
#define P3 P2; VBROADCASTSS (R8)(R9*2), Y14

// V1(v, a), …: one vector of v times the weights into the sums a, b, c.
#define TIMES1(a) VFMADD231PS Y12, Y15, a
#define TIMES2(a, b) TIMES1(a); VFMADD231PS Y13, Y15, b
#define TIMES3(a, b, c) TIMES2(a, b); VFMADD231PS Y14, Y15, c
#define V1(v, a) VMOVUPS v, Y15; TIMES1(a)
#define V2(v, a, b) VMOVUPS v, Y15; TIMES2(a, b)
#define V3(v, a, b, c) VMOVUPS v, Y15; TIMES3(a, b, c)

#define NEXTV \
	ADDQ $4, R8 \
	ADDQ DX, SI \
	DECQ CX

// func axpyRows3AVX2(o *float32, ldo int, p *float32, ldp int, v *float32, ldv, nk int)
TEXT ·axpyRows3AVX2(SB), NOSPLIT, $0-56
	OARGS
	MOVQ DI, AX
	LOADO(Y0, Y1, Y2, Y3)
	LOADO(Y4, Y5, Y6, Y7)
	LOADO(Y8, Y9, Y10, Y11)

row:
	P3
	V3((SI), Y0, Y4, Y8)
	V3(32(SI), Y1, Y5, Y9)
	V3(64(SI), Y2, Y6, Y10)
	V3(96(SI), Y3, Y7, Y11)
	NEXTV
	JNZ row

	MOVQ DI, AX
	SAVEO(Y0, Y1, Y2, Y3)
	SAVEO(Y4, Y5, Y6, Y7)
	SAVEO(Y8, Y9, Y10, Y11)
	VZEROUPPER
	RET

// func axpyRows2AVX2(o *float32, ldo int, p *float32, ldp int, v *float32, ldv, nk int)
TEXT ·axpyRows2AVX2(SB), NOSPLIT, $0-56
	OARGS
	MOVQ DI, AX
	LOADO(Y0, Y1, Y2, Y3)
	LOADO(Y4, Y5, Y6, Y7)

row:
	P2
	V2((SI), Y0, Y4)
	V2(32(SI), Y1, Y5)
	V2(64(SI), Y2, Y6)
	V2(96(SI), Y3, Y7)
	NEXTV
	JNZ row

	MOVQ DI, AX
	SAVEO(Y0, Y1, Y2, Y3)
	SAVEO(Y4, Y5, Y6, Y7)
	VZEROUPPER
	RET

// func axpyRows1AVX2(o *float32, ldo int, p *float32, ldp int, v *float32, ldv, nk int)
TEXT ·axpyRows1AVX2(SB), NOSPLIT, $0-56
	OARGS
	MOVQ DI, AX
	LOADO(Y0, Y1, Y2, Y3)

row:
	P1
	V1((SI), Y0)
	V1(32(SI), Y1)
	V1(64(SI), Y2)
	V1(96(SI), Y3)
	NEXTV
	JNZ row

	MOVQ DI, AX
	SAVEO(Y0, Y1, Y2, Y3)
	VZEROUPPER
	RET

// func axpyRest1AVX2(o *float32, ldo int, p *float32, ldp int, v *float32, ldv, nk, width int)
// One row, width 1 to 8.
TEXT ·axpyRest1AVX2(SB), NOSPLIT, $0-64
	OARGS
	MOVQ       width+56(FP), AX
	SHLQ       $2, AX
	LEAQ       lanes<>+32(SB), R11
	SUBQ       AX, R11
	VMOVDQU    (R11), Y15
	VMASKMOVPS (DI), Y15, Y0

row:
	VBROADCASTSS (R8), Y12
	VMASKMOVPS   (SI), Y15, Y1
	VFMADD231PS  Y1, Y12, Y0
	NEXTV
	JNZ          row

	VMASKMOVPS Y0, Y15, (DI)
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
