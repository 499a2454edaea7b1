package opstest

import (
	"fmt"
	"math"

	"github.com/gaze-ml/gaze/internal/attn"
)

// Prefill solves the call, writes 0 to the rows past the last request and -inf to the padding of the LSE.
func (r *Reference) Prefill(c *attn.PrefillCall) error {
	p, place, err := r.prefillProblem(c)
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
	if !r.skips("lse padding") {
		for _, t := range []*attn.Tensor{&c.LSE, &c.LSE2} {
			for i := range t.Len() {
				if t.Valid() {
					r.set(t, i, math.Inf(-1))
				}
			}
		}
	}
	width, end := p.hq*p.dvo, 0
	for b, req := range p.reqs {
		if req.l > 0 {
			end = max(end, place[b].out+req.l*width)
		}
		for i := range req.l {
			for h := range p.hq {
				r.set(&c.Out, place[b].out+i*width+h*p.dvo, sol.row(req.row0+i, h)...)
				r.setLSE(&c.LSE, &c.LSE2, place[b].lse+i*p.hq+h, sol.lse[(req.row0+i)*p.hq+h])
			}
		}
	}
	for ; end < c.Out.Len() && !r.skips("rows past the end"); end++ {
		r.set(&c.Out, end, 0)
	}
	return nil
}

// places are the first elements of a request in the outputs.
type places struct{ out, lse int }

func (r *Reference) prefillProblem(c *attn.PrefillCall) (*problem, []places, error) {
	last := c.Value.Rank - 1
	p := &problem{hq: c.Query.Shape[1], hkv: c.Key.Shape[1], dqk: c.Query.Shape[2], dvo: c.Value.Shape[last], c2: 1, window: -1, causal: c.Causal}
	p.c1 = c.Scale * r.scalarOr(&c.QScale, 1) * r.scalarOr(&c.KScale, 1)
	p.c2 = r.scalarOr(&c.VScale, 1)
	start := func(offsets *attn.Tensor, b, packed int) int {
		if !offsets.Valid() {
			return packed
		}
		return intAt(offsets, b)
	}
	var place []places
	rows, keys := 0, 0
	for b := range c.Batch() {
		l, s := intAt(&c.QLens, b), intAt(&c.KVLens, b)
		q := start(&c.OffsetsQ, b, rows*c.Query.Stride[0])
		o := start(&c.OffsetsO, b, rows*p.hq*p.dvo)
		stats := start(&c.OffsetsStats, b, b*c.MaxQLen*p.hq)
		k, v := start(&c.OffsetsK, b, keys*c.Key.Stride[0]), start(&c.OffsetsV, b, keys*c.Value.Stride[0])
		if err := r.checkPrefill(c, b, l, s, []int{q, o, stats, k, v}, rows); err != nil {
			return nil, nil, err
		}
		req := request{row0: rows, l: l, s: s}
		req.q = func(i, h int, dst []float64) { floatsAt(dst, &c.Query, q+i*c.Query.Stride[0]+h*c.Query.Stride[1]) }
		if c.Paged() {
			req.k, req.v = r.pagedRows(c, "K", &c.Key, &c.BlockTables, b), r.pagedRows(c, "V", &c.Value, &c.BlockTables, b)
		} else {
			req.k = func(j, h int, dst []float64) { floatsAt(dst, &c.Key, k+j*c.Key.Stride[0]+h*c.Key.Stride[1]) }
			req.v = func(j, h int, dst []float64) { floatsAt(dst, &c.Value, v+j*c.Value.Stride[0]+h*c.Value.Stride[1]) }
		}
		p.reqs = append(p.reqs, req)
		place = append(place, places{out: o, lse: stats})
		rows, keys = rows+l, keys+s
	}
	return p, place, nil
}

// checkPrefill checks the lengths and offsets of one request.
func (r *Reference) checkPrefill(c *attn.PrefillCall, b, l, s int, offsets []int, rows int) error {
	if l < 0 || l > c.MaxQLen {
		return value("actual_seq_lens_q", "prefill", fmt.Sprintf("0 to %d", c.MaxQLen), "%d for request %d", l, b)
	}
	if s < 0 || s > c.MaxKVLen {
		return value("actual_seq_lens_kv", "prefill", fmt.Sprintf("0 to %d", c.MaxKVLen), "%d for request %d", s, b)
	}
	if t := c.Query.Shape[0]; rows+l > t {
		return value("actual_seq_lens_q", "prefill", fmt.Sprintf("a sum of at most the %d rows of q", t), "%d up to request %d", rows+l, b)
	}
	dvo := c.Value.Shape[c.Value.Rank-1]
	fits := func(arg string, t *attn.Tensor, at, n int, given bool) error {
		if n == 0 || at >= 0 && at+(n-1)*t.Stride[0]+extent(t)-(t.Shape[0]-1)*t.Stride[0] <= extent(t) {
			return nil
		}
		if !given {
			arg = map[string]string{"batch_offsets_q": "actual_seq_lens_q", "batch_offsets_o": "actual_seq_lens_q",
				"batch_offsets_k": "actual_seq_lens_kv", "batch_offsets_v": "actual_seq_lens_kv"}[arg]
		}
		return value(arg, "prefill", "rows inside the tensor", "%d rows from element %d of %v for request %d", n, at, t, b)
	}
	if err := fits("batch_offsets_q", &c.Query, offsets[0], l, c.OffsetsQ.Valid()); err != nil {
		return err
	}
	out := attn.Of(c.Out.DType, c.Query.Shape[0], c.Query.Shape[1], dvo)
	if err := fits("batch_offsets_o", &out, offsets[1], l, c.OffsetsO.Valid()); err != nil {
		return err
	}
	if n := l * c.Query.Shape[1]; n > 0 && (offsets[2] < 0 || offsets[2]+n > c.Batch()*c.MaxQLen*c.Query.Shape[1]) {
		return value("batch_offsets_stats", "prefill", "rows inside the LSE", "element %d for request %d", offsets[2], b)
	}
	if c.Paged() {
		return r.checkTable("prefill", "actual_seq_lens_kv", &c.BlockTables, b, l, s, c.Key.Shape[2], c.Key.Shape[0], c.MaxKVLen)
	}
	if l == 0 {
		s = 0 // nobody looks at them
	}
	if err := fits("batch_offsets_k", &c.Key, offsets[3], s, c.OffsetsK.Valid()); err != nil {
		return err
	}
	return fits("batch_offsets_v", &c.Value, offsets[4], s, c.OffsetsV.Valid())
}
