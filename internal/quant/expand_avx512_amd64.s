//go:build !purego

#include "textflag.h"
#include "blocks32_avx512.h"
#include "blocks256_avx512.h"

// Widening to float32: for i := range blocks { codecs[…].decode(dst[32*i:], w[i]) }

#define ARGS \
	MOVQ dst+0(FP), DI     \
	MOVQ w+8(FP), SI       \
	MOVQ blocks+16(FP), CX

// BLOCKS(NAME, size): all there is to do after ARGS and NAME_INIT, for blocks of size bytes.
#define BLOCKS(NAME, size) \
block:                     \
	NAME((SI))         \
	VMOVUPS Z8, (DI)   \
	VMOVUPS Z9, 64(DI) \
	ADDQ    $size, SI  \
	ADDQ    $128, DI   \
	DECQ    CX         \
	JNZ     block      \
	VZEROUPPER         \
	RET

// SAVE(at): stores 64 weights.
#define SAVE(at) \
	VMOVUPS Z8, at(DI)         \
	VMOVUPS Z9, (at+64)(DI)    \
	VMOVUPS Z12, (at+128)(DI)  \
	VMOVUPS Z13, (at+192)(DI)

// BLOCKS256(HEAD, PAIR0, PAIR1, PAIR2, PAIR3, size): the same for blocks of 256 weights.
#define BLOCKS256(HEAD, PAIR0, PAIR1, PAIR2, PAIR3, size) \
block:                   \
	HEAD((SI), 0)    \
	PAIR0((SI), 0)   \
	SAVE(0)          \
	PAIR1((SI), 0)   \
	SAVE(256)        \
	PAIR2((SI), 0)   \
	SAVE(512)        \
	PAIR3((SI), 0)   \
	SAVE(768)        \
	ADDQ $size, SI   \
	ADDQ $1024, DI   \
	DECQ CX          \
	JNZ  block       \
	VZEROUPPER       \
	RET

// func expandQ8_0AVX512(dst *float32, w *byte, blocks int)
TEXT ·expandQ8_0AVX512(SB), NOSPLIT, $0-24
	ARGS
	BLOCKS(Q8_0, 34)

// func expandQ4_0AVX512(dst *float32, w *byte, blocks int)
TEXT ·expandQ4_0AVX512(SB), NOSPLIT, $0-24
	ARGS
	Q4_0_INIT
	BLOCKS(Q4_0, 18)

// func expandQ4_1AVX512(dst *float32, w *byte, blocks int)
TEXT ·expandQ4_1AVX512(SB), NOSPLIT, $0-24
	ARGS
	Q4_1_INIT
	BLOCKS(Q4_1, 20)

// func expandQ5_0AVX512(dst *float32, w *byte, blocks int)
TEXT ·expandQ5_0AVX512(SB), NOSPLIT, $0-24
	ARGS
	Q5_0_INIT
	BLOCKS(Q5_0, 22)

// func expandQ5_1AVX512(dst *float32, w *byte, blocks int)
TEXT ·expandQ5_1AVX512(SB), NOSPLIT, $0-24
	ARGS
	Q5_1_INIT
	BLOCKS(Q5_1, 24)

// func expandQ4_KAVX512(dst *float32, w *byte, blocks int)
TEXT ·expandQ4_KAVX512(SB), NOSPLIT, $64-24
	ARGS
	Q4_K_INIT
	BLOCKS256(Q4_K_HEAD, Q4_K_PAIR0, Q4_K_PAIR1, Q4_K_PAIR2, Q4_K_PAIR3, 144)

// func expandQ5_KAVX512(dst *float32, w *byte, blocks int)
TEXT ·expandQ5_KAVX512(SB), NOSPLIT, $64-24
	ARGS
	Q5_K_INIT
	BLOCKS256(Q5_K_HEAD, Q5_K_PAIR0, Q5_K_PAIR1, Q5_K_PAIR2, Q5_K_PAIR3, 176)

// func expandQ6_KAVX512(dst *float32, w *byte, blocks int)
TEXT ·expandQ6_KAVX512(SB), NOSPLIT, $64-24
	ARGS
	Q6_K_INIT
	BLOCKS256(Q6_K_HEAD, Q6_K_PAIR0, Q6_K_PAIR1, Q6_K_PAIR2, Q6_K_PAIR3, 210)
