package quant

import (
	"github.com/gaze-ml/gaze/internal/attn"
	"github.com/gaze-ml/gaze/internal/simd"
)

// Weights is a matrix [Out, In] as a linear layer holds it.
type Weights struct {
	DType  attn.DType // a block type, F32, F16 or BF16
	Data   []byte     // from the first row's first byte to the last row's last
	Stride int        // bytes from one row to the next
	In     int        // weights in a row, a multiple of DType's block length
}

// from is the bytes from weight i of row o on.
func (w *Weights) from(o, i int) []byte {
	return w.Data[o*w.Stride+i/w.DType.BlockLen()*w.DType.Size():]
}

const (
	// A product goes by tiles of the weights: tileRows rows of tileIn weights, which as float32 fit a core's second-level cache.
	// Longer rows are the sum of several tiles.
	tileRows = 32
	tileIn   = 2048
	// partTokens tokens' sums over a tile are kept until they are added to the output.
	partTokens = 32
	// With widenFrom tokens or more it pays to widen a tile, once for all tokens. Fewer take the weights as they are stored and
	// tiles of storedRows rows: then nothing needs a place in the cache, and long streams are read fastest.
	widenFrom  = 4
	storedRows = tileRows * partTokens / (widenFrom - 1)
)

// ScratchLen is the number of float32s that [MatMul] needs for itself with rows of so many weights.
func ScratchLen(in int) int { return tileRows * (min(in, tileIn) + partTokens) }

// MatMul computes rows from to to-1 of a linear layer: y[t*ldy+o] = Σ_i x[t*ldx+i]·w[o,i] for each of a number of tokens t. x is [tokens,
// In] and y [tokens, Out]; other columns of y are left alone, so that several goroutines can share out the rows. scratch holds
// [ScratchLen](w.In) float32s that no one else uses during the call.
//
// Under one instruction set an element of y depends on its row of x and its row of w alone, down to the last bit: not on the number
// of tokens, nor on the range of rows.
func MatMul(y []float32, ldy int, x []float32, ldx, tokens int, w *Weights, from, to int, scratch []float32) {
	if tokens == 0 || from >= to {
		return
	}
	y, x = y[:(tokens-1)*ldy+to], x[:(tokens-1)*ldx+w.In]
	scratch = scratch[:ScratchLen(w.In)]
	part, wide := scratch[:tileRows*partTokens], scratch[tileRows*partTokens:]
	dot, height := kernelsOf(w.DType).dot, storedRows
	if dot == nil || tokens >= widenFrom || w.In%32 != 0 {
		dot, height = nil, tileRows
	}
	for o := from; o < to; o += height {
		rows := min(height, to-o)
		for i := 0; i == 0 || i < w.In; i += tileIn {
			t := w.tile(o, i, rows, dot, wide)
			if i == 0 {
				t.times(y[o:], ldy, x, ldx, tokens)
				continue
			}
			for first := 0; first < tokens; first += partTokens {
				n := min(partTokens, tokens-first)
				t.times(part, rows, x[first*ldx+i:], ldx, n)
				for j := range n {
					simd.Axpy(1, part[j*rows:][:rows], y[(first+j)*ldy+o:])
				}
			}
		}
	}
}

// A tile is rows×in weights: as float32 with leading dimension ld, or as they are stored, for dot to widen while it multiplies.
type tile struct {
	rows, in int
	wide     []float32
	ld       int
	dot      dotFunc
	stored   []byte
	stride   int
}

// tile readies the weights of rows rows from o and at most tileIn columns from i on: for dot unless it is nil, else as float32, in
// wide where they are stored otherwise.
func (w *Weights) tile(o, i, rows int, dot dotFunc, wide []float32) tile {
	t := tile{rows: rows, in: min(tileIn, w.In-i), wide: wide, dot: dot, stored: w.from(o, i), stride: w.Stride}
	t.stored = t.stored[:(rows-1)*w.Stride+t.in/w.DType.BlockLen()*w.DType.Size()]
	switch {
	case dot != nil:
	case w.DType == attn.F32 && w.Stride%4 == 0:
		t.wide, t.ld = view[float32](t.stored), w.Stride/4
	default:
		t.ld = t.in
		for r := range rows {
			Dequantize(w.DType, wide[r*t.ld:][:t.in], t.stored[r*w.Stride:])
		}
	}
	return t
}

// times writes the products of tokens rows of x with the tile's to y.
func (t *tile) times(y []float32, ldy int, x []float32, ldx, tokens int) {
	if t.dot == nil || t.in == 0 {
		simd.DotRows(y, ldy, x, ldx, tokens, t.wide, t.ld, t.rows, t.in)
		return
	}
	for i := range tokens {
		t.timesStored(y[i*ldy:][:t.rows], &x[i*ldx])
	}
}

// timesStored multiplies one token. dot takes four rows at a time; like simd.DotRows, the rest is the last four again or, where
// there are not four, one row four times.
func (t *tile) timesStored(y []float32, x *float32) {
	if t.rows < 4 {
		four := t.wide[:4]
		for j := range y {
			t.dot(&four[0], &t.stored[j*t.stride], 0, x, t.in, 1)
			y[j] = four[0]
		}
		return
	}
	t.dot(&y[0], &t.stored[0], t.stride, x, t.in, t.rows/4)
	if t.rows%4 != 0 {
		t.dot(&y[t.rows-4], &t.stored[(t.rows-4)*t.stride], t.stride, x, t.in, 1)
	}
}
