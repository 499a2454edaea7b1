package cpu

import "github.com/gaze-ml/gaze/internal/attn"

// Decode is paged decode attention: every dtype that DecodeCall takes, strided operands, windows, masks, varying query lengths, sinks, both
// LSE bases and nvfp4 output.
func (b *Backend) Decode(c *attn.DecodeCall) error {
	f := b.take()
	defer b.give(f)
	a := &f.attention
	defer a.forget()
	if err := a.decode(c); err != nil {
		return err
	}
	return b.attend(f, c.Op())
}

// attend runs a filled-in attention call.
func (b *Backend) attend(f *frame, op string) error {
	a := &f.attention
	a.scale()
	a.plan()
	return b.loop(op, a, a.items, a.cost, &f.scratch)
}

// decode checks the values of a call and fills a in.
func (a *attention) decode(c *attn.DecodeCall) error {
	op := c.Op()
	if err := required(op, operand{"query", &c.Query}, operand{"kv_cache", &c.Key}, operand{"kv_cache", &c.Value},
		operand{"block_tables", &c.BlockTables}, operand{"seq_lens", &c.SeqLens}, operand{"out", &c.Out}); err != nil {
		return err
	}
	if err := present(op, operand{"sinks", &c.Sinks}, operand{"mask", &c.Mask}, operand{"cum_seq_lens_q", &c.CumSeqLensQ},
		operand{"bmm1_scale", &c.BMM1ScaleTensor}, operand{"bmm2_scale", &c.BMM2ScaleTensor}, operand{"out", &c.OutScale},
		operand{"lse", &c.LSE}, operand{"lse", &c.LSE2}); err != nil {
		return err
	}
	batch, maxQ := c.Batch()
	a.query, a.key, a.value, a.tables = c.Query, c.Key, c.Value, c.BlockTables
	a.sinks, a.out, a.outScale, a.lse, a.lse2 = c.Sinks, c.Out, c.OutScale, c.LSE, c.LSE2
	if maxQ > 1 {
		a.mask = c.Mask
	}
	a.kvHeads = c.Key.Shape[1]
	a.group = c.Query.Shape[1] / a.kvHeads
	a.dqk, a.dvo = c.Key.Shape[3], c.Value.Shape[3]
	a.c1, a.c2 = float32(scalar(&c.BMM1ScaleTensor, c.BMM1Scale)), float32(scalar(&c.BMM2ScaleTensor, c.BMM2Scale))
	a.causal, a.window = true, c.WindowLeft
	a.encode, a.scaleRow = float32(c.OSFScale), c.SFStartRow
	if c.CumSeqLensQ.Valid() {
		if err := prefixSums(op, "cum_seq_lens_q", &c.CumSeqLensQ, c.Query.Shape[0]); err != nil {
			return err
		}
	}
	a.requests = resize(a.requests, batch)
	for b := range a.requests {
		if err := a.decodeRequest(c, b, maxQ); err != nil {
			return err
		}
	}
	return nil
}

func (a *attention) decodeRequest(c *attn.DecodeCall, b, maxQ int) error {
	op := c.Op()
	token, queries := b*maxQ, maxQ
	if c.CumSeqLensQ.Valid() {
		token = integer(&c.CumSeqLensQ, b)
		queries = integer(&c.CumSeqLensQ, b+1) - token
		if err := length(op, "max_q_len", b, queries, maxQ, "max_q_len"); err != nil {
			return err
		}
	}
	pageSize, columns := c.Key.Shape[2], c.BlockTables.Shape[1]
	keys := integer(&c.SeqLens, b)
	if err := length(op, "seq_lens", b, keys, columns*pageSize, "the block table's columns times the page size"); err != nil {
		return err
	}
	if c.MaxSeqLen > 0 {
		if err := length(op, "seq_lens", b, keys, c.MaxSeqLen, "max_seq_len"); err != nil {
			return err
		}
	}
	heads := a.kvHeads * a.group
	r := &a.requests[b]
	*r = request{q: token * c.Query.Stride[0], out: token * heads * a.dvo, lse: token * heads, queries: queries, keys: keys}
	if queries == 0 {
		return nil
	}
	from, to := a.seen(r, 0, queries)
	return tableEntries(op, &c.BlockTables, b, from, to, pageSize, c.Key.Shape[0])
}
