package opstest

import (
	"fmt"
	"slices"

	"github.com/gaze-ml/gaze/internal/attn"
)

// Append writes the rows. It checks every row before it writes the first.
func (r *Reference) Append(c *attn.AppendCall) error {
	type row struct{ t, b, pos int }
	var rows []row
	page, requests := c.KeyCache.Shape[2], c.BlockTables.Shape[0]
	if c.Positions.Valid() {
		for t := range c.Key.Shape[0] {
			if pos := intAt(&c.Positions, t); pos != -1 {
				rows = append(rows, row{t, intAt(&c.Requests, t), pos})
			}
		}
	} else {
		for b := range requests {
			lo, hi := intAt(&c.CumSeqLens, b), intAt(&c.CumSeqLens, b+1)
			if lo < 0 || hi < lo || hi > c.Key.Shape[0] || b == 0 && lo != 0 {
				return value("cum_seq_lens", c.Op(), fmt.Sprintf("a rising prefix sum from 0 to %d", c.Key.Shape[0]), "%d and %d for request %d", lo, hi, b)
			}
			for t := lo; t < hi; t++ {
				rows = append(rows, row{t, b, intAt(&c.StartPositions, b) + t - lo})
			}
		}
	}
	for _, w := range rows {
		if w.b < 0 || w.b >= requests {
			return value("requests", c.Op(), fmt.Sprintf("0 to %d", requests-1), "%d in row %d", w.b, w.t)
		}
		if w.pos < 0 || w.pos >= c.BlockTables.Shape[1]*page {
			arg := "positions"
			if !c.Positions.Valid() {
				arg = "start_positions"
			}
			return value(arg, c.Op(), fmt.Sprintf("-1 to %d", c.BlockTables.Shape[1]*page-1), "%d for request %d", w.pos, w.b)
		}
		id := intAt(&c.BlockTables, w.b*c.BlockTables.Stride[0]+w.pos/page)
		if id < 0 || id >= c.KeyCache.Shape[0] {
			return value("block_tables", c.Op(), fmt.Sprintf("a page of 0 to %d", c.KeyCache.Shape[0]-1), "%d for request %d", id, w.b)
		}
	}
	r.appendQuery(c, func() (at []int) {
		at = slices.Repeat([]int{-1}, c.Key.Shape[0])
		for _, w := range rows {
			at[w.t] = w.pos
		}
		return at
	})
	for _, w := range rows {
		for h := range c.Key.Shape[1] {
			for _, side := range []struct {
				cache, rows *attn.Tensor
				scale       float64
			}{{&c.KeyCache, &c.Key, c.KScale}, {&c.ValueCache, &c.Value, c.VScale}} {
				x := make([]float64, side.rows.Shape[2])
				floatsAt(x, side.rows, w.t*side.rows.Stride[0]+h*side.rows.Stride[1])
				if side.rows == &c.Key || r.skips("V as it is") {
					x = r.turned(c, x, w.pos)
				}
				for d := range x {
					x[d] /= side.scale
					if r.skips("divide by the scale") {
						x[d] *= side.scale * side.scale
					}
				}
				id := intAt(&c.BlockTables, w.b*c.BlockTables.Stride[0]+w.pos/page)
				slot := r.at("append slot", w.pos%page, c)
				r.set(side.cache, r.at("page offset", id*side.cache.Stride[0], c)+h*side.cache.Stride[1]+slot*side.cache.Stride[2], x...)
			}
		}
	}
	return nil
}

// turned is a head of a row at pos after RoPE.
func (r *Reference) turned(c *attn.AppendCall, x []float64, pos int) []float64 {
	if !c.RoPE() {
		return x
	}
	var factors []float64
	if c.Factors.Valid() {
		factors = rows(&c.Factors)
	}
	y := make([]float64, len(x))
	rope(y, x, &c.RoPEConfig, factors, r.at("position", pos, c))
	if r.skips("one rounding") {
		for i := range y {
			y[i] = formats[c.Key.DType].round(y[i])
		}
	}
	return y
}

// appendQuery turns the query's rows, which are at these positions.
func (r *Reference) appendQuery(c *attn.AppendCall, positions func() []int) {
	if !c.Query.Valid() {
		return
	}
	d, heads := c.Query.Shape[2], c.Query.Shape[1]
	x := rows(&c.Query)
	for t, pos := range positions() {
		for h := range heads {
			n := (t*heads + h) * d
			switch y := x[n:][:d]; {
			case pos >= 0 && !r.skips("turn the query"):
				r.set(&c.QueryOut, n, r.turned(c, y, pos)...)
			case pos >= 0 || !r.skips("copy skipped queries"):
				r.set(&c.QueryOut, n, y...)
			}
		}
	}
}

