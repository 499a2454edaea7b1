// Widening a block of 32 weights with AVX-512: NAME_INIT sets up constants, NAME(p) puts the weights of the block at address p
// into Z8 and Z9. It uses Z4-Z7, K1 and K2; the constants live in Z29-Z31.
//
// The formats of nibbles look their weights up: a register holds the weights of all 16 codes, d·code + m, and VPERMPS, which reads
// the low four bits of each lane, fetches by code. The codes with the fifth bit have a second table, used under a mask.

// IOTA(z): z = 0, 1, … 15.
#define IOTA(z) \
	VPMOVZXBD iota<>(SB), z \
	VCVTDQ2PS z, z

// SPLAT(value, z): z = value in all lanes.
#define SPLAT(value, z) \
	MOVL         value, AX \
	VPBROADCASTD AX, z

// LOADD(p): Z4 = the float16 at p in all lanes. LOADDM(p): Z4 = that one, Z5 = the one behind it.
#define LOADD(p) \
	VPBROADCASTW p, Y4   \
	VCVTPH2PS    Y4, Z4
#define LOADDM(p) \
	VPBROADCASTD p, Y4   \
	VCVTPH2PS    Y4, Z5  \
	VMOVSLDUP    Z5, Z4  \
	VMOVSHDUP    Z5, Z5

// LOW(q): Z6, Z7 = the codes in the low and high nibbles of the 16 bytes at q, with other bits above.
#define LOW(q) \
	VPMOVZXBD q, Z6      \
	VPSRLD    $4, Z6, Z7

// Q4_0: d(0) q(2)
#define Q4_0_INIT \
	IOTA(Z31)                   \
	SPLAT($0xc1000000, Z30)     \
	VADDPS       Z31, Z30, Z30
#define Q4_0(p) \
	LOADD(p)                    \
	LOW(2 p)                    \
	VMULPS       Z30, Z4, Z4    \
	VPERMPS      Z4, Z6, Z8     \
	VPERMPS      Z4, Z7, Z9

// Q4_1: d(0) m(2) q(4)
#define Q4_1_INIT \
	IOTA(Z31)
#define Q4_1(p) \
	LOADDM(p)                   \
	LOW(4 p)                    \
	VFMADD213PS  Z5, Z31, Z4    \
	VPERMPS      Z4, Z6, Z8     \
	VPERMPS      Z4, Z7, Z9

// Q5_0: d(0) fifth(2) q(6)
#define Q5_0_INIT \
	IOTA(Z31)                   \
	SPLAT($0xc1800000, Z30)     \
	VADDPS       Z31, Z30, Z30
#define Q5_0(p) \
	LOADD(p)                    \
	LOW(6 p)                    \
	KMOVW        2 p, K1        \
	KMOVW        4 p, K2        \
	VMULPS       Z31, Z4, Z5    \
	VMULPS       Z30, Z4, Z4    \
	VPERMPS      Z4, Z6, Z8     \
	VPERMPS      Z4, Z7, Z9     \
	VPERMPS      Z5, Z6, K1, Z8 \
	VPERMPS      Z5, Z7, K2, Z9

// Q5_1: d(0) m(2) fifth(4) q(8)
#define Q5_1_INIT \
	IOTA(Z31)                   \
	SPLAT($0x41800000, Z30)     \
	VADDPS       Z31, Z30, Z30
#define Q5_1(p) \
	LOADDM(p)                   \
	LOW(8 p)                    \
	KMOVW        4 p, K1        \
	KMOVW        6 p, K2        \
	VMOVAPS      Z4, Z8         \
	VFMADD213PS  Z5, Z31, Z4    \
	VFMADD231PS  Z30, Z8, Z5    \
	VPERMPS      Z4, Z6, Z8     \
	VPERMPS      Z4, Z7, Z9     \
	VPERMPS      Z5, Z6, K1, Z8 \
	VPERMPS      Z5, Z7, K2, Z9

// Q8_0: d(0) q(2)
#define Q8_0(p) \
	LOADD(p)                    \
	VPMOVSXBD    2 p, Z8        \
	VPMOVSXBD    18 p, Z9       \
	VCVTDQ2PS    Z8, Z8         \
	VCVTDQ2PS    Z9, Z9         \
	VMULPS       Z4, Z8, Z8     \
	VMULPS       Z4, Z9, Z9

// Two vectors of 16 float16 or bfloat16.
#define F16(p) \
	VCVTPH2PS    p, Z8          \
	VCVTPH2PS    32 p, Z9
#define BF16(p) \
	VPMOVZXWD    p, Z8          \
	VPMOVZXWD    32 p, Z9       \
	VPSLLD       $16, Z8, Z8    \
	VPSLLD       $16, Z9, Z9

DATA iota<>+0(SB)/8, $0x0706050403020100
DATA iota<>+8(SB)/8, $0x0f0e0d0c0b0a0908
GLOBL iota<>(SB), RODATA|NOPTR, $16
