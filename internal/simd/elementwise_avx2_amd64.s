//go:build !purego

#include "textflag.h"

// func scaledMulAVX2(dst *float32, alpha float32, x, y *float32, n int)
//	for i := range n { dst[i] = alpha * x[i] * y[i] }
TEXT ·scaledMulAVX2(SB), NOSPLIT, $0-40
	MOVQ         dst+0(FP), DI
	VBROADCASTSS alpha+8(FP), Y0
	MOVQ         x+16(FP), SI
	MOVQ         y+24(FP), DX
	MOVQ         n+32(FP), CX

one:
	VMULPS  (SI), Y0, Y1
	VMULPS  (DX), Y1, Y1
	VMOVUPS Y1, (DI)
	ADDQ    $32, SI
	ADDQ    $32, DX
	ADDQ    $32, DI
	SUBQ    $8, CX
	JNZ     one
	VZEROUPPER
	RET

// func gatedAVX2(dst, gate, up *float32, n int)
//	for i := range n { dst[i] = gate[i] / (1 + dst[i]) * up[i] }
TEXT ·gatedAVX2(SB), NOSPLIT, $0-32
	MOVQ         dst+0(FP), DI
	MOVQ         gate+8(FP), SI
	MOVQ         up+16(FP), DX
	MOVQ         n+24(FP), CX
	MOVL         $0x3f800000, AX // 1.0
	MOVQ         AX, X0
	VBROADCASTSS X0, Y0

one:
	VADDPS  (DI), Y0, Y1
	VMOVUPS (SI), Y2
	VDIVPS  Y1, Y2, Y1
	VMULPS  (DX), Y1, Y1
	VMOVUPS Y1, (DI)
	ADDQ    $32, SI
	ADDQ    $32, DX
	ADDQ    $32, DI
	SUBQ    $8, CX
	JNZ     one
	VZEROUPPER
	RET
