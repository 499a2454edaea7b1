//go:build !purego

#include "textflag.h"
#include "blocks_avx512.h"

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

// func expandQ8_0AVX512(dst *float32, w *byte, blocks int)
TEXT ·expandQ8_0AVX512(SB), NOSPLIT, $0-24
	ARGS
	Q8_0_INIT
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
