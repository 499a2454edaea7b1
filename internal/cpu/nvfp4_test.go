package cpu

import (
	"bytes"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/gaze-ml/gaze/internal/attn"
	"github.com/gaze-ml/gaze/internal/half"
)

// fp4 decodes attention whose result is v [heads][128] in every one of 5 rows, to nvfp4.
func fp4(t *testing.T, b *Backend, v [][]float32, encode float64, startRow, scaleRows int) (c attn.DecodeCall) {
	heads, d := len(v), len(v[0])
	c = attn.NewDecodeCall()
	c.Query, c.Key = fresh(attn.E4M3, 5, heads, d), fresh(attn.E4M3, 5, heads, 1, d)
	var all []float32
	for range 5 {
		for _, head := range v {
			all = append(all, head...)
		}
	}
	c.Value = of(attn.E4M3, all, 5, heads, 1, d)
	c.BlockTables, c.SeqLens = reshape(ints(0, 1, 2, 3, 4), 5, 1), repeat(5, 1)
	c.OutDType, c.OSFScale, c.SFStartRow = attn.U8, encode, startRow
	c.OutScale = fresh(attn.E4M3, scaleRows, (heads*d/16+3)/4*4)
	copy(slice[byte](c.OutScale.Ptr, c.OutScale.Len()), bytes.Repeat([]byte{0xee}, c.OutScale.Len()))
	infer(t, &c)
	allocate(&c.Out)
	run(t, b, &c)
	return c
}

// The case of the specification: 3.0 everywhere is scale 0.5 and code 7 (6), a block of zeros has scale 0, one 6 among zeros scale 1.
// Every scale lies where the layout says, and no byte of another row is written.
func TestNVFP4(t *testing.T) {
	b := backend(t, 2)
	one := make([]float32, 128)
	one[37] = 6
	for _, start := range []int{0, 62, 130} {
		v := [][]float32{filled(128, 3), make([]float32, 128), one}
		c := fp4(t, b, v, 1, start, 256)
		data, scales := slice[byte](c.Out.Ptr, c.Out.Bytes()), slice[byte](c.OutScale.Ptr, c.OutScale.Len())
		rows, columns := c.OutScale.Shape[0], c.OutScale.Shape[1]
		seen := make([]bool, len(scales))
		for m := range rows {
			for k := range columns {
				at := ((m/128)*(columns/4)+k/4)*512 + m%32*16 + m%128/32*4 + k%4
				if seen[at] {
					t.Fatalf("byte %d belongs to two scales", at)
				}
				seen[at] = true
				want := byte(0xee)
				if m >= start && m < start+5 {
					switch {
					case k < 8:
						want = 0x30
					case k == 16+2:
						want = 0x38
					default:
						want = 0
					}
				}
				if scales[at] != want {
					t.Fatalf("start %d: scale of row %d column %d is %#x, want %#x", start, m, k, scales[at], want)
				}
			}
		}
		for i, got := range data {
			want := byte(0)
			switch h := i / 64 % 3; {
			case h == 0:
				want = 0x77
			case h == 2 && i%64 == 37/2:
				want = 0x70 // an odd element: the high nibble
			}
			if got != want {
				t.Fatalf("start %d: data[%d] = %#x, want %#x", start, i, got, want)
			}
		}
	}
}

// What is read back is within half a step of the value, for a scale that is far from 1.
func TestNVFP4RoundTrip(t *testing.T) {
	r := rand.New(rand.NewPCG(25, 26))
	v := [][]float32{normal(r, 128), normal(r, 128)}
	for h := range v {
		rounded := of(attn.E4M3, v[h], 128)
		v[h] = values(&rounded)
	}
	const encode = 300
	c := fp4(t, backend(t, 1), v, encode, 3, 128)
	data, scales := slice[byte](c.Out.Ptr, c.Out.Bytes()), slice[half.E4M3](c.OutScale.Ptr, c.OutScale.Len())
	for row := range 5 {
		for h := range v {
			for d, want := range v[h] {
				i := (row*2+h)*128 + d
				code := half.E2M1(data[i/2] >> (4 * (i % 2)) & 15)
				sf := scales[swizzle(3+row, (h*128+d)/16, c.OutScale.Shape[1])].Float32()
				got := code.Float32() * sf / encode
				step := 1.1 * float64(sf) / encode // codes are 2 apart at most; the scale's own rounding is a sixteenth
				if math.Abs(float64(got-want)) > step {
					t.Fatalf("row %d head %d element %d: %v, want %v ± %v", row, h, d, got, want, step)
				}
			}
		}
	}
}
