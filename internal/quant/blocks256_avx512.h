// Widening a block of 256 weights with AVX-512. NAME_INIT sets up constants in Z23-Z31 and K7. NAME_HEAD(p, at) prepares the scales
// of the block at address p as float32 on the stack, 64 bytes from at on. NAME_PAIR0(p, at) to NAME_PAIR3(p, at) then put 64 weights
// each into Z8, Z9, Z12 and Z13, by way of Z4-Z7, K1 and K2.

// ---- Q4_K, Q5_K: d(0) dmin(2) scales(4) q(16); d(0) dmin(2) scales(4) fifth(16) q(48)
//
// Each run of 32 weights has its table of d·s·code - dmin·t, used as those of the formats of 32.

#define K_INIT \
	IOTA(Z31)                       \
	SPLAT($0x41800000, Z30)         \
	VADDPS    Z31, Z30, Z30         \
	VPMOVZXBD scalesK<>+0(SB), Z28  \
	VPMOVZXBD scalesK<>+16(SB), Z27 \
	VPMOVZXBD scalesK<>+32(SB), Z26 \
	VPMOVZXBD scalesK<>+48(SB), Z25 \
	VPMOVZXBD scalesK<>+64(SB), Z24 \
	MOVL      $0xff00, AX           \
	KMOVW     AX, K7

// K_HEAD(p, at): d·s of the 8 runs, then dmin·t. Bytes 0-3 and 4-7 hold the first four s and t below the top two bits of the others,
// bytes 8-11 the low four bits of those; decode.go has the loop.
#define K_HEAD(p, at) \
	VPMOVZXBD 4 p, Z6             \
	VPERMD    Z6, Z28, Z7         \
	VPERMD    Z6, Z25, Z6         \
	VPSRLVD   Z27, Z7, Z7         \
	VPANDD    Z26, Z7, Z7         \
	VPSRLD    $2, Z6, Z6          \
	VPANDD    Z24, Z6, Z6         \
	VPORD     Z6, Z7, Z7          \
	VCVTDQ2PS Z7, Z7              \
	LOADDM(p)                     \
	VMOVAPS   Z5, K7, Z4          \
	VMULPS    Z4, Z7, Z7          \
	VMOVUPS   Z7, at(SP)

#define Q4_K_INIT K_INIT
#define Q4_K_HEAD(p, at) K_HEAD(p, at)
#define Q4_K_PAIR0(p, at) Q4_K_PAIR(p, at, 0)
#define Q4_K_PAIR1(p, at) Q4_K_PAIR(p, at, 1)
#define Q4_K_PAIR2(p, at) Q4_K_PAIR(p, at, 2)
#define Q4_K_PAIR3(p, at) Q4_K_PAIR(p, at, 3)

#define Q4_K_PAIR(p, at, r) \
	VPMOVZXBD    (16+32*r) p, Z6       \
	VPMOVZXBD    (32+32*r) p, Z7       \
	TABLE(at, 2*r, Z31, Z4)            \
	VPERMPS      Z4, Z6, Z8            \
	VPERMPS      Z4, Z7, Z9            \
	TABLE(at, 2*r+1, Z31, Z4)          \
	VPSRLD       $4, Z6, Z6            \
	VPSRLD       $4, Z7, Z7            \
	VPERMPS      Z4, Z6, Z12           \
	VPERMPS      Z4, Z7, Z13

// TABLE(at, run, codes, z): z = the weights of 16 codes of a run.
#define TABLE(at, run, codes, z) \
	VBROADCASTSS     (at+4*(run))(SP), z           \
	VFMSUB213PS.BCST (at+32+4*(run))(SP), codes, z

#define Q5_K_INIT \
	K_INIT                   \
	MOVL         $1, AX      \
	VPBROADCASTB AX, Z23
#define Q5_K_HEAD(p, at) K_HEAD(p, at)
#define Q5_K_PAIR0(p, at) Q5_K_PAIR(p, at, 0)
#define Q5_K_PAIR1(p, at) Q5_K_PAIR(p, at, 1)
#define Q5_K_PAIR2(p, at) Q5_K_PAIR(p, at, 2)
#define Q5_K_PAIR3(p, at) Q5_K_PAIR(p, at, 3)

#define Q5_K_PAIR(p, at, r) \
	VPMOVZXBD    (48+32*r) p, Z6       \
	VPMOVZXBD    (64+32*r) p, Z7       \
	VMOVDQU      16 p, Y14             \
	VPSRLW       $(2*r), Y14, Y14      \
	TABLE(at, 2*r, Z31, Z4)            \
	TABLE(at, 2*r, Z30, Z5)            \
	FIFTH(Y14)                         \
	VPERMPS      Z4, Z6, Z8            \
	VPERMPS      Z4, Z7, Z9            \
	VPERMPS      Z5, Z6, K1, Z8        \
	VPERMPS      Z5, Z7, K2, Z9        \
	TABLE(at, 2*r+1, Z31, Z4)          \
	TABLE(at, 2*r+1, Z30, Z5)          \
	VPSRLW       $1, Y14, Y14          \
	FIFTH(Y14)                         \
	VPSRLD       $4, Z6, Z6            \
	VPSRLD       $4, Z7, Z7            \
	VPERMPS      Z4, Z6, Z12           \
	VPERMPS      Z4, Z7, Z13           \
	VPERMPS      Z5, Z6, K1, Z12       \
	VPERMPS      Z5, Z7, K2, Z13

