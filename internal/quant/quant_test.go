package quant

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/gaze-ml/gaze/internal/attn"
	"github.com/gaze-ml/gaze/internal/half"
	"github.com/gaze-ml/gaze/internal/simd"
)

const seed = 1

var (
	blockTypes = []attn.DType{attn.Q8_0, attn.Q4_0, attn.Q4_1, attn.Q5_0, attn.Q5_1, attn.Q4_K, attn.Q5_K, attn.Q6_K}
	allTypes   = append([]attn.DType{attn.F32, attn.F16, attn.BF16}, blockTypes...)
)

// eachISA runs f under every instruction set of this machine, with the same random numbers.
func eachISA(t *testing.T, f func(t *testing.T, r *rand.Rand)) {
	for _, isa := range simd.Available() {
		t.Run("isa="+isa.String(), func(t *testing.T) {
			defer simd.Use(isa)()
			t.Logf("seed %d", seed)
			f(t, rand.New(rand.NewPCG(seed, 0)))
		})
	}
}

// scales tells where a block's float16 fields are.
var scales = map[attn.DType][]int{
	attn.Q8_0: {0}, attn.Q4_0: {0}, attn.Q4_1: {0, 2}, attn.Q5_0: {0}, attn.Q5_1: {0, 2}, attn.Q4_K: {0, 2}, attn.Q5_K: {0, 2}, attn.Q6_K: {208},
}

// fill makes random elements of type d: any bits, but for scales and floats that stay near 1.
func fill(r *rand.Rand, d attn.DType, b []byte) {
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	put := binary.LittleEndian.PutUint16
	for e := range len(b) / d.Size() {
		v, e := float32(r.NormFloat64()), b[e*d.Size():]
		switch d {
		case attn.F32:
			binary.LittleEndian.PutUint32(e, math.Float32bits(v))
		case attn.F16:
			put(e, uint16(half.F16FromFloat32(v)))
		case attn.BF16:
			put(e, uint16(half.BF16FromFloat32(v)))
		default:
			for _, at := range scales[d] {
				put(e[at:], uint16(half.F16FromFloat32(float32(r.NormFloat64()))))
			}
		}
	}
}

// weight is weight i of a row of type d, by the formats' definition, one bit field at a time.
func weight(d attn.DType, row []byte, i int) float64 {
	b, i := row[i/d.BlockLen()*d.Size():][:d.Size()], i%d.BlockLen()
	f16 := func(at int) float64 { return float64(half.F16(binary.LittleEndian.Uint16(b[at:])).Float32()) }
	bits := func(at, shift, n int) int { return int(b[at+shift/8]) >> (shift % 8) & (1<<n - 1) }
	nibble := func(at int) int { return bits(at+i%16, i/16*4, 4) }
	fifth := func(at int) int { return bits(at, i, 1) << 4 }
	run, j := i/32, i%32
	nibbleK := func(at int) int { return bits(at+run/2*32+j, run%2*4, 4) }
	affineK := func(code int) float64 { // six bits of scale and of min, split for the last four runs
		s, t := bits(4+run%4, 0, 6), bits(8+run%4, 0, 6)
		if run >= 4 {
			s = bits(8+run, 0, 4) + bits(run, 6, 2)<<4
			t = bits(8+run, 4, 4) + bits(4+run, 6, 2)<<4
		}
		return f16(0)*float64(s*code) - f16(2)*float64(t)
	}
	switch d {
	case attn.F32:
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(b)))
	case attn.F16:
		return f16(0)
	case attn.BF16:
		return float64(half.BF16(binary.LittleEndian.Uint16(b)).Float32())
	case attn.Q8_0:
		return f16(0) * float64(int8(b[2+i]))
	case attn.Q4_0:
		return f16(0) * float64(nibble(2)-8)
	case attn.Q4_1:
		return f16(0)*float64(nibble(4)) + f16(2)
	case attn.Q5_0:
		return f16(0) * float64(nibble(6)+fifth(2)-16)
	case attn.Q5_1:
		return f16(0)*float64(nibble(8)+fifth(4)) + f16(2)
	case attn.Q4_K:
		return affineK(nibbleK(16))
	case attn.Q5_K:
		return affineK(nibbleK(48) + bits(16+j, run, 1)<<4)
	case attn.Q6_K:
		code := bits(i/128*64+i%64, i%128/64*4, 4) + bits(128+i/128*32+j, i%128/32*2, 2)<<4
		return f16(208) * float64(int8(b[192+i/16])) * float64(code-32)
	}
	panic(d)
}

