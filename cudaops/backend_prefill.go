package cudaops

import (
	"github.com/gaze-ml/gaze/cudaops/internal/driver"
	"github.com/gaze-ml/gaze/internal/attn"
)

// Prefill is attention over packed requests.
func (b *Backend) Prefill(c *attn.PrefillCall) error {
	rt := b.rt
	k, err := rt.start(c)
	defer rt.mu.Unlock()
	if err != nil {
		return err
	}
	at := binding{rt: rt, op: c.Op()}
	table := func(arg string, t *attn.Tensor) driver.Addr { return at.table(arg, t, c.CUDAGraph) }
	p := &rt.frame.prefill
	*p = prefillParams{
		Q: at.need("q", &c.Query), K: at.need("k_cache", &c.Key), V: at.need("v_cache", &c.Value),
		BlockTables: table("block_tables", &c.BlockTables), QLens: table("actual_seq_lens_q", &c.QLens), KVLens: table("actual_seq_lens_kv", &c.KVLens),
		OffsetsQ: table("batch_offsets_q", &c.OffsetsQ), OffsetsO: table("batch_offsets_o", &c.OffsetsO),
		OffsetsK: table("batch_offsets_k", &c.OffsetsK), OffsetsV: table("batch_offsets_v", &c.OffsetsV),
		QScale: at.may("q_scale", &c.QScale), KScale: at.may("k_scale", &c.KScale), VScale: at.may("v_scale", &c.VScale),
		Out: at.need("out", &c.Out), LSE: at.may("lse", &c.LSE), LSE2: at.may("lse", &c.LSE2), Counters: rt.counts + prefillCounters, Fault: rt.faults,
		QToken: int64(c.Query.Stride[0]), QHead: int64(c.Query.Stride[1]), TableRow: int64(c.BlockTables.Stride[0]),
		Tokens: int64(c.Query.Shape[0]), Scale: float32(c.Scale), Batch: int32(c.Batch()), QHeads: int32(c.Query.Shape[1]),
		KVHeads: int32(c.Key.Shape[1]), MaxPages: int32(c.BlockTables.Shape[1]), MaxQLen: bound(c.MaxQLen), MaxKVLen: bound(c.MaxKVLen),
		OffsetBytesQ: int32(c.OffsetsQ.DType.Size()), OffsetBytesO: int32(c.OffsetsO.DType.Size()), OffsetBytesK: int32(c.OffsetsK.DType.Size()),
		OffsetBytesV: int32(c.OffsetsV.DType.Size()), OffsetBytesStats: int32(c.OffsetsStats.DType.Size()), Op: opPrefill,
	}
	if c.Paged() {
		p.KPage, p.KHead, p.KToken = int64(c.Key.Stride[0]), int64(c.Key.Stride[1]), int64(c.Key.Stride[2])
		p.VPage, p.VHead, p.VToken = int64(c.Value.Stride[0]), int64(c.Value.Stride[1]), int64(c.Value.Stride[2])
		p.Pages, p.PageSize = int64(c.Key.Shape[0]), int32(c.Key.Shape[2])
	} else {
		p.KToken, p.KHead = int64(c.Key.Stride[0]), int64(c.Key.Stride[1])
		p.VToken, p.VHead = int64(c.Value.Stride[0]), int64(c.Value.Stride[1])
		p.KVTokens = int64(c.Key.Shape[0])
	}
	if c.Causal {
		p.Causal = 1
	}
	if c.LSE.Valid() || c.LSE2.Valid() { // else nobody looks at them
		p.OffsetsStats = table("batch_offsets_stats", &c.OffsetsStats)
	}
	at.may("workspace_buffer", &c.Workspace) // which nothing needs, but which lies where the others do
	if k.A == attn.E4M3 {
		p.OutType = elementTypes[c.Out.DType]
	}
	if at.err != nil {
		return at.err
	}
	if k.Variant == tiled {
		if err := rt.tile(k, c, p); err != nil {
			return rt.fail(c.Op(), err)
		}
	}
	if c.CheckValues {
		if err := rt.checkPrefill(c); err != nil {
			return err
		}
	}
	// The kernel writes the LSE of rows that exist; the rest of the buffers is -inf.
	for _, lse := range []*attn.Tensor{&c.LSE, &c.LSE2} {
		if lse.Valid() && lse.Len() > 0 {
			if err := rt.fillWords(c.Op(), driver.Of(lse.Ptr), lse.Len(), negativeInfinity); err != nil {
				return err
			}
		}
	}
	if c.Batch() == 0 && c.Query.Len() == 0 {
		return nil
	}
	return launch(rt, k, c, k.PerSM*rt.props.SMs, 1, true, p)
}

const negativeInfinity = 0xff800000 // as a float32's bits

// fillWords sets n words.
func (rt *Runtime) fillWords(op string, a driver.Addr, n int, value uint32) error {
	k := rt.choices.of(key{Op: opFill, Size: 4})
	if k == nil {
		return attn.Errorf(attn.ErrUnsupported, op, "", "a fill kernel", "a build without one")
	}
	p := &rt.frame.fill
	*p = fillParams{Out: a, N: int64(n), Value: value}
	return launch(rt, k, nil, rt.blocks(n, elementsPerBlock), 1, true, p)
}

// tile describes K and V for bulk tensor copies, as params.h wants it: {D, P, Hkv, N} by boxes that fill both a page and a block of k's
// keys, or ragged {D, Tkv, Hkv, 1} by boxes of such a block.
func (rt *Runtime) tile(k *kernel, c *attn.PrefillCall, p *prefillParams) error {
	keys := k.Tile
	if c.Paged() {
		keys = min(c.Key.Shape[2]&-c.Key.Shape[2], keys&-keys)
	}
	p.BoxRows = int32(keys)
	for i, t := range [...]*attn.Tensor{&c.Key, &c.Value} {
		size := uint64(t.DType.Size())
		d := &rt.frame.tiled[i]
		*d = driver.Tiled{Address: driver.Of(t.Ptr), Box: [4]uint32{64, uint32(p.BoxRows), 1, 1}}
		if t.DType == attn.BF16 {
			d.BF16 = 1
		}
		if c.Paged() {
			d.Dims = [4]uint64{uint64(t.Shape[3]), uint64(t.Shape[2]), uint64(t.Shape[1]), uint64(t.Shape[0])}
			d.Strides = [3]uint64{size * uint64(t.Stride[2]), size * uint64(t.Stride[1]), size * uint64(t.Stride[0])}
		} else {
			d.Dims = [4]uint64{uint64(t.Shape[2]), uint64(t.Shape[0]), uint64(t.Shape[1]), 1}
			d.Strides = [3]uint64{size * uint64(t.Stride[0]), size * uint64(t.Stride[1]), size * uint64(t.Stride[0])}
		}
	}
	return rt.ctx.Encode(&p.KMap, &p.VMap, &rt.frame.tiled)
}
