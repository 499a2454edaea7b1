package quant

import (
	"encoding/binary"

	"github.com/gaze-ml/gaze/internal/half"
)

// The layouts are those of ggml's block_* structures and dequantize_row_* functions (ggml-common.h, ggml-quants.c).

func f16(b []byte) float32 { return half.F16(binary.LittleEndian.Uint16(b)).Float32() }

func decodeQ8_0(w []float32, b []byte) {
	d, q := f16(b), b[2:34]
	for i := range w[:32] {
		w[i] = d * float32(int8(q[i]))
	}
}

func decodeQ4_0(w []float32, b []byte) {
	d := f16(b)
	nibbles(w, b[2:], 0, d, -8*d)
}

func decodeQ4_1(w []float32, b []byte) {
	nibbles(w, b[4:], 0, f16(b), f16(b[2:]))
}

func decodeQ5_0(w []float32, b []byte) {
	d := f16(b)
	nibbles(w, b[6:], binary.LittleEndian.Uint32(b[2:]), d, -16*d)
}

func decodeQ5_1(w []float32, b []byte) {
	nibbles(w, b[8:], binary.LittleEndian.Uint32(b[4:]), f16(b), f16(b[2:]))
}

// nibbles widens 32 codes: the low halves of 16 bytes, then the high ones, with fifth bits. The products are exact.
func nibbles(w []float32, q []byte, fifth uint32, d, m float32) {
	lo, hi, q := w[:16], w[16:32], q[:16]
	for i, c := range q {
		lo[i] = d*float32(uint32(c&15)|fifth>>i&1<<4) + m
		hi[i] = d*float32(uint32(c>>4)|fifth>>(i+16)&1<<4) + m
	}
}

// scalesK unpacks the 8 scales and 8 mins of a Q4_K or Q5_K block: the first four of each are the low six bits of bytes 0-3 and 4-7,
// the others a nibble of bytes 8-11 under the top two bits of bytes 0-3 and 4-7.
func scalesK(b []byte) (s, t [8]uint8) {
	for i := range 4 {
		s[i], t[i] = b[i]&63, b[4+i]&63
		s[4+i] = b[8+i]&15 | b[i]>>6<<4
		t[4+i] = b[8+i]>>4 | b[4+i]>>6<<4
	}
	return s, t
}

func decodeQ4_K(w []float32, b []byte) { decodeK(w, b, nil, b[16:144]) }

func decodeQ5_K(w []float32, b []byte) { decodeK(w, b, b[16:48], b[48:176]) }

// decodeK widens 8 runs of 32 codes: run 2r is the low nibbles of bytes 32r to 32r+31, run 2r+1 the high ones; bit i of fifth's
// bytes belongs to run i.
func decodeK(w []float32, b, fifth, q []byte) {
	d, dmin := f16(b), f16(b[2:])
	s, t := scalesK(b[4:16])
	for i := range 8 {
		run, q := w[32*i:][:32], q[i/2*32:][:32]
		scale, offset := d*float32(s[i]), dmin*float32(t[i])
		for j := range run {
			code := q[j] >> (i % 2 * 4) & 15
			if fifth != nil {
				code |= fifth[j] >> i & 1 << 4
			}
			run[j] = scale*float32(code) - offset
		}
	}
}

// decodeQ6_K widens two halves of four runs of 32 codes: runs 0 and 1 of a half are the low nibbles of its 64 bytes, 2 and 3 the
// high ones; bits 2r and 2r+1 of its 32 bytes of upper bits belong to run r.
func decodeQ6_K(w []float32, b []byte) {
	nibbles, upper, s, d := b[:128], b[128:192], b[192:208], f16(b[208:])
	for i := range 8 {
		h, r := i/4, i%4
		run, q, u := w[32*i:][:32], nibbles[64*h+32*(r%2):][:32], upper[32*h:][:32]
		for j := range run {
			code := int(q[j]>>(r/2*4)&15 | u[j]>>(2*r)&3<<4)
			run[j] = d * float32(int8(s[2*i+j/16])) * float32(code-32)
		}
	}
}
