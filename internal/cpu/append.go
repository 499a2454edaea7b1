package cpu

import (
	"fmt"
	"unsafe"

	"github.com/gaze-ml/gaze/internal/attn"
)

// appendTask writes new keys and values to a paged cache. An item is one KV head of K or of V: its rows are written in their
// order, so that of two rows for one slot the later one stays.
type appendTask struct {
	c *attn.AppendCall
}

// Append writes the rows of k and v to their slots.
func (b *Backend) Append(c *attn.AppendCall) error {
	if err := checkAppend(c); err != nil {
		return err
	}
	f := b.take()
	defer b.give(f)
	f.append.c = c
	defer func() { f.append.c = nil }()
	heads := c.KeyCache.Shape[1]
	return b.loop(c.Op(), &f.append, 2*heads, 2*c.Key.Shape[0]*heads*c.Key.Shape[2], &f.scratch)
}

func checkAppend(c *attn.AppendCall) error {
	op := c.Op()
	if err := required(op, operand{"kv_cache", &c.KeyCache}, operand{"kv_cache", &c.ValueCache}, operand{"k", &c.Key},
		operand{"v", &c.Value}, operand{"block_tables", &c.BlockTables}); err != nil {
		return err
	}
	if err := present(op, operand{"positions", &c.Positions}, operand{"requests", &c.Requests},
		operand{"cum_seq_lens", &c.CumSeqLens}, operand{"start_positions", &c.StartPositions}); err != nil {
		return err
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
	c, head := a.c, item/2
	if item%2 == 0 {
		a.head(s, &c.Key, &c.KeyCache, head, float32(c.KScale))
	} else {
		a.head(s, &c.Value, &c.ValueCache, head, float32(c.VScale))
	}
}

// head writes one head's rows.
func (a *appendTask) head(s *scratch, src, cache *attn.Tensor, head int, scale float32) {
	c := a.c
	if !c.CumSeqLens.Valid() {
		for t := range src.Shape[0] {
			if pos := integer(&c.Positions, t); pos >= 0 {
				a.row(s, src, cache, head, t, integer(&c.Requests, t), pos, scale)
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
			a.row(s, src, cache, head, t, r, start+t-first, scale)
		}
	}
}

// row writes row t to position pos of a request.
func (a *appendTask) row(s *scratch, src, cache *attn.Tensor, head, t, request, pos int, scale float32) {
	tables, size, d := &a.c.BlockTables, cache.Shape[2], cache.Shape[3]
	page := int(*(*int32)(tables.At(request*tables.Stride[0] + pos/size)))
	from := src.At(t*src.Stride[0] + head*src.Stride[1])
	to := cache.At(page*cache.Stride[0] + head*cache.Stride[1] + pos%size*cache.Stride[2])
	convert(s, to, cache.DType, from, src.DType, d, scale)
}

// convert stores n elements x as x/scale in another dtype; bytes are moved where nothing changes.
func convert(s *scratch, to unsafe.Pointer, dt attn.DType, from unsafe.Pointer, src attn.DType, n int, scale float32) {
	if dt == src && scale == 1 {
		copy(slice[byte](to, n*dt.Size()), slice[byte](from, n*dt.Size()))
		return
	}
	s.reset()
	x := s.floats(n)
	load(x, src, from)
	if scale != 1 {
		for i := range x {
			x[i] /= scale
		}
	}
	store(to, dt, x)
}
