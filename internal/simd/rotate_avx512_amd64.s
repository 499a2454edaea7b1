//go:build !purego

#include "textflag.h"

// 0, 0, 1, 1, …: each angle serves both elements of a pair.
DATA twiceAVX512<>+0(SB)/8, $0x0000000000000000
DATA twiceAVX512<>+8(SB)/8, $0x0000000100000001
DATA twiceAVX512<>+16(SB)/8, $0x0000000200000002
DATA twiceAVX512<>+24(SB)/8, $0x0000000300000003
DATA twiceAVX512<>+32(SB)/8, $0x0000000400000004
DATA twiceAVX512<>+40(SB)/8, $0x0000000500000005
DATA twiceAVX512<>+48(SB)/8, $0x0000000600000006
DATA twiceAVX512<>+56(SB)/8, $0x0000000700000007
GLOBL twiceAVX512<>(SB), RODATA|NOPTR, $64

// func rotateAdjacentAVX512(out, x, cos, sin *float32, pairs int)
//	for i := range pairs { out[2i], out[2i+1] = x[2i]*cos[i] - x[2i+1]*sin[i], x[2i+1]*cos[i] + x[2i]*sin[i] }
TEXT ·rotateAdjacentAVX512(SB), NOSPLIT, $0-40
	MOVQ    out+0(FP), DI
	MOVQ    x+8(FP), SI
	MOVQ    cos+16(FP), DX
	MOVQ    sin+24(FP), BX
	MOVQ    pairs+32(FP), CX
	VMOVUPS twiceAVX512<>(SB), Z0

one:
	VMOVUPS        (DX), Y1
	VMOVUPS        (BX), Y2
	VPERMPS        Z1, Z0, Z1
	VPERMPS        Z2, Z0, Z2
	VMOVUPS        (SI), Z3
	VPERMILPS      $0xb1, Z3, Z4 // the partners
	VMULPS         Z4, Z2, Z4
	VFMADDSUB213PS Z4, Z1, Z3 // x·cos - partner·sin at even places, + at odd ones
	VMOVUPS        Z3, (DI)
	ADDQ           $64, SI
	ADDQ           $64, DI
	ADDQ           $32, DX
	ADDQ           $32, BX
	SUBQ           $8, CX
	JNZ            one
	VZEROUPPER
	RET

// func rotateHalvesAVX512(out, x, cos, sin *float32, pairs, half int)
//	for i := range pairs { out[i], out[half+i] = x[i]*cos[i] - x[half+i]*sin[i], x[half+i]*cos[i] + x[i]*sin[i] }
TEXT ·rotateHalvesAVX512(SB), NOSPLIT, $0-48
	MOVQ out+0(FP), DI
	MOVQ x+8(FP), SI
	MOVQ cos+16(FP), DX
	MOVQ sin+24(FP), BX
	MOVQ pairs+32(FP), CX
	MOVQ half+40(FP), R8

one:
	VMOVUPS        (DX), Z0
	VMOVUPS        (BX), Z1
	VMOVUPS        (SI), Z2
	VMOVUPS        (SI)(R8*4), Z3
	VMULPS         Z1, Z3, Z4
	VMULPS         Z1, Z2, Z5
	VFMSUB231PS    Z0, Z2, Z4
	VFMADD231PS    Z0, Z3, Z5
	VMOVUPS        Z4, (DI)
	VMOVUPS        Z5, (DI)(R8*4)
	ADDQ           $64, SI
	ADDQ           $64, DI
	ADDQ           $64, DX
	ADDQ           $64, BX
	SUBQ           $16, CX
	JNZ            one
	VZEROUPPER
	RET
