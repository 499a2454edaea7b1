package opstest

import (
	"fmt"
	"math"
	"unsafe"

	"github.com/gaze-ml/gaze/internal/attn"
)

// Reference is the naive oracle as a backend over host memory: slow, in float64, its outputs rounded once. It passes the whole
// suite, and it can stand in wherever a second opinion on a call is wanted.
type Reference struct{ faults faults }

// faults are the places where this package's tests bend the reference, to see that the suite notices.
type faults struct {
	problem  func(*problem, attn.Call)            // before it is solved
	solution func(*problem, *solution, attn.Call) // after
	store    func(t *attn.Tensor, at int, x float64) float64
	place    func(what string, at int, c attn.Call) int // where something lies: page, slot, stride, row …
	skip     func(what string) bool                     // leave a step out
}

// Name is "reference".
func (*Reference) Name() string { return "reference" }

// Supports has no reasons against any call.
func (*Reference) Supports(attn.Call) []error { return nil }

// WorkspaceSize is 0.
func (*Reference) WorkspaceSize(attn.Call) (int, error) { return 0, nil }

func (r *Reference) skips(what string) bool { return r.faults.skip != nil && r.faults.skip(what) }

func (r *Reference) at(what string, n int, c attn.Call) int {
	if r.faults.place != nil {
		return r.faults.place(what, n, c)
	}
	return n
}

// bytesAt is the memory of n elements from element offset at.
func bytesAt(t *attn.Tensor, at, n int) []byte {
	return unsafe.Slice((*byte)(t.At(at)), n*t.DType.Size())
}

// intAt reads one integer element.
func intAt(t *attn.Tensor, at int) int {
	switch b := bytesAt(t, at, 1); t.DType {
	case attn.I64:
		return int(int64(le.Uint64(b)))
	case attn.U32:
		return int(le.Uint32(b))
	case attn.U16:
		return int(le.Uint16(b))
	default:
		return int(int32(le.Uint32(b)))
	}
}

func floatsAt(dst []float64, t *attn.Tensor, at int) {
	decodeRow(dst, t.DType, bytesAt(t, at, len(dst)))
}

// scalarOr reads a device scale where there is one.
func (r *Reference) scalarOr(t *attn.Tensor, x float64) float64 {
	if !t.Valid() || r.skips("device scale") {
		return x
	}
	var v [1]float64
	floatsAt(v[:], t, 0)
	return v[0]
}

// set rounds values into an output.
func (r *Reference) set(t *attn.Tensor, at int, x ...float64) {
	if r.faults.store != nil {
		y := make([]float64, len(x))
		for i := range x {
			y[i] = r.faults.store(t, at+i, x[i])
		}
		x = y
	}
	encodeRow(bytesAt(t, at, len(x)), t.DType, x)
}

// pagedRows reads keys or values through the block table.
func (r *Reference) pagedRows(c attn.Call, what string, t, table *attn.Tensor, b int) func(j, h int, dst []float64) {
	return func(j, h int, dst []float64) {
		p := t.Shape[2]
		page := intAt(table, r.at("table row", b*table.Stride[0], c)+r.at("page", j/p, c))
		slot := r.at("slot", j%p, c)
		at := r.at("page offset", page*t.Stride[0], c) + h*t.Stride[1] + slot*t.Stride[2]
		floatsAt(dst, t, r.at(what, at, c))
	}
}

func value(arg, op, want, got string, a ...any) error {
	return attn.Errorf(attn.ErrArgument, op, arg, want, got, a...)
}

// checkTable checks one request's length against its table, and the entries that its l rows use.
func (r *Reference) checkTable(op, lens string, table *attn.Tensor, b, l, s, page, pages, limit int) error {
	if most := table.Shape[1] * page; s < 0 || s > most || s > limit {
		return value(lens, op, fmt.Sprintf("0 to %d", min(most, limit)), "%d for request %d", s, b)
	}
	if l == 0 {
		return nil
	}
	for n := range pagesFor(s, page) {
		if id := intAt(table, b*table.Stride[0]+n); id < 0 || id >= pages {
			return value("block_tables", op, fmt.Sprintf("a page of 0 to %d", pages-1), "%d in column %d of request %d", id, n, b)
		}
	}
	return nil
}

