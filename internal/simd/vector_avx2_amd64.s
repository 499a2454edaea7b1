//go:build !purego

#include "textflag.h"

// One vector at a time (8 lanes). All loops have the shape: full vectors, then the rest under a mask.

// TAILMASK(n, tmp, y): y = all ones in the low n lanes, n < 8.
#define TAILMASK(n, tmp, y) \
	LEAQ    lanes<>+32(SB), tmp \
	SHLQ    $2, n               \
	SUBQ    n, tmp              \
	VMOVDQU (tmp), y

// FOLD(op, y, x, u): op over the 8 lanes of y into the low lane of x, its lower part; u is scratch (xmm).
#define FOLD(op, y, x, u) \
	VEXTRACTF128 $1, y, u \
	op           u, x, x  \
	VPERMILPD    $1, x, u \
	op           u, x, x  \
	VMOVSHDUP    x, u     \
	op           u, x, x

// func dotAVX2(a, b *float32, n int) float32
//	for i := range n { sum += a[i] * b[i] }
TEXT ·dotAVX2(SB), NOSPLIT, $0-28
	MOVQ   a+0(FP), SI
	MOVQ   b+8(FP), DI
	MOVQ   n+16(FP), CX
	VXORPS X0, X0, X0
	VXORPS X1, X1, X1
	VXORPS X2, X2, X2
	VXORPS X3, X3, X3

four:
	CMPQ        CX, $32
	JLT         one
	VMOVUPS     (SI), Y4
	VMOVUPS     32(SI), Y5
	VMOVUPS     64(SI), Y6
	VMOVUPS     96(SI), Y7
	VFMADD231PS (DI), Y4, Y0
	VFMADD231PS 32(DI), Y5, Y1
	VFMADD231PS 64(DI), Y6, Y2
	VFMADD231PS 96(DI), Y7, Y3
	ADDQ        $128, SI
	ADDQ        $128, DI
	SUBQ        $32, CX
	JMP         four

one:
	CMPQ        CX, $8
	JLT         rest
	VMOVUPS     (SI), Y4
	VFMADD231PS (DI), Y4, Y0
	ADDQ        $32, SI
	ADDQ        $32, DI
	SUBQ        $8, CX
	JMP         one

rest:
	TAILMASK(CX, AX, Y6)
	VMASKMOVPS  (SI), Y6, Y4
	VMASKMOVPS  (DI), Y6, Y5
	VFMADD231PS Y5, Y4, Y1
	VADDPS      Y1, Y0, Y0
	VADDPS      Y3, Y2, Y2
	VADDPS      Y2, Y0, Y0
	FOLD(VADDPS, Y0, X0, X1)
	VMOVSS      X0, ret+24(FP)
	VZEROUPPER
	RET

// func axpyAVX2(alpha float32, x, y *float32, n int)
//	for i := range n { y[i] += alpha * x[i] }
TEXT ·axpyAVX2(SB), NOSPLIT, $0-32
	VBROADCASTSS alpha+0(FP), Y0
	MOVQ         x+8(FP), SI
	MOVQ         y+16(FP), DI
	MOVQ         n+24(FP), CX

one:
	CMPQ        CX, $8
	JLT         rest
	VMOVUPS     (DI), Y1
	VFMADD231PS (SI), Y0, Y1
	VMOVUPS     Y1, (DI)
	ADDQ        $32, SI
	ADDQ        $32, DI
	SUBQ        $8, CX
	JMP         one

rest:
	TAILMASK(CX, AX, Y3)
	VMASKMOVPS  (DI), Y3, Y1
	VMASKMOVPS  (SI), Y3, Y2
	VFMADD231PS Y2, Y0, Y1
	VMASKMOVPS  Y1, Y3, (DI)
	VZEROUPPER
	RET

// func scaleAVX2(alpha float32, x *float32, n int)
//	for i := range n { x[i] *= alpha }
TEXT ·scaleAVX2(SB), NOSPLIT, $0-24
	VBROADCASTSS alpha+0(FP), Y0
	MOVQ         x+8(FP), DI
	MOVQ         n+16(FP), CX

