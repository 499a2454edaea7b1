package quant

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gaze-ml/gaze/internal/attn"
)

const eps = 1.0 / (1 << 24) // half a unit in the last place

// stored is a matrix of random weights. The rows start at any address and lie pad bytes apart; the bytes between and around them
// are 0xff, which as part of any float is NaN.
func stored(r *rand.Rand, d attn.DType, out, in int) *Weights {
	row := in / d.BlockLen() * d.Size()
	pad := r.IntN(3) * d.Size() % 64
	w := &Weights{DType: d, Stride: row + pad, In: in}
	n := max(0, (out-1)*w.Stride+row)
	array := slices.Repeat([]byte{0xff}, n+128)
	off := 32 + r.IntN(33)
	if d.BlockLen() == 1 {
		off = off / 4 * 4
	}
	w.Data = array[off : off+n : off+n]
	for o := range out {
		fill(r, d, w.Data[o*w.Stride:][:row])
	}
	return w
}

var nan = float32(math.NaN())

// activations is [tokens, in] of leading dimension ld, with NaN in the gaps and around.
func activations(r *rand.Rand, tokens, in, ld int) []float32 {
	array := slices.Repeat([]float32{nan}, tokens*ld+64)
	x := array[32+r.IntN(16):][:(tokens-1)*ld+in]
	for i := range x {
		if i%ld < in {
			x[i] = float32(r.NormFloat64())
		}
	}
	return x
}

func scratchFor(in int) []float32 { return slices.Repeat([]float32{nan}, ScratchLen(in)) }

// checkMatMul compares rows from to to of a product with float64's, and the rest of the output with what it was before.
func checkMatMul(t *testing.T, r *rand.Rand, w *Weights, tokens, out, from, to int) {
	t.Helper()
	ldx, ldy := w.In+r.IntN(3), out+r.IntN(3)
	x := activations(r, tokens, w.In, ldx)
	const guard = 20
	array := slices.Repeat([]float32{-99}, tokens*ldy+2*guard)
	y := array[guard : guard+(tokens-1)*ldy+out]
	MatMul(y, ldy, x, ldx, tokens, w, from, to, scratchFor(w.In))
	for i, got := range array {
		token, o := (i-guard)/ldy, (i-guard)%ldy
		if i < guard || token >= tokens || o < from || o >= to {
			if got != -99 {
				t.Fatalf("%v: %d tokens, in %d, rows %d to %d of %d: wrote outside, at %d", w.DType, tokens, w.In, from, to, out, i-guard)
			}
			continue
		}
		var want, size float64
		for c := range w.In {
			p := float64(x[token*ldx+c]) * weight(w.DType, w.Data[o*w.Stride:], c)
			want += p
			size += math.Abs(p)
		}
		// Formats with an offset round each weight once more, relative to terms that may cancel.
		if d := math.Abs(float64(got) - want); !(d <= float64(w.In+8)*eps*size) {
			t.Fatalf("%v: %d tokens, in %d, row %d of %d: got %v, want %v: off by %.3g of Σ|terms|", w.DType, tokens, w.In, o, out, got, want, d/size)
		}
	}
}

func TestMatMul(t *testing.T) {
	eachISA(t, func(t *testing.T, r *rand.Rand) {
		for _, d := range allTypes {
			unit := d.BlockLen()
			for tokens := 1; tokens <= 17; tokens++ {
				const out = 23
				in := unit * (1 + r.IntN(5))
				if unit == 1 {
					in = 1 + r.IntN(150)
				}
				from := r.IntN(out)
				checkMatMul(t, r, stored(r, d, out, in), tokens, out, from, from+r.IntN(out-from+1))
			}
			for out := 1; out <= 9; out++ { // few rows
				checkMatMul(t, r, stored(r, d, out, 256), 1, out, 0, out)
			}
			checkMatMul(t, r, stored(r, d, 70, 256), 5, 70, 3, 70)        // several tiles of rows
			checkMatMul(t, r, stored(r, d, 5, tileIn+256), 1, 5, 0, 5)    // several tiles of columns
			checkMatMul(t, r, stored(r, d, 5, 2*tileIn+256), 40, 5, 1, 5) // and more tokens than one part holds
		}
		const rows = storedRows + 9
		checkMatMul(t, r, stored(r, attn.Q4_0, rows, 32), 3, rows, 0, rows) // several tiles of rows as they are stored
		checkMatMul(t, r, stored(r, attn.Q4_0, rows, tileIn+32), 1, rows, 0, rows)
	})
}

