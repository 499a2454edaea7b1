package cudaops

import (
	"fmt"

	"github.com/gaze-ml/gaze/cudaops/internal/driver"
	"github.com/gaze-ml/gaze/internal/attn"
)

// Counters of the kernels, in bytes from the first: a decode launch has one for each block.
const (
	decodeCounters  = 0
	prefillCounters = 8 << 10
)

// tileRows is how many rows of one KV head a decode block holds at a time: the least of 8, 16 and 32 that holds all, or the kernel's most.
func tileRows(k *kernel, c *attn.DecodeCall) int {
	_, l := c.Batch()
	rows := l * (c.Query.Shape[1] / c.Key.Shape[1])
	for tile := 8; tile < k.Tile; tile *= 2 {
		if tile >= rows {
			return tile
		}
	}
	return k.Tile
}

// decodeGrid depends on nothing but the GPU, so that a captured launch serves batches of any lengths.
func (rt *Runtime) decodeGrid() int { return min(rt.props.SMs, prefillCounters/4) }

// decodeWorkspace is two partial results of a tile for each block: outputs, maximum and sum of each row.
func (rt *Runtime) decodeWorkspace(k *kernel, c *attn.DecodeCall) int {
	return 4 * 2 * rt.decodeGrid() * tileRows(k, c) * (k.Dim + 2)
}

// partials is the memory for partial results: the caller's, if it is large enough, or the Runtime's.
func (rt *Runtime) partials(b *binding, w *attn.Tensor, n int) driver.Addr {
	if !w.Valid() {
		return rt.workspace.at
	}
	if have := w.Bytes(); have < n && b.err == nil {
		b.err = attn.Errorf(attn.ErrArgument, b.op, "workspace", fmt.Sprintf("%d bytes or more, contiguous", n), "%d", have)
	}
	return b.need("workspace", w)
}

// workspaceBytes is the most that any decode kernel of this GPU wants.
func (rt *Runtime) workspaceBytes() int {
	n := 0
	for _, k := range rt.choices.best {
		if k.Op == "decode" {
			n = max(n, 4*2*rt.decodeGrid()*k.Tile*(k.Dim+2))
		}
	}
	return n
}

// Decode is paged decode attention.
func (b *Backend) Decode(c *attn.DecodeCall) error {
	rt := b.rt
	k, err := rt.start(c)
	defer rt.mu.Unlock()
	if err != nil {
		return err
	}
	batch, l := c.Batch()
	at := binding{rt: rt, op: c.Op()}
	p := &rt.frame.decode
	*p = decodeParams{
		Q: at.need("query", &c.Query), K: at.need("kv_cache", &c.Key), V: at.need("kv_cache", &c.Value),
		BlockTables: at.table("block_tables", &c.BlockTables, false), SeqLens: at.table("seq_lens", &c.SeqLens, false),
		CumSeqLensQ: at.table("cum_seq_lens_q", &c.CumSeqLensQ, false), Sinks: at.may("sinks", &c.Sinks),
		BMM1ScaleAt: at.may("bmm1_scale", &c.BMM1ScaleTensor), BMM2ScaleAt: at.may("bmm2_scale", &c.BMM2ScaleTensor),
		Out: at.need("out", &c.Out), LSE: at.may("lse", &c.LSE), LSE2: at.may("lse", &c.LSE2),
		Workspace: rt.partials(&at, &c.Workspace, rt.decodeWorkspace(k, c)), Counters: rt.counts + decodeCounters, Fault: rt.faults,
		QToken: int64(c.Query.Stride[0]), QHead: int64(c.Query.Stride[1]),
		KPage: int64(c.Key.Stride[0]), KHead: int64(c.Key.Stride[1]), KToken: int64(c.Key.Stride[2]),
		VPage: int64(c.Value.Stride[0]), VHead: int64(c.Value.Stride[1]), VToken: int64(c.Value.Stride[2]),
		TableRow: int64(c.BlockTables.Stride[0]), Tokens: int64(c.Query.Shape[0]), Pages: int64(c.Key.Shape[0]),
		BMM1Scale: float32(c.BMM1Scale), BMM2Scale: float32(c.BMM2Scale), Batch: int32(batch),
		QHeads: int32(c.Query.Shape[1]), KVHeads: int32(c.Key.Shape[1]), QLen: int32(l), MaxQLen: int32(l),
		PageSize: int32(c.Key.Shape[2]), MaxPages: int32(c.BlockTables.Shape[1]), MaxSeqLen: int32(maxSeqLen(c)),
		WindowLeft: window(c), TileRows: int32(tileRows(k, c)), Op: opDecode,
	}
	if l > 1 { // with one row a mask says nothing
		p.Mask = at.may("mask", &c.Mask)
	}
	if at.err != nil || c.Query.Len() == 0 {
		return at.err
	}
	if c.CheckValues {
		if err := rt.checkDecode(c); err != nil {
			return err
		}
	}
	return launch(rt, k, c, rt.decodeGrid(), 1, c.PDL >= 0, p)
}