one:
	CMPQ    CX, $8
	JLT     rest
	VMULPS  (DI), Y0, Y1
	VMOVUPS Y1, (DI)
	ADDQ    $32, DI
	SUBQ    $8, CX
	JMP     one

rest:
	TAILMASK(CX, AX, Y3)
	VMASKMOVPS (DI), Y3, Y1
	VMULPS     Y1, Y0, Y1
	VMASKMOVPS Y1, Y3, (DI)
	VZEROUPPER
	RET

// func maxAVX2(x *float32, n int) float32
//	for i := range n { m = max(m, x[i]) }, NaN if any x[i] is
TEXT ·maxAVX2(SB), NOSPLIT, $0-20
	MOVQ         x+0(FP), SI
	MOVQ         n+8(FP), CX
	VBROADCASTSS minusInf<>(SB), Y0
	VMOVAPS      Y0, Y4
	VXORPS       X2, X2, X2 // lanes that have seen a NaN

one:
	CMPQ    CX, $8
	JLT     rest
	VMOVUPS (SI), Y1
	VCMPPS  $3, Y1, Y1, Y3 // 3: unordered
	VORPS   Y3, Y2, Y2
	VMAXPS  Y1, Y0, Y0
	ADDQ    $32, SI
	SUBQ    $8, CX
	JMP     one

rest:
	TAILMASK(CX, AX, Y5)
	VMASKMOVPS (SI), Y5, Y1
	VBLENDVPS  Y5, Y1, Y4, Y1 // the other lanes: -Inf
	VCMPPS     $3, Y1, Y1, Y3
	VORPS      Y3, Y2, Y2
	VMAXPS     Y1, Y0, Y0
	FOLD(VMAXPS, Y0, X0, X1)
	VMOVMSKPS  Y2, AX
	TESTL      AX, AX
	JZ         done
	VMOVSS     aNaN<>(SB), X0

done:
	VMOVSS X0, ret+16(FP)
	VZEROUPPER
	RET

// EXP: Y1 = exp(Y1 - Y15) by way of Y2, Y3; the constants come from memory.
//
// exp(x) = 2ⁿ·exp(r) with n = round(x·log2 e) and r = x - n·ln 2 in [-ln2/2, ln2/2], ln 2 in two parts; exp(r) is its Taylor
// series through r⁷ (truncation error 5e-9). x is first clamped to where the result has become 0 or +Inf. The factor 2ⁿ may be no
// float32, so it is applied as 2^⌊n/2⌋ and 2^(n-⌊n/2⌋).
#define EXP \
	VSUBPS       Y15, Y1, Y1          \
	VMOVUPS      exp<>+0(SB), Y2      \
	VMAXPS       Y1, Y2, Y1           \
	VMOVUPS      exp<>+32(SB), Y2     \
	VMINPS       Y1, Y2, Y1           \
	VMULPS       exp<>+64(SB), Y1, Y2 \
	VROUNDPS     $8, Y2, Y2           \
	VFNMADD231PS Y14, Y2, Y1          \
	VFNMADD231PS Y13, Y2, Y1          \
	VMOVAPS      Y12, Y3              \
	VFMADD213PS  Y11, Y1, Y3          \
	VFMADD213PS  Y10, Y1, Y3          \
	VFMADD213PS  Y9, Y1, Y3           \
	VFMADD213PS  Y8, Y1, Y3           \
	VFMADD213PS  Y7, Y1, Y3           \
	VFMADD213PS  Y6, Y1, Y3           \
	VFMADD213PS  Y6, Y1, Y3           \
	VCVTPS2DQ    Y2, Y2               \
	VPSRAD       $1, Y2, Y1           \
	VPSUBD       Y1, Y2, Y2           \
	VPSLLD       $23, Y1, Y1          \
	VPSLLD       $23, Y2, Y2          \
	VPADDD       Y6, Y1, Y1           \
	VPADDD       Y6, Y2, Y2           \
	VMULPS       Y1, Y3, Y1           \
	VMULPS       Y2, Y1, Y1

