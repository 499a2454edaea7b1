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

// func decodeF16AVX2(dst *float32, src *F16, n int)
TEXT ·decodeF16AVX2(SB), NOSPLIT, $0-24
	ARGS

loop:
	VCVTPH2PS (SI), Y0
	VCVTPH2PS 16(SI), Y1
	VMOVUPS   Y0, (DI)
	VMOVUPS   Y1, 32(DI)
	NEXT(64, 32)
	JNZ       loop
	VZEROUPPER
	RET

// func decodeBF16AVX2(dst *float32, src *BF16, n int)
//	dst[i] = frombits(src[i] << 16)
TEXT ·decodeBF16AVX2(SB), NOSPLIT, $0-24
	ARGS

loop:
	VPMOVZXWD (SI), Y0
	VPMOVZXWD 16(SI), Y1
	VPSLLD    $16, Y0, Y0
	VPSLLD    $16, Y1, Y1
	VMOVUPS   Y0, (DI)
	VMOVUPS   Y1, 32(DI)
	NEXT(64, 32)
	JNZ       loop
	VZEROUPPER
	RET

// func decodeE4M3AVX2(dst *float32, src *E4M3, n int)
//	h := sign(src[i]) << 15 | src[i] & 0x7f << 7 // an F16 of 2⁻⁸ times the value, subnormals included
//	if src[i]&0x7f == 0x7f { h |= 0x7fff }       // NaN
//	dst[i] = 256 * h.Float32()
TEXT ·decodeE4M3AVX2(SB), NOSPLIT, $0-24
	ARGS
	VPBROADCASTW e4m3<>+0(SB), Y1
	VPBROADCASTW e4m3<>+2(SB), Y2
	VBROADCASTSS e4m3<>+4(SB), Y3

loop:
	VPMOVSXBW    (SI), Y0    // two copies of the sign above the exponent
	VPSLLW       $7, Y0, Y0
	VPAND        Y1, Y0, Y0  // bits 15 and 13 to 7
	VPOR         Y2, Y0, Y4
	VPCMPEQW     Y1, Y4, Y4
	VPSRLW       $1, Y4, Y4
	VPOR         Y4, Y0, Y0
	VEXTRACTI128 $1, Y0, X5
	VCVTPH2PS    X0, Y0
	VCVTPH2PS    X5, Y5
	VMULPS       Y3, Y0, Y0
	VMULPS       Y3, Y5, Y5
	VMOVUPS      Y0, (DI)
	VMOVUPS      Y5, 32(DI)
	NEXT(64, 16)
	JNZ          loop
	VZEROUPPER
	RET

// func encodeF16AVX2(dst *F16, src *float32, n int)
TEXT ·encodeF16AVX2(SB), NOSPLIT, $0-24
	ARGS

loop:
	VMOVUPS   (SI), Y0
	VMOVUPS   32(SI), Y1
	VCVTPS2PH $0, Y0, (DI) // 0: to nearest, ties to even
	VCVTPS2PH $0, Y1, 16(DI)
	NEXT(32, 64)
	JNZ       loop
	VZEROUPPER
	RET

// BF16(y, a, b): y = the BF16 of y, as 32-bit integers; a and b are scratch.
//	b := bits(y)
//	code = (b + 0x7fff + b>>16&1) >> 16
//	if y is NaN { code = b>>16 | 0x40 }
#define BF16(y, a, b) \
	VPSRLD    $16, y, a    \
	VPAND     Y13, a, b    \
	VPADDD    Y14, b, b    \
	VPADDD    y, b, b      \
	VPSRLD    $16, b, b    \
	VPOR      Y15, a, a    \
	VCMPPS    $3, y, y, y  \
	VBLENDVPS y, a, b, y

// func encodeBF16AVX2(dst *BF16, src *float32, n int)
TEXT ·encodeBF16AVX2(SB), NOSPLIT, $0-24
	ARGS
	VPBROADCASTD bf16<>+0(SB), Y13
	VPBROADCASTD bf16<>+4(SB), Y14
	VPBROADCASTD bf16<>+8(SB), Y15

loop:
	VMOVDQU   (SI), Y0
	VMOVDQU   32(SI), Y1
	BF16(Y0, Y2, Y3)
	BF16(Y1, Y4, Y5)
	VPACKUSDW Y1, Y0, Y0
	VPERMQ    $0xd8, Y0, Y0 // packing works within halves of a register
	VMOVDQU   Y0, (DI)
	NEXT(32, 64)
	JNZ       loop
	VZEROUPPER
	RET

// E4M3(y, a, b, c): y = the E4M3 of y, as 32-bit integers; a, b and c are scratch.
//	a := min(abs(y), 448)
//	b := bits(a) - (127-7)<<23
//	code := (b + 0x7ffff + b>>20&1) >> 20
//	if a < 2⁻⁶ { code = bits(a+16384) - bits(16384) }
//	if y is NaN { code = 0x7f }
//	code |= bits(y)>>24 & 0x80
#define E4M3(y, a, b, c) \
	VANDPS    Y7, y, a     \
	VMINPS    Y8, a, a     \
	VPSUBD    Y9, a, b     \
	VPSRLD    $20, b, c    \
	VPAND     Y13, c, c    \
	VPADDD    Y10, c, c    \
	VPADDD    c, b, b      \
	VPSRLD    $20, b, b    \
	VCMPPS    $1, Y11, a, c \
	VADDPS    Y12, a, a    \
	VPSUBD    Y12, a, a    \
	VBLENDVPS c, a, b, b   \
	VCMPPS    $3, y, y, c  \
	VBLENDVPS c, Y14, b, b \
	VPSRLD    $24, y, y    \
	VPAND     Y15, y, y    \
	VPOR      b, y, y

// func encodeE4M3AVX2(dst *E4M3, src *float32, n int)
TEXT ·encodeE4M3AVX2(SB), NOSPLIT, $0-24
	ARGS
	VPBROADCASTD encode<>+0(SB), Y7
	VPBROADCASTD encode<>+4(SB), Y8
	VPBROADCASTD encode<>+8(SB), Y9
	VPBROADCASTD encode<>+12(SB), Y10
	VPBROADCASTD encode<>+16(SB), Y11
	VPBROADCASTD encode<>+20(SB), Y12
	VPBROADCASTD encode<>+24(SB), Y13
	VPBROADCASTD encode<>+28(SB), Y14
	VPBROADCASTD encode<>+32(SB), Y15

loop:
	VMOVDQU      (SI), Y0
	VMOVDQU      32(SI), Y1
	E4M3(Y0, Y2, Y3, Y4)
	E4M3(Y1, Y2, Y3, Y4)
	VPACKUSDW    Y1, Y0, Y0
	VPERMQ       $0xd8, Y0, Y0 // packing works within halves of a register
	VEXTRACTI128 $1, Y0, X1
	VPACKUSWB    X1, X0, X0
	VMOVDQU      X0, (DI)
	NEXT(16, 64)
	JNZ          loop
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
