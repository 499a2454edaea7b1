//go:build !purego

#include "textflag.h"

// Each kernel converts 16 elements per turn; n is a positive multiple of 16.

#define ARGS \
	MOVQ dst+0(FP), DI \
	MOVQ src+8(FP), SI \
	MOVQ n+16(FP), CX

// NEXT(dstBytes, srcBytes)
#define NEXT(dstBytes, srcBytes) \
	ADDQ $dstBytes, DI \
	ADDQ $srcBytes, SI \
	SUBQ $16, CX

// func decodeF16AVX512(dst *float32, src *F16, n int)
TEXT ·decodeF16AVX512(SB), NOSPLIT, $0-24
	ARGS

loop:
	VCVTPH2PS (SI), Z0
	VMOVUPS   Z0, (DI)
	NEXT(64, 32)
	JNZ       loop
	VZEROUPPER
	RET

// func decodeBF16AVX512(dst *float32, src *BF16, n int)
//	dst[i] = frombits(src[i] << 16)
TEXT ·decodeBF16AVX512(SB), NOSPLIT, $0-24
	ARGS

loop:
	VPMOVZXWD (SI), Z0
	VPSLLD    $16, Z0, Z0
	VMOVUPS   Z0, (DI)
	NEXT(64, 32)
	JNZ       loop
	VZEROUPPER
	RET

// func decodeE4M3AVX512(dst *float32, src *E4M3, n int)
//	h := sign(src[i]) << 15 | src[i] & 0x7f << 7 // an F16 of 2⁻⁸ times the value, subnormals included
//	if src[i]&0x7f == 0x7f { h |= 0x7fff }       // NaN
//	dst[i] = 256 * h.Float32()
TEXT ·decodeE4M3AVX512(SB), NOSPLIT, $0-24
	ARGS
	VPBROADCASTW e4m3<>+0(SB), Y1
	VPBROADCASTW e4m3<>+2(SB), Y2
	VBROADCASTSS e4m3<>+4(SB), Z3

loop:
	VPMOVSXBW (SI), Y0    // two copies of the sign above the exponent
	VPSLLW    $7, Y0, Y0
	VPAND     Y1, Y0, Y0  // bits 15 and 13 to 7
	VPOR      Y2, Y0, Y4
	VPCMPEQW  Y1, Y4, Y4
	VPSRLW    $1, Y4, Y4
	VPOR      Y4, Y0, Y0
	VCVTPH2PS Y0, Z0
	VMULPS    Z3, Z0, Z0
	VMOVUPS   Z0, (DI)
	NEXT(64, 16)
	JNZ       loop
	VZEROUPPER
	RET

// func encodeF16AVX512(dst *F16, src *float32, n int)
TEXT ·encodeF16AVX512(SB), NOSPLIT, $0-24
	ARGS

loop:
	VMOVUPS   (SI), Z0
	VCVTPS2PH $0, Z0, (DI) // 0: to nearest, ties to even
	NEXT(32, 64)
	JNZ       loop
	VZEROUPPER
	RET

// func encodeBF16AVX512(dst *BF16, src *float32, n int)
//	b := bits(src[i])
//	dst[i] = (b + 0x7fff + b>>16&1) >> 16
//	if src[i] is NaN { dst[i] = b>>16 | 0x40 }
TEXT ·encodeBF16AVX512(SB), NOSPLIT, $0-24
	ARGS
	VPBROADCASTD bf16<>+0(SB), Z1
	VPBROADCASTD bf16<>+4(SB), Z2
	VPBROADCASTD bf16<>+8(SB), Z3

loop:
	VMOVDQU32 (SI), Z0
	VCMPPS    $3, Z0, Z0, K1 // 3: unordered
	VPSRLD    $16, Z0, Z4
	VPANDD    Z1, Z4, Z5
	VPADDD    Z2, Z5, Z5
	VPADDD    Z0, Z5, Z5
	VPSRLD    $16, Z5, Z5
	VPORD     Z3, Z4, K1, Z5
	VPMOVDW   Z5, (DI)
	NEXT(32, 64)
	JNZ       loop
	VZEROUPPER
	RET

// func encodeE4M3AVX512(dst *E4M3, src *float32, n int)
//	a := min(abs(src[i]), 448)
//	b := bits(a) - (127-7)<<23
//	code := (b + 0x7ffff + b>>20&1) >> 20
//	if a < 2⁻⁶ { code = bits(a+16384) - bits(16384) }
//	if src[i] is NaN { code = 0x7f }
//	dst[i] = code | bits(src[i])>>24&0x80
TEXT ·encodeE4M3AVX512(SB), NOSPLIT, $0-24
	ARGS
	VPBROADCASTD encode<>+0(SB), Z16
	VPBROADCASTD encode<>+4(SB), Z17
	VPBROADCASTD encode<>+8(SB), Z18
	VPBROADCASTD encode<>+12(SB), Z19
	VPBROADCASTD encode<>+16(SB), Z20
	VPBROADCASTD encode<>+20(SB), Z21
	VPBROADCASTD encode<>+24(SB), Z22
	VPBROADCASTD encode<>+28(SB), Z23
	VPBROADCASTD encode<>+32(SB), Z24

loop:
	VMOVDQU32  (SI), Z0
	VCMPPS     $3, Z0, Z0, K2 // 3: unordered
	VPANDD     Z16, Z0, Z1
	VPSRLD     $24, Z0, Z0
	VPANDD     Z24, Z0, Z0
	VMINPS     Z17, Z1, Z1
	VCMPPS     $1, Z20, Z1, K1 // 1: less
	VPSUBD     Z18, Z1, Z2
	VPSRLD     $20, Z2, Z3
	VPANDD     Z22, Z3, Z3
	VPADDD     Z19, Z3, Z3
	VPADDD     Z3, Z2, Z2
	VPSRLD     $20, Z2, Z2
	VADDPS     Z21, Z1, Z1
	VPSUBD     Z21, Z1, K1, Z2
	VMOVDQA32  Z23, K2, Z2
	VPORD      Z0, Z2, Z2
	VPMOVDB    Z2, (DI)
	NEXT(16, 64)
	JNZ        loop
	VZEROUPPER
	RET

DATA e4m3<>+0(SB)/2, $0xbf80
DATA e4m3<>+2(SB)/2, $0x8000
DATA e4m3<>+4(SB)/4, $0x43800000 // 256
GLOBL e4m3<>(SB), RODATA|NOPTR, $8

DATA bf16<>+0(SB)/4, $1
DATA bf16<>+4(SB)/4, $0x7fff
DATA bf16<>+8(SB)/4, $0x40
GLOBL bf16<>(SB), RODATA|NOPTR, $12

DATA encode<>+0(SB)/4, $0x7fffffff
DATA encode<>+4(SB)/4, $0x43e00000  // 448
DATA encode<>+8(SB)/4, $0x3c000000  // (127-7)<<23
DATA encode<>+12(SB)/4, $0x7ffff
DATA encode<>+16(SB)/4, $0x3c800000 // 2⁻⁶
DATA encode<>+20(SB)/4, $0x46800000 // 16384
DATA encode<>+24(SB)/4, $1
DATA encode<>+28(SB)/4, $0x7f
DATA encode<>+32(SB)/4, $0x80
GLOBL encode<>(SB), RODATA|NOPTR, $36
