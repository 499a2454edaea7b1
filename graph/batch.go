package graph

import (
	"fmt"
	"math"
	"unsafe"

	"gorgonia.org/tensor"

	"github.com/gaze-ml/gaze/internal/attn"
	"github.com/gaze-ml/gaze/ops"
)

// Batch is the fixed int32 tensors that tell a graph which tokens of which sequences a step is about. They are bound to the
// graph's inputs once; Set rewrites their memory. They lie on the cache's device, one after the other, so that one copy brings them
// there. Letters as in package ops: B requests, T rows.
//
// In a prefill, B is one more than the requests asked for: the last one has no keys, and the rows without a token are its queries.
type Batch struct {
	BlockTables *tensor.Dense // [B, maxPages]: the pages of each request, -1 past its last
	SeqLens     *tensor.Dense // [B]: S_b, this step's tokens included; 0 for a request that isn't there
	QLens       *tensor.Dense // [B]: L_b, this step's rows; the sum is T
	CumQLens    *tensor.Dense // [B+1]: where each request's rows begin, and T
	Positions   *tensor.Dense // [T]: each row's position in its sequence; -1 for a row without a token
	Requests    *tensor.Dense // [T]: each row's request
	LastRows    *tensor.Dense // [requests]: the row of each one's last token, whose logits say what comes next; 0 if there is none

	cache     *KVCache
	packed    bool
	maxSeqLen int
	maxPages  int

	tables, seqLens, qLens, cumQLens, positions, requests, lastRows []int32 // the tensors on the host

	staged []byte         // all of them, where the tensors lie on a device
	block  unsafe.Pointer // where they lie
}

// Request is one sequence's part in a step: its last Tokens tokens, whose slots it must have already.
type Request struct {
	Seq    *Sequence // nil: nobody, in a decode step
	Tokens int       // 0: no rows, in a prefill step
}

// DecodeBatch makes the tensors of steps with one token for each of up to so many requests, of up to maxSeqLen tokens each: row b
// is request b's, T = B. Sizes below 1 or beyond int32 are ErrArgument, tensors of more than 4 GiB ErrOutOfMemory.
func (c *KVCache) DecodeBatch(requests, maxSeqLen int) (*Batch, error) {
	return c.newBatch(requests, requests, maxSeqLen, false)
}

// PrefillBatch makes the tensors of steps with up to so many rows, in which up to so many requests lie one after the other.
// Errors are those of [KVCache.DecodeBatch].
func (c *KVCache) PrefillBatch(requests, rows, maxSeqLen int) (*Batch, error) {
	return c.newBatch(requests, rows, maxSeqLen, true)
}

// maxBatchBytes is far above what the tensors of a step can need: what asks for more is a mistake.
const maxBatchBytes = 1 << 32

func (c *KVCache) newBatch(requests, rows, maxSeqLen int, packed bool) (*Batch, error) {
	for _, s := range []struct {
		name string
		n    int
	}{{"requests", requests}, {"rows", rows}, {"max_seq_len", maxSeqLen}} {
		if s.n < 1 || s.n > math.MaxInt32 {
			return nil, attn.Errorf(ops.ErrArgument, "kv_cache", s.name, "1 or more, within int32", "%d", s.n)
		}
	}
	b := &Batch{cache: c, packed: packed, maxSeqLen: maxSeqLen, maxPages: c.pagesFor(maxSeqLen)}
	b.maxPages = min(b.maxPages, c.cfg.Pages) // no sequence has more
	all := requests
	if packed {
		all++
	}
	if bytes := 4 * (float64(all)*float64(b.maxPages+4) + 3*float64(rows)); bytes > maxBatchBytes {
		return nil, attn.Errorf(ops.ErrOutOfMemory, "kv_cache", "requests", "tensors of 4 GiB at most", "%.0f bytes", bytes)
	}
	var l layout
	l.add(&b.BlockTables, &b.tables, all, b.maxPages)
	l.add(&b.SeqLens, &b.seqLens, all)
	l.add(&b.QLens, &b.qLens, all)
	l.add(&b.CumQLens, &b.cumQLens, all+1)
	l.add(&b.Positions, &b.positions, rows)
	l.add(&b.Requests, &b.requests, rows)
	l.add(&b.LastRows, &b.lastRows, requests)
	if err := l.place(b); err != nil {
		return nil, err
	}
	return b, b.Set()
}

// layout is int32 tensors one after the other, each aligned.
type layout struct {
	parts []part
	bytes int
}

