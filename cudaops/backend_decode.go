package cudaops

import (
	"fmt"
	"math"
	"math/bits"

	"github.com/gaze-ml/gaze/cudaops/internal/driver"
	"github.com/gaze-ml/gaze/internal/attn"
)

// Counters of the kernels, in bytes from the first: a decode launch has one for each block.
const (
	decodeCounters  = 0
	prefillCounters = 8 << 10
)

// decodeGrid depends on nothing but the GPU, so that a captured launch serves batches of any lengths.
func (rt *Runtime) decodeGrid(k *kernel) int { return min(k.PerSM*rt.props.SMs, prefillCounters/4) }

// decodeWorkspace is two partial results of a tile for each block: outputs, maximum and sum of each row.
func (rt *Runtime) decodeWorkspace(k *kernel) int {
	return 4 * 2 * rt.decodeGrid(k) * k.Tile * (k.Dim + 2)
}

// partials is the memory for partial results: the caller's, which must hold n bytes, or where there is none the Runtime's.
func (rt *Runtime) partials(b *binding, w *attn.Tensor, n int) driver.Addr {
	if !w.Valid() {
		return rt.workspace.at
	}
	if have := w.Bytes(); have < n && b.err == nil {
		b.err = attn.Errorf(attn.ErrArgument, b.op, "workspace_buffer", fmt.Sprintf("%d bytes or more", n), "%d", have)
	}
	at := b.need("workspace_buffer", w)
	if at%16 != 0 && b.err == nil {
		b.err = attn.Errorf(attn.ErrArgument, b.op, "workspace_buffer", "memory at a multiple of 16 bytes", "%#x", uint64(at))
	}
	return at
}

// workspaceBytes is the most that any decode kernel of this GPU wants.
func (rt *Runtime) workspaceBytes() int {
	n := 0
	for _, k := range rt.choices.all {
		if k.Op == "decode" {
			n = max(n, rt.decodeWorkspace(k))
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
		Workspace: rt.partials(&at, &c.Workspace, rt.decodeWorkspace(k)), Counters: rt.counts + decodeCounters, Fault: rt.faults,
		QToken: int64(c.Query.Stride[0]), QHead: int64(c.Query.Stride[1]),
		KPage: int64(c.Key.Stride[0]), KHead: int64(c.Key.Stride[1]), KToken: int64(c.Key.Stride[2]),
		VPage: int64(c.Value.Stride[0]), VHead: int64(c.Value.Stride[1]), VToken: int64(c.Value.Stride[2]),
		TableRow: int64(c.BlockTables.Stride[0]), Tokens: int64(c.Query.Shape[0]), Pages: int64(c.Key.Shape[0]),
		BMM1Scale: float32(c.BMM1Scale), BMM2Scale: float32(c.BMM2Scale), Batch: int32(batch),
		QHeads: int32(c.Query.Shape[1]), KVHeads: int32(c.Key.Shape[1]), QLen: bound(l), MaxQLen: bound(l),
		PageSize: int32(c.Key.Shape[2]), MaxPages: int32(c.BlockTables.Shape[1]), MaxSeqLen: int32(maxSeqLen(c)),
		WindowLeft: window(c), Group: int32(c.Query.Shape[1] / c.Key.Shape[1]), Op: opDecode,
	}
	p.GroupMul, p.GroupShift = divisor(p.Group)
	p.PageMul, p.PageShift = divisor(p.PageSize)
	if k.B == attn.E4M3 {
		p.QType, p.OutType = elementTypes[c.Query.DType], elementTypes[c.Out.DType]
	}
	if c.Out.DType == attn.U8 {
		p.OutScale, p.OutSFScale = at.need("out", &c.OutScale), float32(c.OSFScale)
		p.OutSFStart, p.OutSFColumns = int32(c.SFStartRow), int32(c.OutScale.Shape[1])
	}
	if mask := at.may("mask", &c.Mask); l > 1 { // with one row it says nothing
		p.Mask = mask
	}
	if at.err != nil {
		return at.err
	}
	if c.CheckValues {
		if err := rt.checkDecode(c); err != nil {
			return err
		}
	}
	if batch == 0 {
		return nil
	}
	return launch(rt, k, c, rt.decodeGrid(k), 1, c.PDL >= 0, p)
}

// bound is a bound of lengths for a kernel: they are int32, so that what is larger says nothing more.
func bound(n int) int32 { return int32(min(n, math.MaxInt32)) }

// divisor gives what stands for a division by d ≥ 1 in a kernel: n/d is n·2·mul >> 32+shift for 0 ≤ n < 2³¹, as mul = ⌈2^(31+shift)/d⌉ with
// 2^shift ≥ d is too large by so little that n times it stays below 2^(31+shift).
func divisor(d int32) (mul, shift uint32) {
	shift = uint32(bits.Len32(uint32(d) - 1))
	return uint32((1<<(31+shift) + uint64(d) - 1) / uint64(d)), shift
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
