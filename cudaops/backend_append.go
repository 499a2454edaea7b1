package cudaops

import "github.com/gaze-ml/gaze/internal/attn"

// Append writes keys and values into a paged cache, and with RoPE turns keys and the query on the way.
func (b *Backend) Append(c *attn.AppendCall) error {
	rt := b.rt
	k, err := rt.start(c)
	defer rt.mu.Unlock()
	if err != nil {
		return err
	}
	at := binding{rt: rt, op: c.Op()}
	p := &rt.frame.append
	p.appendOperands = appendOperands{
		K: at.need("k", &c.Key), V: at.need("v", &c.Value), KCache: at.need("kv_cache", &c.KeyCache), VCache: at.need("kv_cache", &c.ValueCache),
		BlockTables: at.table("block_tables", &c.BlockTables, false), Positions: at.table("positions", &c.Positions, false),
		Requests: at.table("requests", &c.Requests, false), CumSeqLens: at.table("cum_seq_lens", &c.CumSeqLens, false),
		StartPositions: at.table("start_positions", &c.StartPositions, false), Fault: rt.faults,
		KRowToken: int64(c.Key.Stride[0]), KRowHead: int64(c.Key.Stride[1]), VRowToken: int64(c.Value.Stride[0]), VRowHead: int64(c.Value.Stride[1]),
		KPage: int64(c.KeyCache.Stride[0]), KHead: int64(c.KeyCache.Stride[1]), KToken: int64(c.KeyCache.Stride[2]),
		VPage: int64(c.ValueCache.Stride[0]), VHead: int64(c.ValueCache.Stride[1]), VToken: int64(c.ValueCache.Stride[2]),
		TableRow: int64(c.BlockTables.Stride[0]), Tokens: int64(c.Key.Shape[0]), Pages: int64(c.KeyCache.Shape[0]),
		KScale: float32(c.KScale), VScale: float32(c.VScale), Batch: int32(c.BlockTables.Shape[0]), KVHeads: int32(c.KeyCache.Shape[1]),
		KDim: int32(c.KeyCache.Shape[3]), VDim: int32(c.ValueCache.Shape[3]), PageSize: int32(c.KeyCache.Shape[2]),
		MaxPages: int32(c.BlockTables.Shape[1]), Op: opAppend,
	}
	if c.CumSeqLens.Valid() {
		p.Op = opAppendRanges
	}
	rows := c.Key.Shape[0] * 2 * c.Key.Shape[1] // heads of tokens
	if c.RoPE() {
		p.Q, p.QOut, p.Factors = at.may("query", &c.Query), at.may("query_out", &c.QueryOut), at.may("factors", &c.Factors)
		p.QToken, p.QHead, p.QHeads = int64(c.Query.Stride[0]), int64(c.Query.Stride[1]), int32(c.Query.Shape[1])
		p.Rotary, p.Adjacent = int32(c.Rotary(c.Key.Shape[2])), int32(c.Pairing)
		rt.frame.appendTurns.set(&p.Turns, &c.RoPEConfig, c.Key.Shape[2])
		if c.Query.Valid() {
			rows += c.Query.Shape[0] * c.Query.Shape[1]
		}
	}
	if at.err != nil {
		return at.err
	}
	if c.CheckValues {
		if err := rt.checkAppend(c); err != nil {
			return err
		}
	}
	if rows == 0 && (!c.CumSeqLens.Valid() || p.Batch == 0) { // else the kernel looks at the sums
		return nil
	}
	const rowsPerBlock = 8 // a warp a row, or some where there are many
	return launch(rt, k, c, rt.blocks(rows, rowsPerBlock), 1, true, p)
}