// FIFTH(y): K1, K2 = the lowest bits of y's bytes, 16 each.
#define FIFTH(y) \
	VPTESTMB  Y23, y, K1  \
	KSHIFTRD  $16, K1, K2

// ---- Q6_K: nibbles(0) upper(128) s(192) d(208)

#define Q6_K_INIT \
	SPLAT($0x0f, Z31) \
	SPLAT($0x30, Z30) \
	SPLAT($0x20, Z29)

#define Q6_K_HEAD(p, at) \
	VPMOVSXBD 192 p, Z7     \
	VCVTDQ2PS Z7, Z7        \
	LOADD(208 p)            \
	VMULPS    Z4, Z7, Z7    \
	VMOVUPS   Z7, at(SP)

#define Q6_K_PAIR0(p, at) Q6_K_LOW(p, at, 0)
#define Q6_K_PAIR1(p, at) Q6_K_HIGH(p, at, 0)
#define Q6_K_PAIR2(p, at) Q6_K_LOW(p, at, 1)
#define Q6_K_PAIR3(p, at) Q6_K_HIGH(p, at, 1)

// Q6_K_LOW, Q6_K_HIGH(p, at, half): the weights in the low and high nibbles of a half's 64 bytes.
#define Q6_K_LOW(p, at, half) \
	VPMOVZXBD    (64*half) p, Z8          \
	VPMOVZXBD    (64*half+16) p, Z9       \
	VPMOVZXBD    (64*half+32) p, Z12      \
	VPMOVZXBD    (64*half+48) p, Z13      \
	VPMOVZXBD    (128+32*half) p, Z4      \
	VPMOVZXBD    (128+32*half+16) p, Z5   \
	VPSLLD       $2, Z4, Z6               \
	VPSLLD       $2, Z5, Z7               \
	VPSLLD       $4, Z4, Z4               \
	VPSLLD       $4, Z5, Z5               \
	VPANDD       Z31, Z8, Z8              \
	VPANDD       Z31, Z9, Z9              \
	VPANDD       Z31, Z12, Z12            \
	VPANDD       Z31, Z13, Z13            \
	Q6_K_JOIN(at+32*half)

#define Q6_K_HIGH(p, at, half) \
	VPMOVZXBD    (64*half) p, Z8          \
	VPMOVZXBD    (64*half+16) p, Z9       \
	VPMOVZXBD    (64*half+32) p, Z12      \
	VPMOVZXBD    (64*half+48) p, Z13      \
	VPMOVZXBD    (128+32*half) p, Z4      \
	VPMOVZXBD    (128+32*half+16) p, Z5   \
	VPSRLD       $2, Z4, Z6               \
	VPSRLD       $2, Z5, Z7               \
	VPSRLD       $4, Z8, Z8               \
	VPSRLD       $4, Z9, Z9               \
	VPSRLD       $4, Z12, Z12             \
	VPSRLD       $4, Z13, Z13             \
	Q6_K_JOIN(at+32*half+16)

// Q6_K_JOIN(s): joins nibbles with the upper bits in Z4-Z7 and applies the four scales at s.
#define Q6_K_JOIN(s) \
	Q6_K_WEIGHTS(Z4, Z8, (s))        \
	Q6_K_WEIGHTS(Z5, Z9, (s+4))      \
	Q6_K_WEIGHTS(Z6, Z12, (s+8))     \
	Q6_K_WEIGHTS(Z7, Z13, (s+12))

#define Q6_K_WEIGHTS(upper, w, s) \
	VPTERNLOGD  $0xf8, Z30, upper, w \
	VPSUBD      Z29, w, w            \
	VCVTDQ2PS   w, w                 \
	VMULPS.BCST s(SP), w, w

// Where the 8 s and the 8 t are among the bytes 0-11 of scales: which byte to take, its shift and its mask; then the byte whose
// top two bits go above, and the mask of those.
DATA scalesK<>+0(SB)/8, $0x0b0a090803020100
DATA scalesK<>+8(SB)/8, $0x0b0a090807060504
DATA scalesK<>+16(SB)/8, $0
DATA scalesK<>+24(SB)/8, $0x0404040400000000
DATA scalesK<>+32(SB)/8, $0x0f0f0f0f3f3f3f3f
DATA scalesK<>+40(SB)/8, $0x0f0f0f0f3f3f3f3f
DATA scalesK<>+48(SB)/8, $0x0302010000000000
DATA scalesK<>+56(SB)/8, $0x0706050400000000
DATA scalesK<>+64(SB)/8, $0x3030303000000000
DATA scalesK<>+72(SB)/8, $0x3030303000000000
GLOBL scalesK<>(SB), RODATA|NOPTR, $80
