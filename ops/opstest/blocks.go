package opstest

import (
	"math/rand/v2"

	"github.com/gaze-ml/gaze/internal/attn"
)

// The block formats of GGUF files, each weight by its own formula (ggml-common.h and ggml-quants.c of llama.cpp say where the
// bits lie).

// f16At reads a float16 of a block.
func f16At(b []byte, at int) float64 { return formats[attn.F16].decode(uint32(le.Uint16(b[at:]))) }

// nibble is weight i's low or high half of a byte in a block of 32: the first 16 weights have the low halves.
func nibble(qs []byte, i int) int {
	if i < 16 {
		return int(qs[i] & 15)
	}
	return int(qs[i-16] >> 4)
}

// bit32 is bit i of a little-endian word.
func bit32(b []byte, i int) int { return int(b[i/8]>>(i%8)) & 1 }

// scaleMinK is the 6-bit scale and minimum of sub-block j of q4_K and q5_K, packed in 12 bytes.
func scaleMinK(s []byte, j int) (scale, minimum int) {
	if j < 4 {
		return int(s[j] & 63), int(s[j+4] & 63)
	}
	return int(s[j+4]&15) | int(s[j-4]>>6)<<4, int(s[j+4]>>4) | int(s[j]>>6)<<4
}

// dequantise gives the weights of one block.
func dequantise(dst []float64, dt attn.DType, b []byte) {
	for i := range dst {
		dst[i] = blockWeight(dt, b, i)
	}
}

func blockWeight(dt attn.DType, b []byte, i int) float64 {
	switch dt {
	case attn.Q8_0:
		return f16At(b, 0) * float64(int8(b[2+i]))
	case attn.Q4_0:
		return f16At(b, 0) * float64(nibble(b[2:], i)-8)
	case attn.Q4_1:
		return f16At(b, 0)*float64(nibble(b[4:], i)) + f16At(b, 2)
	case attn.Q5_0:
		return f16At(b, 0) * float64(nibble(b[6:], i)+16*bit32(b[2:6], i)-16)
	case attn.Q5_1:
		return f16At(b, 0)*float64(nibble(b[8:], i)+16*bit32(b[4:8], i)) + f16At(b, 2)
	case attn.Q4_K, attn.Q5_K:
		sub, l := i/32, i%32
		scale, minimum := scaleMinK(b[4:16], sub)
		qs, high := b[16:], 0
		if dt == attn.Q5_K {
			qs, high = b[48:], int(b[16+l]>>sub)&1
		}
		q := int(qs[sub/2*32+l]>>(4*(sub%2)))&15 + 16*high
		return f16At(b, 0)*float64(scale*q) - f16At(b, 2)*float64(minimum)
	case attn.Q6_K:
		half, in := i/128, i%128 // two halves of 128, each of four quarters of 32
		quarter, l := in/32, in%32
		low := int(b[64*half+quarter%2*32+l]>>(quarter/2*4)) & 15
		high := int(b[128+32*half+l]>>(2*quarter)) & 3
		scale := int(int8(b[192+8*half+2*quarter+l/16]))
		return f16At(b, 208) * float64(scale*(low+16*high-32))
	}
	panic("opstest: no block format " + dt.String())
}

// scalePlaces are the byte offsets of the float16 scales in a block, with the size that keeps weights around 1.
func scalePlaces(dt attn.DType) (at []int, size float64) {
	switch dt {
	case attn.Q8_0:
		return []int{0}, 1. / 127
	case attn.Q4_0, attn.Q5_0:
		return []int{0}, 1. / 16
	case attn.Q4_1, attn.Q5_1:
		return []int{0, 2}, 1. / 16
	case attn.Q4_K, attn.Q5_K:
		return []int{0, 2}, 1. / 1024
	}
	return []int{208}, 1. / 2048
}

// randomBlock fills a block with random bits and sensible scales.
func randomBlock(rng *rand.Rand, dt attn.DType, b []byte) {
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	at, size := scalePlaces(dt)
	for _, a := range at {
		d := size * (0.25 + rng.Float64())
		if rng.IntN(4) == 0 {
			d = -d
		}
		le.PutUint16(b[a:], uint16(formats[attn.F16].encode(d)))
	}
}