// rows reads a float operand of any rank as rows of its last dimensions.
func rows(t *attn.Tensor) []float64 {
	n := t.Len()
	out := make([]float64, n)
	if t.Rank < 2 || n == 0 {
		if n > 0 {
			floatsAt(out, t, 0)
		}
		return out
	}
	width := n / t.Shape[0]
	inner := t.Shape[t.Rank-1]
	for r := range t.Shape[0] {
		for m := range width / inner { // at most one dimension between the first and the last
			at := r * t.Stride[0]
			if t.Rank == 3 {
				at += m * t.Stride[1]
			}
			floatsAt(out[r*width+m*inner:][:inner], t, at)
		}
	}
	return out
}

// weights reads a weight matrix of any format.
func (r *Reference) weights(t *attn.Tensor) []float64 {
	if !t.DType.Quantised() {
		return rows(t)
	}
	n := t.DType.BlockLen()
	out := make([]float64, t.Len()*n)
	for i := range t.Shape[0] {
		for b := range t.Shape[1] {
			dst := out[(i*t.Shape[1]+b)*n:][:n]
			dequantise(dst, t.DType, bytesAt(t, i*t.Stride[0]+b, 1))
		}
	}
	return out
}

// RMSNorm computes the call.
func (r *Reference) RMSNorm(c *attn.RMSNormCall) error {
	x := rows(&c.X)
	if c.Residual.Valid() {
		for i, y := range rows(&c.Residual) {
			x[i] += y
		}
		if c.Sum.Ptr != nil {
			r.set(&c.Sum, 0, x...)
		}
	}
	r.set(&c.Out, 0, rmsNorm(x, rows(&c.Weight), c.Eps)...)
	return nil
}

// RoPE computes the call.
func (r *Reference) RoPE(c *attn.RoPECall) error {
	x := rows(&c.X)
	out := make([]float64, len(x))
	var factors []float64
	if c.Factors.Valid() {
		factors = rows(&c.Factors)
	}
	for t := range c.X.Shape[0] {
		if pos := intAt(&c.Positions, t); pos < -1 {
			return value("positions", c.Op(), "-1 or more", "%d in row %d", pos, t)
		}
	}
	heads, d := c.X.Shape[1], c.X.Shape[2]
	for n := range c.X.Shape[0] * heads {
		rope(out[n*d:(n+1)*d], x[n*d:(n+1)*d], &c.RoPEConfig, factors, r.at("position", intAt(&c.Positions, n/heads), c))
	}
	r.set(&c.Out, 0, out...)
	return nil
}

// Linear computes the call.
func (r *Reference) Linear(c *attn.LinearCall) error {
	x, w := rows(&c.X), r.weights(&c.Weight)
	n := c.X.Shape[1]
	bias := make([]float64, c.Weight.Shape[0])
	if c.Bias.Valid() && !r.skips("bias") {
		bias = rows(&c.Bias)
	}
	for t := range c.X.Shape[0] {
		for o := range bias {
			r.set(&c.Out, t*len(bias)+o, bias[o]+dot(x[t*n:(t+1)*n], w[o*n:(o+1)*n]))
		}
	}
	return nil
}

// SiLUMul computes the call.
func (r *Reference) SiLUMul(c *attn.SiLUMulCall) error {
	gate, up := rows(&c.Gate), rows(&c.Up)
	if r.skips("gate before up") {
		gate, up = up, gate
	}
	for i := range gate {
		r.set(&c.Out, i, siluMul(gate[i], up[i]))
	}
	return nil
}

// Embedding gathers the rows.
func (r *Reference) Embedding(c *attn.EmbeddingCall) error {
	w := r.weights(&c.Weight)
	n := c.Weight.Shape[1] * c.Weight.DType.BlockLen()
	for t := range c.IDs.Shape[0] {
		if id := intAt(&c.IDs, t); id < 0 || id >= c.Weight.Shape[0] {
			return value("ids", c.Op(), fmt.Sprintf("0 to %d", c.Weight.Shape[0]-1), "%d at %d", id, t)
		}
	}
	for t := range c.IDs.Shape[0] {
		id := intAt(&c.IDs, t)
		r.set(&c.Out, t*n, w[id*n:(id+1)*n]...)
	}
	return nil
}

// MergeLSE joins the two halves.
func (r *Reference) MergeLSE(c *attn.MergeLSECall) error {
	a, b, la, lb := rows(&c.OutA), rows(&c.OutB), rows(&c.LSEA), rows(&c.LSEB)
	d := c.OutA.Shape[2]
	dst := make([]float64, d)
	for n := range la {
		l := mergeLSE(dst, a[n*d:(n+1)*d], b[n*d:(n+1)*d], la[n], lb[n])
		r.set(&c.Out, n*d, dst...)
		r.set(&c.LSE, n, l)
	}
	return nil
}
