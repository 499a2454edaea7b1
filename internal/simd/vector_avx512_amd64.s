//go:build !purego

#include "textflag.h"

// One vector at a time (16 lanes). All loops have the shape: full vectors, then the rest under the mask K1.

// TAILMASK(n, tmp): K1 = the low n lanes, n < 16.
#define TAILMASK(n, tmp) \
	MOVL  $1, tmp      \
	SHLXL n, tmp, tmp  \
	DECL  tmp          \
	KMOVW tmp, K1

// FOLD(op, z, y, x, u, v): op over the 16 lanes of z into the low lane of x; y and x are its lower parts, u and v scratch (ymm, xmm).
#define FOLD(op, z, y, x, u, v) \
	VEXTRACTF64X4 $1, z, u    \
	op            u, y, y     \
	VEXTRACTF128  $1, y, v    \
	op            v, x, x     \
	VPERMILPD     $1, x, v    \
	op            v, x, x     \
	VMOVSHDUP     x, v        \
	op            v, x, x

// func dotAVX512(a, b *float32, n int) float32
//	for i := range n { sum += a[i] * b[i] }
TEXT ·dotAVX512(SB), NOSPLIT, $0-28
	MOVQ   a+0(FP), SI
	MOVQ   b+8(FP), DI
	MOVQ   n+16(FP), CX
	VXORPS X0, X0, X0
	VXORPS X1, X1, X1
	VXORPS X2, X2, X2
	VXORPS X3, X3, X3

four:
	CMPQ        CX, $64
	JLT         one
	VMOVUPS     (SI), Z4
	VMOVUPS     64(SI), Z5
	VMOVUPS     128(SI), Z6
	VMOVUPS     192(SI), Z7
	VFMADD231PS (DI), Z4, Z0
	VFMADD231PS 64(DI), Z5, Z1
	VFMADD231PS 128(DI), Z6, Z2
	VFMADD231PS 192(DI), Z7, Z3
	ADDQ        $256, SI
	ADDQ        $256, DI
	SUBQ        $64, CX
	JMP         four

one:
	CMPQ        CX, $16
	JLT         rest
	VMOVUPS     (SI), Z4
	VFMADD231PS (DI), Z4, Z0
	ADDQ        $64, SI
	ADDQ        $64, DI
	SUBQ        $16, CX
	JMP         one

rest:
	TAILMASK(CX, AX)
	VMOVUPS.Z   (SI), K1, Z4
	VMOVUPS.Z   (DI), K1, Z5
	VFMADD231PS Z5, Z4, Z1
	VADDPS      Z1, Z0, Z0
	VADDPS      Z3, Z2, Z2
	VADDPS      Z2, Z0, Z0
	FOLD(VADDPS, Z0, Y0, X0, Y1, X1)
	VMOVSS      X0, ret+24(FP)
	VZEROUPPER
	RET

// func axpyAVX512(alpha float32, x, y *float32, n int)
//	for i := range n { y[i] += alpha * x[i] }
TEXT ·axpyAVX512(SB), NOSPLIT, $0-32
	VBROADCASTSS alpha+0(FP), Z0
	MOVQ         x+8(FP), SI
	MOVQ         y+16(FP), DI
	MOVQ         n+24(FP), CX

one:
	CMPQ        CX, $16
	JLT         rest
	VMOVUPS     (DI), Z1
	VFMADD231PS (SI), Z0, Z1
	VMOVUPS     Z1, (DI)
	ADDQ        $64, SI
	ADDQ        $64, DI
	SUBQ        $16, CX
	JMP         one

rest:
	TAILMASK(CX, AX)
	VMOVUPS.Z   (DI), K1, Z1
	VMOVUPS.Z   (SI), K1, Z2
	VFMADD231PS Z2, Z0, Z1
	VMOVUPS     Z1, K1, (DI)
	VZEROUPPER
	RET

// func scaleAVX512(alpha float32, x *float32, n int)
//	for i := range n { x[i] *= alpha }
TEXT ·scaleAVX512(SB), NOSPLIT, $0-24
	VBROADCASTSS alpha+0(FP), Z0
	MOVQ         x+8(FP), DI
	MOVQ         n+16(FP), CX

one:
	CMPQ    CX, $16
	JLT     rest
	VMULPS  (DI), Z0, Z1
	VMOVUPS Z1, (DI)
	ADDQ    $64, DI
	SUBQ    $16, CX
	JMP     one

rest:
	TAILMASK(CX, AX)
	VMOVUPS.Z (DI), K1, Z1
	VMULPS    Z1, Z0, Z1
	VMOVUPS   Z1, K1, (DI)
	VZEROUPPER
	RET

// func maxAVX512(x *float32, n int) float32
//	for i := range n { m = max(m, x[i]) }, NaN if any x[i] is
TEXT ·maxAVX512(SB), NOSPLIT, $0-20
	MOVQ         x+0(FP), SI
	MOVQ         n+8(FP), CX
	VBROADCASTSS minusInf<>(SB), Z0
	VMOVAPS      Z0, Z3
	KXORW        K2, K2, K2 // lanes that have seen a NaN

