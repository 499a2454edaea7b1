//go:build !purego

#include "textflag.h"
#include "blocks32_avx2.h"
#include "blocks256_avx2.h"

// Widening to float32: for i := range blocks { codecs[…].decode(dst[n*i:], w[i]) }, n weights a block

#define ARGS \
	MOVQ dst+0(FP), DI     \
	MOVQ w+8(FP), SI       \
	MOVQ blocks+16(FP), CX

// SAVE(at): stores 32 weights.
#define SAVE(at) \
	VMOVUPS Y4, at(DI)      \
	VMOVUPS Y5, (at+32)(DI) \
	VMOVUPS Y6, (at+64)(DI) \
	VMOVUPS Y7, (at+96)(DI)

// BLOCKS(NAME, size): all there is to do after ARGS and NAME_INIT, for blocks of size bytes.
#define BLOCKS(NAME, size) \
block:                    \
	NAME((SI))        \
	SAVE(0)           \
	ADDQ $size, SI    \
	ADDQ $128, DI     \
	DECQ CX           \
	JNZ  block        \
	VZEROUPPER        \
	RET

// BLOCKS256(HEAD, RUN0, …, size): the same for blocks of 256 weights.
#define BLOCKS256(HEAD, RUN0, RUN1, RUN2, RUN3, RUN4, RUN5, RUN6, RUN7, size) \
block:                    \
	HEAD((SI), 0)     \
	RUN0((SI), 0)    \
	SAVE(0)           \
	RUN1((SI), 0)    \
	SAVE(128)         \
	RUN2((SI), 0)    \
	SAVE(256)         \
	RUN3((SI), 0)    \
	SAVE(384)         \
	RUN4((SI), 0)    \
	SAVE(512)         \
	RUN5((SI), 0)    \
	SAVE(640)         \
	RUN6((SI), 0)    \
	SAVE(768)         \
	RUN7((SI), 0)    \
	SAVE(896)         \
	ADDQ $size, SI    \
	ADDQ $1024, DI    \
	DECQ CX           \
	JNZ  block        \
	VZEROUPPER        \
	RET

// func expandQ8_0AVX2(dst *float32, w *byte, blocks int)
TEXT ·expandQ8_0AVX2(SB), NOSPLIT, $0-24
	ARGS
	BLOCKS(Q8_0, 34)

// func expandQ4_0AVX2(dst *float32, w *byte, blocks int)
TEXT ·expandQ4_0AVX2(SB), NOSPLIT, $0-24
	ARGS
	Q4_0_INIT
	BLOCKS(Q4_0, 18)

// func expandQ4_1AVX2(dst *float32, w *byte, blocks int)
TEXT ·expandQ4_1AVX2(SB), NOSPLIT, $0-24
	ARGS
	Q4_1_INIT
	BLOCKS(Q4_1, 20)

// func expandQ5_0AVX2(dst *float32, w *byte, blocks int)
TEXT ·expandQ5_0AVX2(SB), NOSPLIT, $0-24
	ARGS
	Q5_0_INIT
	BLOCKS(Q5_0, 22)

// func expandQ5_1AVX2(dst *float32, w *byte, blocks int)
TEXT ·expandQ5_1AVX2(SB), NOSPLIT, $0-24
	ARGS
	Q5_1_INIT
	BLOCKS(Q5_1, 24)

// func expandQ4_KAVX2(dst *float32, w *byte, blocks int)
TEXT ·expandQ4_KAVX2(SB), NOSPLIT, $64-24
	ARGS
	Q4_K_INIT
	BLOCKS256(Q4_K_HEAD, Q4_K_RUN0, Q4_K_RUN1, Q4_K_RUN2, Q4_K_RUN3, Q4_K_RUN4, Q4_K_RUN5, Q4_K_RUN6, Q4_K_RUN7, 144)

// func expandQ5_KAVX2(dst *float32, w *byte, blocks int)
TEXT ·expandQ5_KAVX2(SB), NOSPLIT, $64-24
	ARGS
	Q5_K_INIT
	BLOCKS256(Q5_K_HEAD, Q5_K_RUN0, Q5_K_RUN1, Q5_K_RUN2, Q5_K_RUN3, Q5_K_RUN4, Q5_K_RUN5, Q5_K_RUN6, Q5_K_RUN7, 176)

// func expandQ6_KAVX2(dst *float32, w *byte, blocks int)
TEXT ·expandQ6_KAVX2(SB), NOSPLIT, $64-24
	ARGS
	Q6_K_INIT
	BLOCKS256(Q6_K_HEAD, Q6_K_RUN0, Q6_K_RUN1, Q6_K_RUN2, Q6_K_RUN3, Q6_K_RUN4, Q6_K_RUN5, Q6_K_RUN6, Q6_K_RUN7, 210)
