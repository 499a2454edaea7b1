package cpu

import (
	"fmt"

	"github.com/gaze-ml/gaze/internal/attn"
)

// appendTask writes new keys and values to a paged cache. An item is one head of K, of V or of the query: its rows are written in their
// order, so that of two rows for one slot the later one stays.
type appendTask struct {
	c         *attn.AppendCall
	positions []int32 // [T], of rows that RoPE turns
	turns     turns
}

// Append writes the rows of k and v to their slots, and with RoPE the turned query.
func (b *Backend) Append(c *attn.AppendCall) error {
	if err := checkAppend(c); err != nil {
		return err
	}
	f := b.take()
	defer b.give(f)
	a := &f.append
	a.c = c
	defer func() { a.c = nil }()
	t, d := c.Key.Shape[0], c.Key.Shape[2]
	if c.RoPE() {
		a.place()
		if err := a.turns.prepare(b, c.Op(), &c.RoPEConfig, d, &c.Factors, a.positions, &f.scratch); err != nil {
			return err
		}
	}
	heads := 2*c.KeyCache.Shape[1] + c.Query.Shape[1]
	return b.loop(c.Op(), a, heads, t*heads*d, &f.scratch)
}

// place lists the position of every row.
func (a *appendTask) place() {
	c := a.c
	if !c.CumSeqLens.Valid() {
		a.positions = append(a.positions[:0], slice[int32](c.Positions.Ptr, c.Key.Shape[0])...)
		return
	}
	a.positions = a.positions[:0]
	for r := range c.BlockTables.Shape[0] {
		start := integer(&c.StartPositions, r)
		for i := range integer(&c.CumSeqLens, r+1) - integer(&c.CumSeqLens, r) {
			a.positions = append(a.positions, int32(start+i))
		}
	}
}

func checkAppend(c *attn.AppendCall) error {
	op := c.Op()
	if err := required(op, operand{"kv_cache", &c.KeyCache}, operand{"kv_cache", &c.ValueCache}, operand{"k", &c.Key},
		operand{"v", &c.Value}, operand{"block_tables", &c.BlockTables}); err != nil {
		return err
	}
	if err := present(op, operand{"positions", &c.Positions}, operand{"requests", &c.Requests},
		operand{"cum_seq_lens", &c.CumSeqLens}, operand{"start_positions", &c.StartPositions},
		operand{"factors", &c.Factors}, operand{"query", &c.Query}); err != nil {
		return err
	}
	if c.Query.Valid() {
		if err := required(op, operand{"query_out", &c.QueryOut}); err != nil {
			return err
		}
	}
	pageSize, pages := c.KeyCache.Shape[2], c.KeyCache.Shape[0]
	batch, most := c.BlockTables.Shape[0], c.BlockTables.Shape[1]*pageSize
	if !c.CumSeqLens.Valid() {
		for t := range c.Key.Shape[0] {
			pos := integer(&c.Positions, t)
			if pos == -1 {
				continue
			}
			if pos < 0 || pos >= most {
				return bad(op, "positions", fmt.Sprintf("-1, or 0 to %d, the last slot of a block table", most-1), "row %d: %d", t, pos)
			}
			r := integer(&c.Requests, t)
			if r < 0 || r >= batch {
				return bad(op, "requests", fmt.Sprintf("0 to %d", batch-1), "row %d: %d", t, r)
			}
			if err := tableEntries(op, &c.BlockTables, r, pos, pos+1, pageSize, pages); err != nil {
				return err
			}
		}
		return nil
	}
	if err := prefixSums(op, "cum_seq_lens", &c.CumSeqLens, c.Key.Shape[0]); err != nil {
		return err
	}
	for r := range batch {
		n := integer(&c.CumSeqLens, r+1) - integer(&c.CumSeqLens, r)
		if n == 0 {
			continue
		}
		start := integer(&c.StartPositions, r)
		if start < 0 || start+n > most {
			return bad(op, "start_positions", fmt.Sprintf("0 or more, with room for %d rows in %d slots", n, most), "request %d: %d", r, start)
		}
		if err := tableEntries(op, &c.BlockTables, r, start, start+n, pageSize, pages); err != nil {
			return err
		}
	}
	return nil
}

func (a *appendTask) run(s *scratch, item int) {
	c := a.c
	switch h, kv := item/2, c.KeyCache.Shape[1]; {
	case item >= 2*kv:
		a.query(s, item-2*kv)
	case item%2 == 0:
		a.head(s, &c.Key, &c.KeyCache, h, float32(c.KScale), c.RoPE())
	default:
		a.head(s, &c.Value, &c.ValueCache, h, float32(c.VScale), false)
	}
}

// query turns one head of the query.
func (a *appendTask) query(s *scratch, head int) {
	c := a.c
	q, heads, d := &c.Query, c.Query.Shape[1], c.Query.Shape[2]
	s.reset()
	buf := s.floats(d)
	for t := range q.Shape[0] {
		from, to := q.At(t*q.Stride[0]+head*q.Stride[1]), c.QueryOut.At((t*heads+head)*d)
		if a.positions[t] < 0 {
			copy(slice[byte](to, d*q.DType.Size()), slice[byte](from, d*q.DType.Size()))
			continue
		}
		cos, sin := a.turns.of(t)
		turnRow(to, from, q.DType, buf, cos, sin, c.Pairing)
	}
}

// head writes one head's rows.
func (a *appendTask) head(s *scratch, src, cache *attn.Tensor, head int, scale float32, turn bool) {
	c := a.c
	if !c.CumSeqLens.Valid() {
		for t := range src.Shape[0] {
			if pos := integer(&c.Positions, t); pos >= 0 {
				a.row(s, src, cache, head, t, integer(&c.Requests, t), pos, scale, turn)
			}
		}
		return
	}
	for r := range c.BlockTables.Shape[0] {
		first, end := integer(&c.CumSeqLens, r), integer(&c.CumSeqLens, r+1)
		if first == end {
			continue
		}
		start := integer(&c.StartPositions, r)
		for t := first; t < end; t++ {
			a.row(s, src, cache, head, t, r, start+t-first, scale, turn)
		}
	}
}

// row writes row t to position pos of a request: turned where asked, x/scale, in the cache's dtype.
func (a *appendTask) row(s *scratch, src, cache *attn.Tensor, head, t, request, pos int, scale float32, turn bool) {
	tables, size, d := &a.c.BlockTables, cache.Shape[2], cache.Shape[3]
	page := int(*(*int32)(tables.At(request*tables.Stride[0] + pos/size)))
	from := src.At(t*src.Stride[0] + head*src.Stride[1])
	to := cache.At(page*cache.Stride[0] + head*cache.Stride[1] + pos%size*cache.Stride[2])
	if !turn && src.DType == cache.DType && scale == 1 {
		copy(slice[byte](to, d*src.DType.Size()), slice[byte](from, d*src.DType.Size()))
		return
	}
	s.reset()
	x := s.floats(d)
	load(x, src.DType, from)
	if turn {
		cos, sin := a.turns.of(t)
		rotate(x, x, cos, sin, a.c.Pairing)
	}
	if scale != 1 {
		for i := range x {
			x[i] /= scale
		}
	}
	store(to, cache.DType, x)
}
