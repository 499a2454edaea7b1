package quant

import (
	"encoding/binary"
	"math"

	"github.com/gaze-ml/gaze/internal/half"
)

// putF16 stores f as float16 and returns what was stored.
func putF16(b []byte, f float32) float32 {
	h := half.F16FromFloat32(f)
	binary.LittleEndian.PutUint16(b, uint16(h))
	return h.Float32()
}

// code is (w-m)/d as the nearest integer in [low, high]; 0 where d is 0.
func code(w, m, d float32, low, high int) int {
	if d == 0 {
		return max(low, 0)
	}
	return min(max(int(math.RoundToEven(float64((w-m)/d))), low), high)
}

// peak is the element of w that is largest by magnitude.
func peak(w []float32) (p float32) {
	for _, v := range w {
		if math.Abs(float64(v)) > math.Abs(float64(p)) {
			p = v
		}
	}
	return p
}

func limits(w []float32) (low, high float32) {
	low, high = w[0], w[0]
	for _, v := range w {
		low, high = min(low, v), max(high, v)
	}
	return low, high
}

func encodeQ8_0(b []byte, w []float32) {
	d := putF16(b, float32(math.Abs(float64(peak(w))))/127)
	for i, v := range w {
		b[2+i] = byte(code(v, 0, d, -127, 127))
	}
}

// The formats without an offset have one more code below zero than above, so the peak gets the lowest code.

func encodeQ4_0(b []byte, w []float32) {
	d := putF16(b, peak(w)/-8)
	putNibbles(b[2:], nil, w, d, -8*d, 15)
}

func encodeQ4_1(b []byte, w []float32) {
	low, high := limits(w)
	d, m := putF16(b, (high-low)/15), putF16(b[2:], low)
	putNibbles(b[4:], nil, w, d, m, 15)
}

func encodeQ5_0(b []byte, w []float32) {
	d := putF16(b, peak(w)/-16)
	putNibbles(b[6:], b[2:], w, d, -16*d, 31)
}

func encodeQ5_1(b []byte, w []float32) {
	low, high := limits(w)
	d, m := putF16(b, (high-low)/31), putF16(b[2:], low)
	putNibbles(b[8:], b[4:], w, d, m, 31)
}

func putNibbles(q, fifth []byte, w []float32, d, m float32, highest int) {
	var bits uint32
	for i := range 16 {
		lo, hi := code(w[i], m, d, 0, highest), code(w[16+i], m, d, 0, highest)
		q[i] = byte(lo&15 | hi&15<<4)
		bits |= uint32(lo>>4)<<i | uint32(hi>>4)<<(16+i)
	}
	if fifth != nil {
		binary.LittleEndian.PutUint32(fifth, bits)
	}
}

func encodeQ4_K(b []byte, w []float32) { encodeK(b, nil, b[16:144], w, 15) }

func encodeQ5_K(b []byte, w []float32) { encodeK(b, b[16:48], b[48:176], w, 31) }

func encodeK(b, fifth, q []byte, w []float32, highest int) {
	var scales, offsets [8]float32
	for i := range scales {
		low, high := limits(w[32*i:][:32])
		low = min(low, 0) // an offset can only lower
		scales[i], offsets[i] = (high-low)/float32(highest), -low
	}
	_, s := limits(scales[:])
	_, t := limits(offsets[:])
	d, dmin := putF16(b, s/63), putF16(b[2:], t/63)
	clear(b[4:16])
	clear(q)
	clear(fifth)
	for i := range 8 {
		s, t := code(scales[i], 0, d, 0, 63), code(offsets[i], 0, dmin, 0, 63)
		if i < 4 {
			b[4+i] |= byte(s)
			b[8+i] |= byte(t)
		} else {
			b[8+i] |= byte(s&15 | t&15<<4)
			b[i] |= byte(s >> 4 << 6)
			b[4+i] |= byte(t >> 4 << 6)
		}
		for j, v := range w[32*i:][:32] {
			c := code(v, -dmin*float32(t), d*float32(s), 0, highest)
			q[i/2*32+j] |= byte(c & 15 << (i % 2 * 4))
			if fifth != nil {
				fifth[j] |= byte(c >> 4 << i)
			}
		}
	}
}

func encodeQ6_K(b []byte, w []float32) {
	nibbles, upper, scales := b[:128], b[128:192], b[192:208]
	var s [16]float32
	for i := range s {
		s[i] = peak(w[16*i:][:16]) / -32
	}
	d := putF16(b[208:], peak(s[:])/-128)
	clear(b[:192])
	for i := range 16 {
		c := code(s[i], 0, d, -128, 127)
		scales[i] = byte(c)
		for j, v := range w[16*i:][:16] {
			code := code(v, 0, d*float32(c), -32, 31) + 32
			h, r, k := i/8, i%8/2, i%2*16+j // half, run, place in the run
			nibbles[64*h+32*(r%2)+k] |= byte(code & 15 << (r / 2 * 4))
			upper[32*h+k] |= byte(code >> 4 << (2 * r))
		}
	}
}
