//go:build !purego

#include "textflag.h"

// func scaledMulAVX512(dst *float32, alpha float32, x, y *float32, n int)
//	for i := range n { dst[i] = alpha * x[i] * y[i] }
TEXT ·scaledMulAVX512(SB), NOSPLIT, $0-40
	MOVQ         dst+0(FP), DI
	VBROADCASTSS alpha+8(FP), Z0
	MOVQ         x+16(FP), SI
	MOVQ         y+24(FP), DX
	MOVQ         n+32(FP), CX

one:
	VMULPS  (SI), Z0, Z1
	VMULPS  (DX), Z1, Z1
	VMOVUPS Z1, (DI)
	ADDQ    $64, SI
	ADDQ    $64, DX
	ADDQ    $64, DI
	SUBQ    $16, CX
	JNZ     one
	VZEROUPPER
	RET

// func gatedAVX512(dst, gate, up *float32, n int)
//	for i := range n { dst[i] = gate[i] / (1 + dst[i]) * up[i] }
TEXT ·gatedAVX512(SB), NOSPLIT, $0-32
	MOVQ         dst+0(FP), DI
	MOVQ         gate+8(FP), SI
	MOVQ         up+16(FP), DX
	MOVQ         n+24(FP), CX
	MOVL         $0x3f800000, AX // 1.0
	MOVQ         AX, X0
	VBROADCASTSS X0, Z0

one:
	VADDPS  (DI), Z0, Z1
	VMOVUPS (SI), Z2
	VDIVPS  Z1, Z2, Z1
	VMULPS  (DX), Z1, Z1
	VMOVUPS Z1, (DI)
	ADDQ    $64, SI
	ADDQ    $64, DX
	ADDQ    $64, DI
	SUBQ    $16, CX
	JNZ     one
	VZEROUPPER
	RET
