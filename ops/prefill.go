package ops

import (
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/gaze-ml/gaze/internal/attn"
)

// BatchPrefill is FlashInfer's cudnn_batch_prefill_with_kv_cache: attention of packed requests of varying lengths over a
// paged or ragged KV cache.
//
//	q         [T,Hq,Dqk] float32, Float16, BFloat16 or Float8E4M3: the requests' rows one after the other
//	kv        StackedKV or PairKV with WithBlockTables, or RaggedKV, of q's dtype
//	scale     softmax scale, normally 1/sqrt(Dqk)
//	qLens     [B] or [B,1,1,1] int32: L_b, at most maxQLen (max_token_per_sequence)
//	kvLens    the same for S_b, at most maxKVLen (max_sequence_kv)
//	causal    key j is visible to row i iff j ≤ i + S_b - L_b; otherwise iff j < S_b
//
// The output is [T,Hq,Dvo] in q's dtype unless [WithODataType] says otherwise; a row that sees no key, and rows past the last request, are 0,
// and one whose scores are all -Inf is NaN. [LSE] names the log-sum-exp, [B,maxQLen,Hq] with -inf where there is no row.
//
// Wrong shapes and dtypes are refused here; lengths, table entries and offsets when it runs, as for [BatchDecode].
func BatchPrefill(q *gorgonia.Node, kv KV[*gorgonia.Node], scale float64, qLens, kvLens *gorgonia.Node, maxQLen, maxKVLen int, causal bool, opts ...Option) (*gorgonia.Node, error) {
	s, err := settle("prefill", opts)
	if err != nil {
		return nil, err
	}
	type C = attn.PrefillCall
	var b builder[C, *C]
	b.proto = s.prefill
	b.proto.Scale, b.proto.MaxQLen, b.proto.MaxKVLen, b.proto.Causal = scale, maxQLen, maxKVLen, causal
	b.need(q, field("q", func(c *C) *attn.Tensor { return &c.Query }))
	in, err := prefillOperands(kv)
	if err != nil {
		return nil, err
	}
	for i, n := range kv.Tensors() {
		b.need(n, in[i])
	}
	b.need(qLens, field("actual_seq_lens_q", func(c *C) *attn.Tensor { return &c.QLens }))
	b.need(kvLens, field("actual_seq_lens_kv", func(c *C) *attn.Tensor { return &c.KVLens }))
	b.may(s.blockTables, field("block_tables", func(c *C) *attn.Tensor { return &c.BlockTables }))
	b.may(s.qScale, field("q_scale", func(c *C) *attn.Tensor { return &c.QScale }))
	b.may(s.kScale, field("k_scale", func(c *C) *attn.Tensor { return &c.KScale }))
	b.may(s.vScale, field("v_scale", func(c *C) *attn.Tensor { return &c.VScale }))
	b.may(s.offsetsQ, field("batch_offsets_q", func(c *C) *attn.Tensor { return &c.OffsetsQ }))
	b.may(s.offsetsO, field("batch_offsets_o", func(c *C) *attn.Tensor { return &c.OffsetsO }))
	b.may(s.offsetsK, field("batch_offsets_k", func(c *C) *attn.Tensor { return &c.OffsetsK }))
	b.may(s.offsetsV, field("batch_offsets_v", func(c *C) *attn.Tensor { return &c.OffsetsV }))
	b.may(s.offsetsStats, field("batch_offsets_stats", func(c *C) *attn.Tensor { return &c.OffsetsStats }))
	b.may(s.workspace, field("workspace_buffer", func(c *C) *attn.Tensor { return &c.Workspace }))

	b.output("out", s.out, func(c *C) *attn.Tensor { return &c.Out })
	lse := func(c *C) attn.Tensor { return attn.Of(attn.F32, c.Batch(), c.MaxQLen, c.Query.Shape[1]) }
	b.optional("lse", s.lse, func(c *C) *attn.Tensor { return &c.LSE }, lse)
	b.optional("lse", nil, func(c *C) *attn.Tensor { return &c.LSE2 }, lse)
	return b.build()
}

func prefillOperands[T Operand](kv KV[T]) ([]operand[attn.PrefillCall], error) {
	return kvOperands("prefill", kv, "k_cache", "v_cache", func(c *attn.PrefillCall) (*attn.Tensor, *attn.Tensor) { return &c.Key, &c.Value })
}

// PrefillArgs holds the tensors and scalars of a direct call of [Prefill]; tensors left nil are absent. Shapes are those of
// [BatchPrefill].
type PrefillArgs struct {
	Query             *tensor.Dense
	KV                KV[*tensor.Dense]
	BlockTables       *tensor.Dense // paged only
	QLens, KVLens     *tensor.Dense
	Scale             float64
	MaxQLen, MaxKVLen int
	Causal            bool

	QScale, KScale, VScale                               *tensor.Dense
	OffsetsQ, OffsetsO, OffsetsK, OffsetsV, OffsetsStats *tensor.Dense
	Workspace                                            *tensor.Dense

	Out          *tensor.Dense // required
	LSE, LSELog2 *tensor.Dense
}

// Prefill is [BatchPrefill] on tensors, now.
func Prefill(a PrefillArgs, opts ...Option) error {
	s, err := settleDirect("prefill", opts)
	if err != nil {
		return err
	}
	c := s.prefill
	c.Scale, c.MaxQLen, c.MaxKVLen, c.Causal = a.Scale, a.MaxQLen, a.MaxKVLen, a.Causal
	d := direct{op: "prefill"}
	in, err := prefillOperands(a.KV)
	if err != nil {
		return err
	}
	d.need("q", a.Query, &c.Query)
	caches(&d, a.KV.Tensors(), in, &c)
	d.need("actual_seq_lens_q", a.QLens, &c.QLens)
	d.need("actual_seq_lens_kv", a.KVLens, &c.KVLens)
	d.may("block_tables", a.BlockTables, &c.BlockTables)
	d.may("q_scale", a.QScale, &c.QScale)
	d.may("k_scale", a.KScale, &c.KScale)
	d.may("v_scale", a.VScale, &c.VScale)
	d.may("batch_offsets_q", a.OffsetsQ, &c.OffsetsQ)
	d.may("batch_offsets_o", a.OffsetsO, &c.OffsetsO)
	d.may("batch_offsets_k", a.OffsetsK, &c.OffsetsK)
	d.may("batch_offsets_v", a.OffsetsV, &c.OffsetsV)
	d.may("batch_offsets_stats", a.OffsetsStats, &c.OffsetsStats)
	d.may("workspace_buffer", a.Workspace, &c.Workspace)
	d.need("out", a.Out, &c.Out)
	d.may("lse", a.LSE, &c.LSE)
	d.may("lse", a.LSELog2, &c.LSE2)
	return d.run(&c)
}