one:
	CMPQ    CX, $16
	JLT     rest
	VMOVUPS (SI), Z1
	VCMPPS  $3, Z1, Z1, K3 // 3: unordered
	KORW    K3, K2, K2
	VMAXPS  Z1, Z0, Z0
	ADDQ    $64, SI
	SUBQ    $16, CX
	JMP     one

rest:
	TAILMASK(CX, AX)
	VMOVUPS  (SI), K1, Z3 // the other lanes stay -Inf
	VCMPPS   $3, Z3, Z3, K3
	KORW     K3, K2, K2
	VMAXPS   Z3, Z0, Z0
	FOLD(VMAXPS, Z0, Y0, X0, Y1, X1)
	KORTESTW K2, K2
	JZ       done
	VMOVSS   aNaN<>(SB), X0

done:
	VMOVSS X0, ret+16(FP)
	VZEROUPPER
	RET

// func expSumAVX512(s *float32, n int, m float32) float32
//	for i := range n { s[i] = exp(s[i] - m); sum += s[i] }
//
// exp(x) = 2ⁿ·exp(r) with n = round(x·log2 e) and r = x - n·ln 2 in [-ln2/2, ln2/2], ln 2 in two parts; exp(r) is its Taylor
// series through r⁷ (truncation error 5e-9). x is first clamped to where the result has become 0 or +Inf.
TEXT ·expSumAVX512(SB), NOSPLIT, $0-28
	MOVQ         s+0(FP), DI
	MOVQ         n+8(FP), CX
	VBROADCASTSS m+16(FP), Z16
	VBROADCASTSS exp<>+0(SB), Z17  // smallest x
	VBROADCASTSS exp<>+4(SB), Z18  // largest x
	VBROADCASTSS exp<>+8(SB), Z19  // log2 e
	VBROADCASTSS exp<>+12(SB), Z20 // ln 2
	VBROADCASTSS exp<>+16(SB), Z21 // ln 2 - float32(ln 2)
	VBROADCASTSS exp<>+20(SB), Z22 // 1/7!
	VBROADCASTSS exp<>+24(SB), Z23 // 1/6!
	VBROADCASTSS exp<>+28(SB), Z24 // 1/5!
	VBROADCASTSS exp<>+32(SB), Z25 // 1/4!
	VBROADCASTSS exp<>+36(SB), Z26 // 1/3!
	VBROADCASTSS exp<>+40(SB), Z27 // 1/2!
	VBROADCASTSS exp<>+44(SB), Z28 // 1
	VXORPS       X0, X0, X0
	KXNORW       K1, K1, K1

loop:
	CMPQ CX, $16
	JGE  vector
	TAILMASK(CX, AX)

vector:
	VMOVUPS.Z    (DI), K1, Z1
	VSUBPS       Z16, Z1, Z1
	VMAXPS       Z1, Z17, Z1 // a NaN in the first operand of this notation stays
	VMINPS       Z1, Z18, Z1
	VMULPS       Z19, Z1, Z2
	VRNDSCALEPS  $8, Z2, Z2
	VFNMADD231PS Z20, Z2, Z1
	VFNMADD231PS Z21, Z2, Z1
	VMOVAPS      Z22, Z3
	VFMADD213PS  Z23, Z1, Z3
	VFMADD213PS  Z24, Z1, Z3
	VFMADD213PS  Z25, Z1, Z3
	VFMADD213PS  Z26, Z1, Z3
	VFMADD213PS  Z27, Z1, Z3
	VFMADD213PS  Z28, Z1, Z3
	VFMADD213PS  Z28, Z1, Z3
	VSCALEFPS    Z2, Z3, Z3
	VMOVUPS      Z3, K1, (DI)
	VADDPS       Z3, Z0, K1, Z0
	ADDQ         $64, DI
	SUBQ         $16, CX
	JGT          loop
	FOLD(VADDPS, Z0, Y0, X0, Y1, X1)
	VMOVSS X0, ret+24(FP)
	VZEROUPPER
	RET

DATA minusInf<>+0(SB)/4, $0xff800000
GLOBL minusInf<>(SB), RODATA|NOPTR, $4

DATA aNaN<>+0(SB)/4, $0x7fc00000
GLOBL aNaN<>(SB), RODATA|NOPTR, $4

DATA exp<>+0(SB)/4, $0xc2d20000  // -105: exp is below half of the smallest subnormal
DATA exp<>+4(SB)/4, $0x42b20000  // 89: exp is above the largest float32
DATA exp<>+8(SB)/4, $0x3fb8aa3b
DATA exp<>+12(SB)/4, $0x3f317218
DATA exp<>+16(SB)/4, $0xb102e308
DATA exp<>+20(SB)/4, $0x39500d01
DATA exp<>+24(SB)/4, $0x3ab60b61
DATA exp<>+28(SB)/4, $0x3c088889
DATA exp<>+32(SB)/4, $0x3d2aaaab
DATA exp<>+36(SB)/4, $0x3e2aaaab
DATA exp<>+40(SB)/4, $0x3f000000
DATA exp<>+44(SB)/4, $0x3f800000
GLOBL exp<>(SB), RODATA|NOPTR, $48
