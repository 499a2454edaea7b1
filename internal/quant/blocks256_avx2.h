// Widening a block of 256 weights with AVX2. NAME_INIT sets up constants in Y12-Y15. NAME_HEAD(p, at) prepares the scales of the
// block at address p as float32 on the stack, 64 bytes from at on. NAME_RUN0(p, at) to NAME_RUN7(p, at) then put 32 weights each
// into Y4-Y7, by way of Y8-Y10.

#define LOW VPAND Y15, Y8, Y8
#define HIGH VPSRLW $4, Y8, Y8; VPAND Y15, Y8, Y8

// ---- Q4_K, Q5_K: d(0) dmin(2) scales(4) q(16); d(0) dmin(2) scales(4) fifth(16) q(48)

// K_HEAD(p, at): d·s of the 8 runs, then -dmin·t. Bytes 0-3 and 4-7 hold the first four s and t below the top two bits of the
// others, bytes 8-11 the low four bits of those; decode.go has the loop.
#define K_HEAD(p, at) \
	VMOVDQU   4 p, X8                    \
	VPSHUFB   scalesK<>+0(SB), X8, X9    \
	VPSHUFB   scalesK<>+16(SB), X8, X8   \
	VPSRLW    $4, X9, X10                \
	VPSRLW    $2, X8, X8                 \
	VPAND     scalesK<>+32(SB), X9, X9   \
	VPAND     scalesK<>+48(SB), X10, X10 \
	VPAND     scalesK<>+64(SB), X8, X8   \
	VPOR      X10, X9, X9                \
	VPOR      X8, X9, X9                 \
	VPMOVZXBD X9, Y8                     \
	VPSRLDQ   $8, X9, X9                 \
	VPMOVZXBD X9, Y9                     \
	VCVTDQ2PS Y8, Y8                     \
	VCVTDQ2PS Y9, Y9                     \
	LOADD(p, X10, Y10)                   \
	VMULPS    Y10, Y8, Y8                \
	LOADD(2 p, X10, Y10)                 \
	VXORPS    Y12, Y10, Y10              \
	VMULPS    Y10, Y9, Y9                \
	VMOVUPS   Y8, at(SP)                 \
	VMOVUPS   Y9, (at+32)(SP)

#define K_INIT \
	SPLAT($0x0f, X15, Y15)  \
	SPLAT($0x10, X14, Y14)  \
	VPCMPEQD Y12, Y12, Y12  \
	VPSLLD   $31, Y12, Y12

#define Q4_K_INIT K_INIT
#define Q5_K_INIT K_INIT
#define Q4_K_HEAD(p, at) K_HEAD(p, at)
#define Q5_K_HEAD(p, at) K_HEAD(p, at)

// K_WEIGHTS(at, run): the weights of the codes in Y8.
#define K_WEIGHTS(at, run) \
	WIDEN(VPMOVZXBD)                     \
	VBROADCASTSS (at+4*run)(SP), Y10     \
	VBROADCASTSS (at+32+4*run)(SP), Y9   \
	AFFINE

#define Q4_K_RUN(p, at, run, HALF) \
	VMOVDQU (16+32*(run/2)) p, Y8 \
	HALF                          \
	K_WEIGHTS(at, run)

#define Q4_K_RUN0(p, at) Q4_K_RUN(p, at, 0, LOW)
#define Q4_K_RUN1(p, at) Q4_K_RUN(p, at, 1, HIGH)
#define Q4_K_RUN2(p, at) Q4_K_RUN(p, at, 2, LOW)
#define Q4_K_RUN3(p, at) Q4_K_RUN(p, at, 3, HIGH)
#define Q4_K_RUN4(p, at) Q4_K_RUN(p, at, 4, LOW)
#define Q4_K_RUN5(p, at) Q4_K_RUN(p, at, 5, HIGH)
#define Q4_K_RUN6(p, at) Q4_K_RUN(p, at, 6, LOW)
#define Q4_K_RUN7(p, at) Q4_K_RUN(p, at, 7, HIGH)

// Q5_K_RUN(p, at, run, HALF, SHIFT, n): shifting the fifth bits by n brings the run's to bit 4.
#define Q5_K_RUN(p, at, run, HALF, SHIFT, n) \
	VMOVDQU (48+32*(run/2)) p, Y8 \
	HALF                          \
	VMOVDQU 16 p, Y9              \
	SHIFT   n, Y9, Y9             \
	VPAND   Y14, Y9, Y9           \
	VPOR    Y9, Y8, Y8            \
	K_WEIGHTS(at, run)

