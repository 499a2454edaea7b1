//go:build !purego

#include "textflag.h"

// axpyRows: o[i][c] += Σ_j p[i][j]·v[j][c] for a few rows i, nk rows j and up to 64 columns c
//
//	for j := range nk { o[i][0:width] += p[i][j] * v[j][0:width] } // o[i] stays in registers

// OARGS: o DI by R13, p R8 by R9, v SI by DX, nk CX, K1-K4 the masks of the four vectors of a row.
#define OARGS \
	MOVQ  o+0(FP), DI       \
	MOVQ  ldo+8(FP), R13    \
	SHLQ  $2, R13           \
	MOVQ  p+16(FP), R8      \
	MOVQ  ldp+24(FP), R9    \
	SHLQ  $2, R9            \
	LEAQ  (R9)(R9*2), R10   \
	LEAQ  (R9)(R9*4), R11   \
	MOVQ  v+32(FP), SI      \
	MOVQ  ldv+40(FP), DX    \
	SHLQ  $2, DX            \
	MOVQ  nk+48(FP), CX     \
	MOVQ  width+56(FP), BX  \
	MOVQ  $-1, AX           \
	BZHIQ BX, AX, AX        \
	KMOVW AX, K1            \
	SHRQ  $16, AX           \
	KMOVW AX, K2            \
	SHRQ  $16, AX           \
	KMOVW AX, K3            \
	SHRQ  $16, AX           \
	KMOVW AX, K4

// LOADO, SAVEO(a, b, c, d): four vectors of o's row at AX, which moves on to the next row.
#define LOADO(a, b, c, d) \
	VMOVUPS.Z (AX), K1, a    \
	VMOVUPS.Z 64(AX), K2, b  \
	VMOVUPS.Z 128(AX), K3, c \
	VMOVUPS.Z 192(AX), K4, d \
	ADDQ      R13, AX

#define SAVEO(a, b, c, d) \
	VMOVUPS a, K1, (AX)    \
	VMOVUPS b, K2, 64(AX)  \
	VMOVUPS c, K3, 128(AX) \
	VMOVUPS d, K4, 192(AX) \
	ADDQ    R13, AX

#define LOADV \
	VMOVUPS.Z (SI), K1, Z24    \
	VMOVUPS.Z 64(SI), K2, Z25  \
	VMOVUPS.Z 128(SI), K3, Z26 \
	VMOVUPS.Z 192(SI), K4, Z27

#define ADDV(p, a, b, c, d) \
	VBROADCASTSS p, Z28      \
	VFMADD231PS  Z24, Z28, a \
	VFMADD231PS  Z25, Z28, b \
	VFMADD231PS  Z26, Z28, c \
	VFMADD231PS  Z27, Z28, d

#define NEXTV \
	ADDQ $4, R8 \
	ADDQ DX, SI \
	DECQ CX

// func axpyRows6AVX512(o *float32, ldo int, p *float32, ldp int, v *float32, ldv, nk, width int)
TEXT ·axpyRows6AVX512(SB), NOSPLIT, $0-64
	OARGS
	MOVQ DI, AX
	LOADO(Z0, Z1, Z2, Z3)
	LOADO(Z4, Z5, Z6, Z7)
	LOADO(Z8, Z9, Z10, Z11)
	LOADO(Z12, Z13, Z14, Z15)
	LOADO(Z16, Z17, Z18, Z19)
	LOADO(Z20, Z21, Z22, Z23)

row:
	LOADV
	ADDV((R8), Z0, Z1, Z2, Z3)
	ADDV((R8)(R9*1), Z4, Z5, Z6, Z7)
	ADDV((R8)(R9*2), Z8, Z9, Z10, Z11)
	ADDV((R8)(R10*1), Z12, Z13, Z14, Z15)
	ADDV((R8)(R9*4), Z16, Z17, Z18, Z19)
	ADDV((R8)(R11*1), Z20, Z21, Z22, Z23)
	NEXTV
	JNZ row

	MOVQ DI, AX
	SAVEO(Z0, Z1, Z2, Z3)
	SAVEO(Z4, Z5, Z6, Z7)
	SAVEO(Z8, Z9, Z10, Z11)
	SAVEO(Z12, Z13, Z14, Z15)
	SAVEO(Z16, Z17, Z18, Z19)
	SAVEO(Z20, Z21, Z22, Z23)
	VZEROUPPER
	RET

// func axpyRows4AVX512(o *float32, ldo int, p *float32, ldp int, v *float32, ldv, nk, width int)
TEXT ·axpyRows4AVX512(SB), NOSPLIT, $0-64
	OARGS
	MOVQ DI, AX
	LOADO(Z0, Z1, Z2, Z3)
	LOADO(Z4, Z5, Z6, Z7)
	LOADO(Z8, Z9, Z10, Z11)
	LOADO(Z12, Z13, Z14, Z15)

row:
	LOADV
	ADDV((R8), Z0, Z1, Z2, Z3)
	ADDV((R8)(R9*1), Z4, Z5, Z6, Z7)
	ADDV((R8)(R9*2), Z8, Z9, Z10, Z11)
	ADDV((R8)(R10*1), Z12, Z13, Z14, Z15)
	NEXTV
	JNZ row

	MOVQ DI, AX
	SAVEO(Z0, Z1, Z2, Z3)
	SAVEO(Z4, Z5, Z6, Z7)
	SAVEO(Z8, Z9, Z10, Z11)
	SAVEO(Z12, Z13, Z14, Z15)
	VZEROUPPER
	RET

// func axpyRows2AVX512(o *float32, ldo int, p *float32, ldp int, v *float32, ldv, nk, width int)
TEXT ·axpyRows2AVX512(SB), NOSPLIT, $0-64
	OARGS
	MOVQ DI, AX
	LOADO(Z0, Z1, Z2, Z3)
	LOADO(Z4, Z5, Z6, Z7)

row:
	LOADV
	ADDV((R8), Z0, Z1, Z2, Z3)
	ADDV((R8)(R9*1), Z4, Z5, Z6, Z7)
	NEXTV
	JNZ row

	MOVQ DI, AX
	SAVEO(Z0, Z1, Z2, Z3)
	SAVEO(Z4, Z5, Z6, Z7)
	VZEROUPPER
	RET

// func axpyRows1AVX512(o *float32, ldo int, p *float32, ldp int, v *float32, ldv, nk, width int)
TEXT ·axpyRows1AVX512(SB), NOSPLIT, $0-64
	OARGS
	MOVQ DI, AX
	LOADO(Z0, Z1, Z2, Z3)

row:
	LOADV
	ADDV((R8), Z0, Z1, Z2, Z3)
	NEXTV
	JNZ row

	MOVQ DI, AX
	SAVEO(Z0, Z1, Z2, Z3)
	VZEROUPPER
	RET
