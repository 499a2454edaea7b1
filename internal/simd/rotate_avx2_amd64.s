//go:build !purego

#include "textflag.h"

// 0, 0, 1, 1, …: each angle serves both elements of a pair.
DATA twiceAVX2<>+0(SB)/8, $0x0000000000000000
DATA twiceAVX2<>+8(SB)/8, $0x0000000100000001
DATA twiceAVX2<>+16(SB)/8, $0x0000000200000002
DATA twiceAVX2<>+24(SB)/8, $0x0000000300000003
GLOBL twiceAVX2<>(SB), RODATA|NOPTR, $32

// func rotateAdjacentAVX2(out, x, cos, sin *float32, pairs int)
//	for i := range pairs { out[2i], out[2i+1] = x[2i]*cos[i] - x[2i+1]*sin[i], x[2i+1]*cos[i] + x[2i]*sin[i] }
TEXT ·rotateAdjacentAVX2(SB), NOSPLIT, $0-40
	MOVQ    out+0(FP), DI
	MOVQ    x+8(FP), SI
	MOVQ    cos+16(FP), DX
	MOVQ    sin+24(FP), BX
	MOVQ    pairs+32(FP), CX
	VMOVUPS twiceAVX2<>(SB), Y0

one:
	VMOVUPS        (DX), X1
	VMOVUPS        (BX), X2
	VPERMPS        Y1, Y0, Y1
	VPERMPS        Y2, Y0, Y2
	VMOVUPS        (SI), Y3
	VPERMILPS      $0xb1, Y3, Y4 // the partners
	VMULPS         Y4, Y2, Y4
	VFMADDSUB213PS Y4, Y1, Y3 // x·cos - partner·sin at even places, + at odd ones
	VMOVUPS        Y3, (DI)
	ADDQ           $32, SI
	ADDQ           $32, DI
	ADDQ           $16, DX
	ADDQ           $16, BX
	SUBQ           $4, CX
	JNZ            one
	VZEROUPPER
	RET

// func rotateHalvesAVX2(out, x, cos, sin *float32, pairs, half int)
//	for i := range pairs { out[i], out[half+i] = x[i]*cos[i] - x[half+i]*sin[i], x[half+i]*cos[i] + x[i]*sin[i] }
TEXT ·rotateHalvesAVX2(SB), NOSPLIT, $0-48
	MOVQ out+0(FP), DI
	MOVQ x+8(FP), SI
	MOVQ cos+16(FP), DX
	MOVQ sin+24(FP), BX
	MOVQ pairs+32(FP), CX
	MOVQ half+40(FP), R8

one:
	VMOVUPS        (DX), Y0
	VMOVUPS        (BX), Y1
	VMOVUPS        (SI), Y2
	VMOVUPS        (SI)(R8*4), Y3
	VMULPS         Y1, Y3, Y4
	VMULPS         Y1, Y2, Y5
	VFMSUB231PS    Y0, Y2, Y4
	VFMADD231PS    Y0, Y3, Y5
	VMOVUPS        Y4, (DI)
	VMOVUPS        Y5, (DI)(R8*4)
	ADDQ           $32, SI
	ADDQ           $32, DI
	ADDQ           $32, DX
	ADDQ           $32, BX
	SUBQ           $8, CX
	JNZ            one
	VZEROUPPER
	RET