#define Q5_K_RUN0(p, at) Q5_K_RUN(p, at, 0, LOW, VPSLLW, $4)
#define Q5_K_RUN1(p, at) Q5_K_RUN(p, at, 1, HIGH, VPSLLW, $3)
#define Q5_K_RUN2(p, at) Q5_K_RUN(p, at, 2, LOW, VPSLLW, $2)
#define Q5_K_RUN3(p, at) Q5_K_RUN(p, at, 3, HIGH, VPSLLW, $1)
#define Q5_K_RUN4(p, at) Q5_K_RUN(p, at, 4, LOW, VPSLLW, $0)
#define Q5_K_RUN5(p, at) Q5_K_RUN(p, at, 5, HIGH, VPSRLW, $1)
#define Q5_K_RUN6(p, at) Q5_K_RUN(p, at, 6, LOW, VPSRLW, $2)
#define Q5_K_RUN7(p, at) Q5_K_RUN(p, at, 7, HIGH, VPSRLW, $3)

// ---- Q6_K: nibbles(0) upper(128) s(192) d(208)

#define Q6_K_INIT \
	SPLAT($0x0f, X15, Y15) \
	SPLAT($0x30, X14, Y14) \
	SPLAT($0x20, X13, Y13)

#define Q6_K_HEAD(p, at) \
	VPMOVSXBD 192 p, Y8        \
	VPMOVSXBD 200 p, Y9        \
	VCVTDQ2PS Y8, Y8           \
	VCVTDQ2PS Y9, Y9           \
	LOADD(208 p, X10, Y10)     \
	VMULPS    Y10, Y8, Y8      \
	VMULPS    Y10, Y9, Y9      \
	VMOVUPS   Y8, at(SP)       \
	VMOVUPS   Y9, (at+32)(SP)

// Q6_K_RUN(p, at, run, q, u, HALF, SHIFT, n): nibbles from q, upper bits from u, which shifting by n brings to bits 4 and 5.
#define Q6_K_RUN(p, at, run, q, u, HALF, SHIFT, n) \
	VMOVDQU      q p, Y8               \
	HALF                               \
	VMOVDQU      (128+u) p, Y9         \
	SHIFT        n, Y9, Y9             \
	VPAND        Y14, Y9, Y9           \
	VPOR         Y9, Y8, Y8            \
	VPSUBB       Y13, Y8, Y8           \
	WIDEN(VPMOVSXBD)                   \
	VBROADCASTSS (at+8*run)(SP), Y10   \
	VBROADCASTSS (at+8*run+4)(SP), Y9  \
	TIMES(Y10, Y9)

#define Q6_K_RUN0(p, at) Q6_K_RUN(p, at, 0, 0, 0, LOW, VPSLLW, $4)
#define Q6_K_RUN1(p, at) Q6_K_RUN(p, at, 1, 32, 0, LOW, VPSLLW, $2)
#define Q6_K_RUN2(p, at) Q6_K_RUN(p, at, 2, 0, 0, HIGH, VPSLLW, $0)
#define Q6_K_RUN3(p, at) Q6_K_RUN(p, at, 3, 32, 0, HIGH, VPSRLW, $2)
#define Q6_K_RUN4(p, at) Q6_K_RUN(p, at, 4, 64, 32, LOW, VPSLLW, $4)
#define Q6_K_RUN5(p, at) Q6_K_RUN(p, at, 5, 96, 32, LOW, VPSLLW, $2)
#define Q6_K_RUN6(p, at) Q6_K_RUN(p, at, 6, 64, 32, HIGH, VPSLLW, $0)
#define Q6_K_RUN7(p, at) Q6_K_RUN(p, at, 7, 96, 32, HIGH, VPSRLW, $2)

// Where the 8 s and the 8 t are among the bytes 0-11 of scales: which byte to take; the byte whose top two bits go above; the
// masks of a code taken as it is, of one from a high nibble, and of the upper two bits.
DATA scalesK<>+0(SB)/8, $0x0b0a090803020100
DATA scalesK<>+8(SB)/8, $0x0b0a090807060504
DATA scalesK<>+16(SB)/8, $0x0302010080808080
DATA scalesK<>+24(SB)/8, $0x0706050480808080
DATA scalesK<>+32(SB)/8, $0x0f0f0f0f3f3f3f3f
DATA scalesK<>+40(SB)/8, $0x000000003f3f3f3f
DATA scalesK<>+48(SB)/8, $0
DATA scalesK<>+56(SB)/8, $0x0f0f0f0f00000000
DATA scalesK<>+64(SB)/8, $0x3030303000000000
DATA scalesK<>+72(SB)/8, $0x3030303000000000
GLOBL scalesK<>(SB), RODATA|NOPTR, $80
