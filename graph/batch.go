package graph

import (
	"fmt"
	"math"

	"gorgonia.org/tensor"

	"github.com/gaze-ml/gaze/internal/attn"
	"github.com/gaze-ml/gaze/ops"
)

// Batch is the fixed int32 tensors that tell a graph which tokens of which sequences a step is about. They are bound to the
// graph's inputs once; Set rewrites their memory. Letters as in package ops: B requests, T rows.
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

	tables, seqLens, qLens, cumQLens, positions, requests, lastRows []int32
}

// Request is one sequence's part in a step: its last Tokens tokens, whose slots it must have already.
type Request struct {
	Seq    *Sequence // nil: nobody, in a decode step
	Tokens int
}

// DecodeBatch makes the tensors of steps with one token for each of up to so many requests, of up to maxSeqLen tokens each: row b
// is request b's, T = B.
func (c *KVCache) DecodeBatch(requests, maxSeqLen int) (*Batch, error) {
	return c.newBatch(requests, requests, maxSeqLen, false)
}

// PrefillBatch makes the tensors of steps with up to so many rows, in which up to so many requests lie one after the other.
func (c *KVCache) PrefillBatch(requests, rows, maxSeqLen int) (*Batch, error) {
	return c.newBatch(requests, rows, maxSeqLen, true)
}

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
	all := requests
	if packed {
		all++
	}
	b.BlockTables, b.tables = int32s(all, b.maxPages)
	b.SeqLens, b.seqLens = int32s(all)
	b.QLens, b.qLens = int32s(all)
	b.CumQLens, b.cumQLens = int32s(all + 1)
	b.Positions, b.positions = int32s(rows)
	b.Requests, b.requests = int32s(rows)
	b.LastRows, b.lastRows = int32s(requests)
	return b, b.Set()
}

// int32s makes a tensor and the slice of its memory.
func int32s(shape ...int) (*tensor.Dense, []int32) {
	mem := make([]int32, tensor.Shape(shape).TotalSize())
	return tensor.New(tensor.WithShape(shape...), tensor.WithBacking(mem)), mem
}

// Set writes the tensors of the next step: request b is reqs[b]. Requests that are left out are empty. It allocates nothing. An
// error, which is ErrArgument, has written nothing.
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
	return nil
}

func (b *Batch) check(reqs []Request) error {
	refuse := func(i int, arg, want, got string, a ...any) error {
		return attn.Errorf(ops.ErrArgument, "kv_cache", fmt.Sprintf("requests[%d]%s", i, arg), want, got, a...)
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