type part struct {
	tensor **tensor.Dense
	slice  *[]int32
	view   attn.Tensor
	at     int
}

func (l *layout) add(t **tensor.Dense, s *[]int32, shape ...int) {
	v := attn.Of(attn.I32, shape...)
	l.parts = append(l.parts, part{t, s, v, l.bytes})
	l.bytes += aligned(v.Bytes())
}

// place makes the tensors on the cache's device and, if that isn't the host, their images there.
func (l *layout) place(b *Batch) error {
	c := b.cache
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.open(); err != nil {
		return err
	}
	images, err := CPU.Alloc(l.bytes)
	if err != nil {
		return err
	}
	b.block = images
	if !onHost(c.dev) {
		b.staged = bytesAt(images, l.bytes)
		if b.block, err = c.dev.Alloc(l.bytes); err != nil {
			return err
		}
		c.blocks = append(c.blocks, b.block)
	}
	for _, p := range l.parts {
		*p.slice = unsafe.Slice((*int32)(unsafe.Add(images, p.at)), p.view.Len())
		p.view.Ptr = unsafe.Add(b.block, p.at)
		*p.tensor = headerOf(c.dev, &p.view)
	}
	return nil
}

// Set writes the tensors of the next step: request b is reqs[b]. Requests that are left out are empty. It allocates nothing. An
// ErrArgument has written nothing; after an error of the device, what its tensors hold is not known until a Set succeeds.
func (b *Batch) Set(reqs ...Request) error {
	b.cache.mu.Lock()
	defer b.cache.mu.Unlock()
	if err := b.check(reqs); err != nil {
		return err
	}
	fill(b.tables, -1)
	fill(b.seqLens, 0)
	fill(b.positions, -1)
	fill(b.requests, int32(len(b.seqLens)-1))
	fill(b.lastRows, 0)
	row := 0
	for i := range b.seqLens {
		b.cumQLens[i] = int32(row)
		r := Request{}
		if i < len(reqs) {
			r = reqs[i]
		}
		if r.Seq != nil {
			copy(b.tables[i*b.maxPages:], r.Seq.pages)
			b.seqLens[i] = int32(r.Seq.n)
		}
		for t := range r.Tokens {
			b.positions[row+t], b.requests[row+t], b.lastRows[i] = int32(r.Seq.n-r.Tokens+t), int32(i), int32(row+t)
		}
		switch {
		case !b.packed:
			row++
		case i == len(b.seqLens)-1:
			row = len(b.positions)
		default:
			row += r.Tokens
		}
		b.qLens[i] = int32(row) - b.cumQLens[i]
	}
	b.cumQLens[len(b.seqLens)] = int32(row)
	if b.staged == nil {
		return nil
	}
	return b.cache.dev.Write(b.block, b.staged)
}

func (b *Batch) check(reqs []Request) error {
	refuse := func(i int, arg, want, got string, a ...any) error {
		return attn.Errorf(ops.ErrArgument, "kv_cache", fmt.Sprintf("requests[%d]%s", i, arg), want, got, a...)
	}
	if err := b.cache.open(); err != nil {
		return err
	}
	if len(reqs) > len(b.lastRows) {
		return attn.Errorf(ops.ErrArgument, "kv_cache", "requests", fmt.Sprintf("%d or fewer", len(b.lastRows)), "%d", len(reqs))
	}
	rows := 0
	for i, r := range reqs {
		if r.Seq == nil && r.Tokens == 0 {
			continue
		}
		if err := b.cache.holds(r.Seq); err != nil {
			return fmt.Errorf("requests[%d]: %w", i, err)
		}
		if r.Seq.n > b.maxSeqLen {
			return refuse(i, ".seq", fmt.Sprintf("%d tokens or fewer", b.maxSeqLen), "%d", r.Seq.n)
		}
		if r.Tokens < 0 || r.Tokens > r.Seq.n {
			return refuse(i, ".tokens", fmt.Sprintf("0 to %d, the sequence's length", r.Seq.n), "%d", r.Tokens)
		}
		if !b.packed && r.Tokens != 1 {
			return refuse(i, ".tokens", "1 in a decode step", "%d", r.Tokens)
		}
		rows += r.Tokens
	}
	if rows > len(b.positions) {
		return attn.Errorf(ops.ErrArgument, "kv_cache", "requests", fmt.Sprintf("%d tokens or fewer", len(b.positions)), "%d", rows)
	}
	return nil
}

func fill(s []int32, x int32) {
	for i := range s {
		s[i] = x
	}
}
