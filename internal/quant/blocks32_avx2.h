// Widening a block of 32 weights with AVX2: NAME_INIT sets up constants in Y11-Y15, NAME(p) puts the weights of the block at
// address p into Y4-Y7, by way of Y8-Y10.

// SPLAT(value, x, y): y = the byte value in all lanes; x is its lower part.
#define SPLAT(value, x, y) \
	MOVL         value, AX \
	VMOVD        AX, x     \
	VPBROADCASTB x, y

// LOADD(p, x, y): y = the float16 at p in all lanes.
#define LOADD(p, x, y) \
	VPBROADCASTW p, x \
	VCVTPH2PS    x, y

// NIBBLES(q): Y8 = the low, then the high nibbles of the 16 bytes at q.
#define NIBBLES_INIT \
	SPLAT($0x0f, X15, Y15)       \
	VPMOVZXBQ    shifts<>(SB), Y14
#define NIBBLES(q) \
	VBROADCASTI128 q, Y8         \
	VPSRLVQ        Y14, Y8, Y8   \
	VPAND          Y15, Y8, Y8

// FIFTH(p): Y9 = all ones in the bytes whose bit is set in the 32 bits at p.
#define FIFTH_INIT \
	VMOVDQU      spread<>(SB), Y13  \
	VPBROADCASTQ bits<>(SB), Y12
#define FIFTH(p) \
	VPBROADCASTD p, Y9         \
	VPSHUFB      Y13, Y9, Y9   \
	VPAND        Y12, Y9, Y9   \
	VPCMPEQB     Y12, Y9, Y9

// WIDEN(EXTEND): Y4-Y7 = the bytes of Y8 as float32.
#define WIDEN(EXTEND) \
	VPSRLDQ      $8, X8, X5 \
	VEXTRACTI128 $1, Y8, X6 \
	VPSRLDQ      $8, X6, X7 \
	EXTEND       X8, Y4     \
	EXTEND       X5, Y5     \
	EXTEND       X6, Y6     \
	EXTEND       X7, Y7     \
	VCVTDQ2PS    Y4, Y4     \
	VCVTDQ2PS    Y5, Y5     \
	VCVTDQ2PS    Y6, Y6     \
	VCVTDQ2PS    Y7, Y7

// TIMES(a, b): the first and the second 16 weights times a and b. AFFINE: all times Y10, plus Y9.
#define TIMES(a, b) \
	VMULPS a, Y4, Y4 \
	VMULPS a, Y5, Y5 \
	VMULPS b, Y6, Y6 \
	VMULPS b, Y7, Y7
#define AFFINE \
	VFMADD213PS Y9, Y10, Y4 \
	VFMADD213PS Y9, Y10, Y5 \
	VFMADD213PS Y9, Y10, Y6 \
	VFMADD213PS Y9, Y10, Y7

// Q4_0: d(0) q(2)
#define Q4_0_INIT \
	NIBBLES_INIT           \
	SPLAT($8, X13, Y13)
#define Q4_0(p) \
	NIBBLES(2 p)           \
	VPSUBB Y13, Y8, Y8     \
	WIDEN(VPMOVSXBD)       \
	LOADD(p, X10, Y10)     \
	TIMES(Y10, Y10)

// Q4_1: d(0) m(2) q(4)
#define Q4_1_INIT NIBBLES_INIT
#define Q4_1(p) \
	NIBBLES(4 p)           \
	WIDEN(VPMOVZXBD)       \
	LOADD(p, X10, Y10)     \
	LOADD(2 p, X9, Y9)     \
	AFFINE

// Q5_0: d(0) fifth(2) q(6). q-16 is, as a signed byte, the nibble where the fifth bit is set and the nibble under ones elsewhere.
#define Q5_0_INIT \
	NIBBLES_INIT           \
	FIFTH_INIT             \
	SPLAT($0xf0, X11, Y11)
#define Q5_0(p) \
	NIBBLES(6 p)           \
	FIFTH(2 p)             \
	VPANDN Y11, Y9, Y9     \
	VPOR   Y9, Y8, Y8      \
	WIDEN(VPMOVSXBD)       \
	LOADD(p, X10, Y10)     \
	TIMES(Y10, Y10)

// Q5_1: d(0) m(2) fifth(4) q(8)
#define Q5_1_INIT \
	NIBBLES_INIT           \
	FIFTH_INIT             \
	SPLAT($0x10, X11, Y11)
#define Q5_1(p) \
	NIBBLES(8 p)           \
	FIFTH(4 p)             \
	VPAND Y11, Y9, Y9      \
	VPOR  Y9, Y8, Y8       \
	WIDEN(VPMOVZXBD)       \
	LOADD(p, X10, Y10)     \
	LOADD(2 p, X9, Y9)     \
	AFFINE

// Q8_0: d(0) q(2)
#define Q8_0(p) \
	VPMOVSXBD 2 p, Y4      \
	VPMOVSXBD 10 p, Y5     \
	VPMOVSXBD 18 p, Y6     \
	VPMOVSXBD 26 p, Y7     \
	VCVTDQ2PS Y4, Y4       \
	VCVTDQ2PS Y5, Y5       \
	VCVTDQ2PS Y6, Y6       \
	VCVTDQ2PS Y7, Y7       \
	LOADD(p, X10, Y10)     \
	TIMES(Y10, Y10)

// Four vectors of 8 float16 or bfloat16.
#define F16(p) \
	VCVTPH2PS p, Y4        \
	VCVTPH2PS 16 p, Y5     \
	VCVTPH2PS 32 p, Y6     \
	VCVTPH2PS 48 p, Y7
#define BF16(p) \
	VPMOVZXWD p, Y4        \
	VPMOVZXWD 16 p, Y5     \
	VPMOVZXWD 32 p, Y6     \
	VPMOVZXWD 48 p, Y7     \
	VPSLLD    $16, Y4, Y4  \
	VPSLLD    $16, Y5, Y5  \
	VPSLLD    $16, Y6, Y6  \
	VPSLLD    $16, Y7, Y7

// What NIBBLES shifts the quarters of its bytes by.
DATA shifts<>+0(SB)/4, $0x04040000
GLOBL shifts<>(SB), RODATA|NOPTR, $4

// The byte that holds each lane's bit, and the bit.
DATA spread<>+0(SB)/8, $0x0000000000000000
DATA spread<>+8(SB)/8, $0x0101010101010101
DATA spread<>+16(SB)/8, $0x0202020202020202
DATA spread<>+24(SB)/8, $0x0303030303030303
GLOBL spread<>(SB), RODATA|NOPTR, $32
DATA bits<>+0(SB)/8, $0x8040201008040201
GLOBL bits<>(SB), RODATA|NOPTR, $8
