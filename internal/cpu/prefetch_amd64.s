//go:build !purego

#include "textflag.h"

// func prefetchLines(p unsafe.Pointer, lines int)
// Asks for lines > 0 cache lines from p on.
TEXT ·prefetchLines(SB), NOSPLIT, $0-16
	MOVQ p+0(FP), AX
	MOVQ lines+8(FP), CX
loop:
	PREFETCHT0 (AX)
	ADDQ $64, AX
	DECQ CX
	JNZ  loop
	RET