// func expSumAVX2(s *float32, n int, m float32) float32
//	for i := range n { s[i] = exp(s[i] - m); sum += s[i] }
TEXT ·expSumAVX2(SB), NOSPLIT, $0-28
	MOVQ         s+0(FP), DI
	MOVQ         n+8(FP), CX
	VBROADCASTSS m+16(FP), Y15
	VMOVUPS      exp<>+96(SB), Y14  // ln 2
	VMOVUPS      exp<>+128(SB), Y13 // ln 2 - float32(ln 2)
	VMOVUPS      exp<>+160(SB), Y12 // 1/7!
	VMOVUPS      exp<>+192(SB), Y11 // 1/6!
	VMOVUPS      exp<>+224(SB), Y10 // 1/5!
	VMOVUPS      exp<>+256(SB), Y9  // 1/4!
	VMOVUPS      exp<>+288(SB), Y8  // 1/3!
	VMOVUPS      exp<>+320(SB), Y7  // 1/2!
	VMOVUPS      exp<>+352(SB), Y6  // 1, also as the exponent bias in place
	VXORPS       X0, X0, X0

one:
	CMPQ    CX, $8
	JLT     rest
	VMOVUPS (DI), Y1
	EXP
	VMOVUPS Y1, (DI)
	VADDPS  Y1, Y0, Y0
	ADDQ    $32, DI
	SUBQ    $8, CX
	JMP     one

rest:
	TAILMASK(CX, AX, Y5)
	VMASKMOVPS (DI), Y5, Y1
	EXP
	VMASKMOVPS Y1, Y5, (DI)
	VANDPS     Y1, Y5, Y1
	VADDPS     Y1, Y0, Y0
	FOLD(VADDPS, Y0, X0, X1)
	VMOVSS     X0, ret+24(FP)
	VZEROUPPER
	RET

DATA minusInf<>+0(SB)/4, $0xff800000
GLOBL minusInf<>(SB), RODATA|NOPTR, $4

DATA aNaN<>+0(SB)/4, $0x7fc00000
GLOBL aNaN<>(SB), RODATA|NOPTR, $4

DATA lanes<>+0(SB)/8, $-1
DATA lanes<>+8(SB)/8, $-1
DATA lanes<>+16(SB)/8, $-1
DATA lanes<>+24(SB)/8, $-1
DATA lanes<>+32(SB)/8, $0
DATA lanes<>+40(SB)/8, $0
DATA lanes<>+48(SB)/8, $0
DATA lanes<>+56(SB)/8, $0
GLOBL lanes<>(SB), RODATA|NOPTR, $64

// EIGHT(off, pair): eight lanes of a float32, given as two copies of its bits.
#define EIGHT(off, pair) \
	DATA exp<>+(off+0)(SB)/8, pair  \
	DATA exp<>+(off+8)(SB)/8, pair  \
	DATA exp<>+(off+16)(SB)/8, pair \
	DATA exp<>+(off+24)(SB)/8, pair

EIGHT(0, $0xc2d20000c2d20000) // -105: exp is below half of the smallest subnormal
EIGHT(32, $0x42b2000042b20000) // 89: exp is above the largest float32
EIGHT(64, $0x3fb8aa3b3fb8aa3b)
EIGHT(96, $0x3f3172183f317218)
EIGHT(128, $0xb102e308b102e308)
EIGHT(160, $0x39500d0139500d01)
EIGHT(192, $0x3ab60b613ab60b61)
EIGHT(224, $0x3c0888893c088889)
EIGHT(256, $0x3d2aaaab3d2aaaab)
EIGHT(288, $0x3e2aaaab3e2aaaab)
EIGHT(320, $0x3f0000003f000000)
EIGHT(352, $0x3f8000003f800000)
GLOBL exp<>(SB), RODATA|NOPTR, $384