// Decode solves the call.
func (r *Reference) Decode(c *attn.DecodeCall) error {
	p, err := r.decodeProblem(c)
	if err != nil {
		return err
	}
	if r.faults.problem != nil {
		r.faults.problem(p, c)
	}
	sol := p.solve()
	if r.faults.solution != nil {
		r.faults.solution(p, sol, c)
	}
	each(p, func(row, h int) {
		x, n := sol.row(row, h), row*p.hq+h
		if c.NVFP4() {
			r.storeNVFP4(c, row, h, x)
		} else {
			r.set(&c.Out, n*p.dvo, x...)
		}
		r.setLSE(&c.LSE, &c.LSE2, n, sol.lse[n])
	})
	return nil
}

func (r *Reference) setLSE(lse, lse2 *attn.Tensor, at int, x float64) {
	if r.skips("lse") {
		return
	}
	if lse.Valid() {
		r.set(lse, at, x)
	}
	if lse2.Valid() {
		r.set(lse2, at, x*math.Log2E)
	}
}

func (r *Reference) storeNVFP4(c *attn.DecodeCall, row, h int, x []float64) {
	hq, d, columns := c.Query.Shape[1], c.Query.Shape[2], c.OutScale.Shape[1]
	for k := range d / 16 {
		sf, codes := encodeNVFP4(x[16*k:16*k+16], c.OSFScale)
		m, kb := c.SFStartRow+row, h*d/16+k
		bytesAt(&c.OutScale, r.at("scale", swizzled(m, kb, columns), c), 1)[0] = sf
		out := bytesAt(&c.Out, (row*hq+h)*d/2+8*k, 8)
		for i := range out {
			lo, hi := codes[2*i], codes[2*i+1]
			if r.skips("low nibble first") {
				lo, hi = hi, lo
			}
			out[i] = lo | hi<<4
		}
	}
}

func (r *Reference) decodeProblem(c *attn.DecodeCall) (*problem, error) {
	b, maxQ := c.Batch()
	p := &problem{hq: c.Query.Shape[1], hkv: c.Key.Shape[1], dqk: c.Query.Shape[2], dvo: c.Query.Shape[2],
		c1: r.scalarOr(&c.BMM1ScaleTensor, c.BMM1Scale), c2: r.scalarOr(&c.BMM2ScaleTensor, c.BMM2Scale), window: c.WindowLeft, causal: true}
	if c.Sinks.Valid() {
		p.sinks = make([]float64, p.hq)
		floatsAt(p.sinks, &c.Sinks, 0)
	}
	limit, page := c.MaxSeqLen, c.Key.Shape[2]
	if limit == 0 {
		limit = c.BlockTables.Shape[1] * page
	}
	cum := func(b int) int {
		if c.CumSeqLensQ.Valid() {
			return intAt(&c.CumSeqLensQ, b)
		}
		return b * maxQ
	}
	for i := range b {
		l, s := cum(i+1)-cum(i), intAt(&c.SeqLens, i)
		switch {
		case i == 0 && cum(0) != 0, l < 0, cum(i+1) > c.Query.Shape[0]:
			return nil, value("cum_seq_lens_q", "decode", "a rising prefix sum from 0", "%d and %d for request %d", cum(i), cum(i+1), i)
		case l > maxQ:
			return nil, value("max_q_len", "decode", fmt.Sprintf("at least %d", l), "%d for request %d", maxQ, i)
		}
		if err := r.checkTable("decode", "seq_lens", &c.BlockTables, i, l, s, page, c.Key.Shape[0], limit); err != nil {
			return nil, err
		}
		req := request{row0: cum(i), l: l, s: s,
			k: r.pagedRows(c, "K", &c.Key, &c.BlockTables, i), v: r.pagedRows(c, "V", &c.Value, &c.BlockTables, i)}
		req.q = func(row, h int, dst []float64) {
			floatsAt(dst, &c.Query, r.at("q row", (req.row0+row)*c.Query.Stride[0], c)+h*c.Query.Stride[1])
		}
		if c.Mask.Valid() && l > 1 {
			words := c.Mask.Shape[2]
			req.mask = func(row, col int) bool {
				return intAt(&c.Mask, (i*l+row)*words+r.at("mask half", col/16, c))>>(col%16)&1 == 1
			}
		}
		p.reqs = append(p.reqs, req)
	}
	if got := cum(b); got != c.Query.Shape[0] {
		return nil, value("cum_seq_lens_q", "decode", fmt.Sprintf("a last entry of %d, the tokens of query", c.Query.Shape[0]), "%d", got)
	}
	return p, nil
}
