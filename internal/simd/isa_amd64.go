//go:build !purego

package simd

import "golang.org/x/sys/cpu"

func detect() ISA {
	x := &cpu.X86
	switch avx2 := x.HasAVX2 && x.HasFMA && x.HasF16C && x.HasBMI2; {
	case avx2 && x.HasAVX512F && x.HasAVX512BW && x.HasAVX512DQ && x.HasAVX512VL:
		return AVX512
	case avx2:
		return AVX2
	}
	return Portable
}