// A token's result must not depend on the tokens beside it nor on how threads share the rows.
func TestMatMulDoesNotDependOnTheBatch(t *testing.T) {
	eachISA(t, func(t *testing.T, r *rand.Rand) {
		for _, d := range allTypes {
			for _, in := range []int{256, 768, tileIn + 512} {
				const tokens, out = 7, 41
				w, x, scratch := stored(r, d, out, in), activations(r, tokens, in, in), scratchFor(in)
				all, part := make([]float32, tokens*out), make([]float32, tokens*out)
				MatMul(all, out, x, in, tokens, w, 0, out, scratch)
				for n := 1; n <= tokens; n++ {
					for from := 0; from < out; from += n {
						MatMul(part, out, x[(tokens-n)*in:], in, n, w, from, min(out, from+n), scratch)
					}
					if want := all[(tokens-n)*out:]; !slices.Equal(part[:n*out], want) {
						t.Fatalf("%v: in %d: %d tokens, %d rows at a time, differ from %d tokens", d, in, n, n, tokens)
					}
				}
			}
		}
	})
}

// An Inf or NaN in one row of the weights or activations must stay in its row and column of the output.
func TestMatMulKeepsNaNToItsRow(t *testing.T) {
	eachISA(t, func(t *testing.T, r *rand.Rand) {
		for _, d := range allTypes {
			for _, tokens := range []int{1, 2, 5} {
				const out, in = 11, 256
				w, x, y := stored(r, d, out, in), activations(r, tokens, in, in), make([]float32, tokens*out)
				for i := range d.Size() {
					w.Data[3*w.Stride+i] = 0xff
				}
				x[(tokens-1)*in+17] = nan
				MatMul(y, out, x, in, tokens, w, 0, out, scratchFor(in))
				for i, v := range y {
					if bad := i%out == 3 || i/out == tokens-1; bad != (v != v) {
						t.Fatalf("%v: %d tokens: output %d, %d is %v", d, tokens, i/out, i%out, v)
					}
				}
			}
		}
	})
}

func TestMatMulOfNothing(t *testing.T) {
	eachISA(t, func(t *testing.T, r *rand.Rand) {
		y := []float32{1, 2, 3, 4}
		MatMul(y, 2, nil, 0, 2, &Weights{DType: attn.F16, Data: nil}, 0, 1, scratchFor(0))
		if !slices.Equal(y, []float32{0, 2, 0, 4}) {
			t.Errorf("in = 0: %v, want zeros in column 0", y)
		}
		MatMul(y, 2, nil, 32, 0, stored(r, attn.Q4_0, 2, 32), 0, 2, scratchFor(32))
		MatMul(y, 2, y, 32, 2, stored(r, attn.Q4_0, 2, 32), 1, 1, scratchFor(32))
	})
}

func TestMatMulDoesNotAllocate(t *testing.T) {
	eachISA(t, func(t *testing.T, r *rand.Rand) {
		for _, d := range allTypes {
			for _, tokens := range []int{1, 8} {
				w, x, y, scratch := stored(r, d, 9, 256), activations(r, tokens, 256, 256), make([]float32, tokens*9), scratchFor(256)
				if n := testing.AllocsPerRun(5, func() { MatMul(y, 9, x, 256, tokens, w, 0, 9, scratch) }); n != 0 {
					t.Errorf("%v, %d tokens: %v allocations", d, tokens, n)
				}
			}
		}
	})
}