// maxSeqLen is the bound of seq_lens, within what the block table holds and int32.
func maxSeqLen(c *attn.DecodeCall) int {
	n := c.BlockTables.Shape[1] * c.Key.Shape[2]
	if c.MaxSeqLen > 0 {
		n = c.MaxSeqLen
	}
	return min(n, 1<<31-1)
}

// window is window_left: a window wider than any sequence is none.
func window(c *attn.DecodeCall) int32 {
	if c.WindowLeft >= 1<<30 {
		return -1
	}
	return int32(c.WindowLeft)
}

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
		OffsetsStats: table("batch_offsets_stats", &c.OffsetsStats),
		QScale:       at.may("q_scale", &c.QScale), KScale: at.may("k_scale", &c.KScale), VScale: at.may("v_scale", &c.VScale),
		Out: at.need("out", &c.Out), LSE: at.may("lse", &c.LSE), LSE2: at.may("lse", &c.LSE2), Counters: rt.counts + prefillCounters, Fault: rt.faults,
		QToken: int64(c.Query.Stride[0]), QHead: int64(c.Query.Stride[1]), TableRow: int64(c.BlockTables.Stride[0]),
		Tokens: int64(c.Query.Shape[0]), Scale: float32(c.Scale), Batch: int32(c.Batch()), QHeads: int32(c.Query.Shape[1]),
		KVHeads: int32(c.Key.Shape[1]), MaxPages: int32(c.BlockTables.Shape[1]), MaxQLen: int32(c.MaxQLen), MaxKVLen: int32(c.MaxKVLen),
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
	if at.err != nil {
		return at.err
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
	if c.Query.Len() == 0 {
		return nil
	}
	return launch(rt, k, c, k.PerSM*rt.props.SMs, 1, true, p)
}

const negativeInfinity = 0xff800000 // as a float32's bits

// fillWords sets n words.
func (rt *Runtime) fillWords(op string, a driver.Addr, n int, value uint32) error {
	k := rt.choices.best[key{Op: opFill, Size: 4}]
	if k == nil {
		return attn.Errorf(attn.ErrUnsupported, op, "", "a fill kernel", "a build without one")
	}
	p := &rt.frame.fill
	*p = fillParams{Out: a, N: int64(n), Value: value}
	return launch(rt, k, nil, rt.blocks(n, elementsPerBlock), 1, true, p)
}

// Append writes keys and values into a paged cache.
func (b *Backend) Append(c *attn.AppendCall) error {
	rt := b.rt
	k, err := rt.start(c)
	defer rt.mu.Unlock()
	if err != nil {
		return err
	}
	at := binding{rt: rt, op: c.Op()}
	p := &rt.frame.append
	*p = appendParams{
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
	n := c.Key.Len() + c.Value.Len()
	if at.err != nil || n == 0 {
		return at.err
	}
	if c.CheckValues {
		if err := rt.checkAppend(c); err != nil {
			return err
		}
	}
	return launch(rt, k, c, rt.blocks(n, elementsPerBlock), 1, true, p)
}
