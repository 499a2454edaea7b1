package cpu

import (
	"fmt"
	"math"

	"github.com/gaze-ml/gaze/internal/attn"
)

// Prefill is attention over packed requests with a paged or a ragged KV cache. It checks first, then writes -inf to every element
// of the LSE and 0 to the rows of out behind the last request, then runs.
func (b *Backend) Prefill(c *attn.PrefillCall) error {
	f := b.take()
	defer b.give(f)
	a := &f.attention
	defer a.forget()
	if err := a.prefill(c); err != nil {
		return err
	}
	a.pad()
	return b.attend(f, c.Op())
}

// pad writes what no request does.
func (a *attention) pad() {
	for _, t := range []*attn.Tensor{&a.lse, &a.lse2} {
		if t.Valid() {
			for i := range f32(t, 0, t.Len()) {
				f32(t, i, 1)[0] = float32(math.Inf(-1))
			}
		}
	}
	end := 0
	for i := range a.requests {
		if r := &a.requests[i]; r.queries > 0 {
			end = max(end, r.out+r.queries*a.kvHeads*a.group*a.dvo)
		}
	}
	if n := a.out.Len() - end; n > 0 { // else the address would lie behind the tensor
		clear(slice[byte](a.out.At(end), n*a.out.DType.Size()))
	}
}

// prefill checks the values of a call and fills a in.
func (a *attention) prefill(c *attn.PrefillCall) error {
	op := c.Op()
	if err := required(op, operand{"q", &c.Query}, operand{"k_cache", &c.Key}, operand{"v_cache", &c.Value},
		operand{"actual_seq_lens_q", &c.QLens}, operand{"actual_seq_lens_kv", &c.KVLens}, operand{"out", &c.Out}); err != nil {
		return err
	}
	if err := present(op, operand{"block_tables", &c.BlockTables}, operand{"q_scale", &c.QScale}, operand{"k_scale", &c.KScale},
		operand{"v_scale", &c.VScale}, operand{"batch_offsets_q", &c.OffsetsQ}, operand{"batch_offsets_o", &c.OffsetsO},
		operand{"batch_offsets_k", &c.OffsetsK}, operand{"batch_offsets_v", &c.OffsetsV},
		operand{"batch_offsets_stats", &c.OffsetsStats}, operand{"lse", &c.LSE}, operand{"lse", &c.LSE2}); err != nil {
		return err
	}
	a.query, a.key, a.value, a.tables = c.Query, c.Key, c.Value, c.BlockTables
	a.out, a.lse, a.lse2 = c.Out, c.LSE, c.LSE2
	a.kvHeads = c.Key.Shape[1]
	a.group = c.Query.Shape[1] / a.kvHeads
	a.dqk, a.dvo = c.Query.Shape[2], c.Out.Shape[2]
	a.c1 = float32(c.Scale * scalar(&c.QScale, 1) * scalar(&c.KScale, 1))
	a.c2 = float32(scalar(&c.VScale, 1))
	a.causal, a.window = c.Causal, -1
	a.requests = resize(a.requests, c.Batch())
	var packed packing
	for b := range a.requests {
		if err := a.prefillRequest(c, b, &packed); err != nil {
			return err
		}
	}
	return nil
}

// packing counts tokens of the requests before: where one starts that has no offset.
type packing struct{ queries, keys int }

func (a *attention) prefillRequest(c *attn.PrefillCall, b int, before *packing) error {
	op := c.Op()
	queries, keys := integer(&c.QLens, b), integer(&c.KVLens, b)
	if err := length(op, "actual_seq_lens_q", b, queries, c.MaxQLen, "max_token_per_sequence"); err != nil {
		return err
	}
	if c.Paged() {
		if err := length(op, "actual_seq_lens_kv", b, keys, c.BlockTables.Shape[1]*c.Key.Shape[2], "the block table's columns times the page size"); err != nil {
			return err
		}
	}
	if err := length(op, "actual_seq_lens_kv", b, keys, c.MaxKVLen, "max_sequence_kv"); err != nil {
		return err
	}
	heads := a.kvHeads * a.group
	r := &a.requests[b]
	*r = request{
		q: before.queries * c.Query.Stride[0], out: before.queries * heads * a.dvo, lse: b * c.MaxQLen * heads,
		queries: queries, keys: keys,
	}
	before.queries += queries
	if t := c.Query.Shape[0]; before.queries > t {
		return bad(op, "actual_seq_lens_q", fmt.Sprintf("a sum of at most the %d tokens of q", t),
			"%d up to request %d", before.queries, b)
	}
	var err error
	if c.OffsetsQ.Valid() {
		if r.q, err = offsetOf(op, "batch_offsets_q", &c.OffsetsQ, &c.Query, b, queries); err != nil {
			return err
		}
	}
	if c.OffsetsO.Valid() {
		if r.out, err = offsetOf(op, "batch_offsets_o", &c.OffsetsO, &c.Out, b, queries); err != nil {
			return err
		}
	}
	if c.OffsetsStats.Valid() && (c.LSE.Valid() || c.LSE2.Valid()) {
		buffer := attn.Of(attn.F32, c.Batch()*c.MaxQLen, 1, heads)
		if r.lse, err = offsetOf(op, "batch_offsets_stats", &c.OffsetsStats, &buffer, b, queries); err != nil {
			return err
		}
	}
	if c.Paged() {
		if queries == 0 {
			return nil
		}
		from, to := a.seen(r, 0, queries)
		return tableEntries(op, &c.BlockTables, b, from, to, c.Key.Shape[2], c.Key.Shape[0])
	}
	return a.ragged(c, b, r, before)
}

// ragged finds where a request's keys and values lie in tensors without pages.
func (a *attention) ragged(c *attn.PrefillCall, b int, r *request, before *packing) (err error) {
	op := c.Op()
	r.k, r.v = before.keys*c.Key.Stride[0], before.keys*c.Value.Stride[0]
	before.keys += r.keys
	if t := c.Key.Shape[0]; before.keys > t && !(c.OffsetsK.Valid() && c.OffsetsV.Valid()) {
		return bad(op, "actual_seq_lens_kv", fmt.Sprintf("a sum of at most the %d tokens of k_cache", t),
			"%d up to request %d", before.keys, b)
	}
	rows := r.keys
	if r.queries == 0 {
		rows = 0 // nobody looks at them
	}
	if c.OffsetsK.Valid() {
		if r.k, err = offsetOf(op, "batch_offsets_k", &c.OffsetsK, &c.Key, b, rows); err != nil {
			return err
		}
	}
	if c.OffsetsV.Valid() {
		if r.v, err = offsetOf(op, "batch_offsets_v", &c.OffsetsV, &c.Value, b, rows); err != nil {
			return err
		}
	}
	return nil
}