func TestBlockSizes(t *testing.T) {
	for d, size := range map[attn.DType]uintptr{
		attn.Q8_0: unsafe.Sizeof(BlockQ8_0{}), attn.Q4_0: unsafe.Sizeof(BlockQ4_0{}), attn.Q4_1: unsafe.Sizeof(BlockQ4_1{}),
		attn.Q5_0: unsafe.Sizeof(BlockQ5_0{}), attn.Q5_1: unsafe.Sizeof(BlockQ5_1{}), attn.Q4_K: unsafe.Sizeof(BlockQ4_K{}),
		attn.Q5_K: unsafe.Sizeof(BlockQ5_K{}), attn.Q6_K: unsafe.Sizeof(BlockQ6_K{}),
	} {
		if int(size) != d.Size() {
			t.Errorf("%v: a block type of %d bytes, want %d", d, size, d.Size())
		}
	}
}

func TestDequantize(t *testing.T) {
	eachISA(t, func(t *testing.T, r *rand.Rand) {
		for _, d := range allTypes {
			for _, blocks := range []int{0, 1, 2, 3, 7, 40} {
				const guard = 16
				src := make([]byte, 3+blocks*d.Size()) // any alignment
				src = src[3:]
				fill(r, d, src)
				n := blocks * d.BlockLen()
				array := make([]float32, n+2*guard)
				dst := array[guard : guard+n]
				Dequantize(d, dst, src)
				for i, got := range dst {
					if want := float32(weight(d, src, i)); got != want {
						t.Fatalf("%v: weight %d of %d blocks is %v, want %v", d, i, blocks, got, want)
					}
				}
				for i := range guard {
					if array[i] != 0 || array[guard+n+i] != 0 {
						t.Fatalf("%v: wrote outside dst", d)
					}
				}
			}
		}
	})
}

// Every weight comes back within half of the step that its block allows, and what rounding the scales to float16 and to 6 or 8 bits
// adds. On the side opposite to the peak, the formats without an offset have one code less: there it may be a whole step.
func TestQuantize(t *testing.T) {
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for _, q := range []struct {
		d     attn.DType
		run   int     // weights that share a scale
		steps float64 // in their range, from the largest to the smallest or, without an offset, from the peak to 0
		off   float64
	}{
		{attn.F32, 1, 1 << 30, 0}, {attn.F16, 1, 1 << 10, 0.5}, {attn.BF16, 1, 1 << 7, 0.5}, {attn.Q8_0, 32, 127, 0.51},
		{attn.Q4_0, 32, 8, 1.01}, {attn.Q4_1, 32, 15, 0.51}, {attn.Q5_0, 32, 16, 1.01}, {attn.Q5_1, 32, 31, 0.52},
		{attn.Q4_K, 32, 15, 0.75}, {attn.Q5_K, 32, 31, 1}, {attn.Q6_K, 16, 32, 1.1},
	} {
		d := q.d
		src := make([]float32, 5*256)
		for i := range src {
			src[i] = float32(r.NormFloat64())
		}
		clear(src[256:512])
		b, dst := make([]byte, len(src)/d.BlockLen()*d.Size()), make([]float32, len(src))
		for i := range b {
			b[i] = 0xaa // left from an earlier use
		}
		Quantize(d, b, src)
		Dequantize(d, dst, b)
		for i, w := range src {
			var low, high float64
			for _, v := range src[i/q.run*q.run:][:q.run] {
				low, high = min(low, float64(v)), max(high, float64(v))
			}
			extent := max(high, -low)
			if len(scales[d]) == 2 {
				extent = high - low
			}
			if diff := math.Abs(float64(dst[i] - w)); !(diff <= q.off*extent/q.steps) {
				t.Errorf("%v: weight %d, %v, comes back as %v: %.3g steps off", d, i, w, dst[i], diff/extent*q.steps)
			}
		}
	}
}
