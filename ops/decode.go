package ops

import (
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/gaze-ml/gaze/internal/attn"
)

// Results of an attention op, by index.
const (
	resultOut = iota
	resultLSE
	resultLSE2
	resultFP4Scale
)

// BatchDecode is FlashInfer's trtllm_batch_decode_with_kv_cache: attention of the newest tokens of B requests over a paged
// KV cache.
//
//	q            [T,Hq,D] float32, Float16, BFloat16 or Float8E4M3, request-major
//	kv           StackedKV or PairKV of q's dtype; for Float16 and BFloat16 of Float8E4M3 too
//	blockTables  [B,maxPages] int32: entry (b,n) is the page of positions nP … nP+P-1 of request b
//	seqLens      [B] int32 or uint32: S_b, this step's tokens included
//	maxSeqLen    upper bound of seqLens; 0 means maxPages·P
//
// The output is [T,Hq,D] in q's dtype unless an option says otherwise:
//
//	s[j] = bmm1_scale · q·k[j],  out = bmm2_scale · Σ_j softmax(s)[j]·v[j]
//
// over the visible keys; the default bmm1_scale is 1, so pass 1/sqrt(D). With q_len_per_req above 1 the rows of a request are
// its last positions, causal unless [WithMask] says otherwise. A row that sees no key is 0; one whose
// scores are all -Inf is NaN, unless a finite sink takes the weight. [LSE] names the log-sum-exp.
//
// Wrong shapes and dtypes are refused here; lengths and table entries when it runs, before anything is written; on a GPU under
// [WithValueChecks], without which a wrong request's rows become 0 and the next call that waits tells.
func BatchDecode(q *gorgonia.Node, kv KV[*gorgonia.Node], blockTables, seqLens *gorgonia.Node, maxSeqLen int, opts ...Option) (*gorgonia.Node, error) {
	s, err := settle("decode", opts)
	if err != nil {
		return nil, err
	}
	type C = attn.DecodeCall
	var b builder[C, *C]
	b.proto = s.decode
	b.proto.MaxSeqLen = maxSeqLen
	b.need(q, field("query", func(c *C) *attn.Tensor { return &c.Query }))
	in, err := decodeOperands(kv)
	if err != nil {
		return nil, err
	}
	for i, n := range kv.Tensors() {
		b.need(n, in[i])
	}
	b.need(blockTables, field("block_tables", func(c *C) *attn.Tensor { return &c.BlockTables }))
	b.need(seqLens, field("seq_lens", func(c *C) *attn.Tensor { return &c.SeqLens }))
	b.may(s.bmm1, field("bmm1_scale", func(c *C) *attn.Tensor { return &c.BMM1ScaleTensor }))
	b.may(s.bmm2, field("bmm2_scale", func(c *C) *attn.Tensor { return &c.BMM2ScaleTensor }))
	b.may(s.sinks, field("sinks", func(c *C) *attn.Tensor { return &c.Sinks }))
	b.may(s.mask, field("mask", func(c *C) *attn.Tensor { return &c.Mask }))
	b.may(s.cumSeqLensQ, field("cum_seq_lens_q", func(c *C) *attn.Tensor { return &c.CumSeqLensQ }))
	b.may(s.workspace, field("workspace_buffer", func(c *C) *attn.Tensor { return &c.Workspace }))

	b.output("out", s.out, func(c *C) *attn.Tensor { return &c.Out })
	if s.out != nil {
		b.in[len(b.in)-1].set = decodeOut
	}
	lse := func(c *C) attn.Tensor { return attn.Of(attn.F32, c.Query.Shape[0], c.Query.Shape[1]) }
	b.optional("lse", s.lse, func(c *C) *attn.Tensor { return &c.LSE }, lse)
	b.optional("lse", nil, func(c *C) *attn.Tensor { return &c.LSE2 }, lse)
	if s.decode.OutDType == attn.U8 {
		b.output("out", s.outScale, func(c *C) *attn.Tensor { return &c.OutScale })
	}
	return b.build()
}

// decodeOut takes a caller's buffer. One of bytes holds nvfp4, of which it is half: only who says so knows where the scales go.
func decodeOut(c *attn.DecodeCall, t attn.Tensor) error {
	if c.Out = t; t.DType == attn.U8 && c.OutDType != attn.U8 {
		return attn.Errorf(ErrDType, c.Op(), "out", "the dtype of query, or uint8 with NVFP4's block scales and out_dtype", "%v", t.DType)
	}
	return nil
}

func decodeOperands[T Operand](kv KV[T]) ([]operand[attn.DecodeCall], error) {
	return kvOperands("decode", kv, "kv_cache", "kv_cache", func(c *attn.DecodeCall) (*attn.Tensor, *attn.Tensor) { return &c.Key, &c.Value })
}

// DecodeArgs holds the tensors of a direct call of [Decode]; fields left nil are absent. Shapes are those of [BatchDecode].
type DecodeArgs struct {
	Query                *tensor.Dense
	KV                   KV[*tensor.Dense]
	BlockTables, SeqLens *tensor.Dense
	MaxSeqLen            int
	BMM1Scale, BMM2Scale *tensor.Dense // one float32 each, instead of the options
	Sinks, Mask          *tensor.Dense
	MaxQLen              int // with CumSeqLensQ
	CumSeqLensQ          *tensor.Dense
	Workspace            *tensor.Dense

	Out          *tensor.Dense // required
	OutScale     *tensor.Dense // NVFP4 block scales: required with [NVFP4]
	ScaleRow     int           // first row of OutScale
	LSE, LSELog2 *tensor.Dense // [T,Hq] float32: natural log, base 2
}

// Decode is [BatchDecode] on tensors, now. It writes Out (and LSE where given) and returns.
func Decode(a DecodeArgs, opts ...Option) error {
	s, err := settleDirect("decode", opts)
	if err != nil {
		return err
	}
	c := s.decode
	c.MaxSeqLen, c.MaxQLen, c.SFStartRow = a.MaxSeqLen, a.MaxQLen, a.ScaleRow
	d := direct{op: "decode"}
	in, err := decodeOperands(a.KV)
	if err != nil {
		return err
	}
	d.need("query", a.Query, &c.Query)
	caches(&d, a.KV.Tensors(), in, &c)
	d.need("block_tables", a.BlockTables, &c.BlockTables)
	d.need("seq_lens", a.SeqLens, &c.SeqLens)
	d.may("bmm1_scale", a.BMM1Scale, &c.BMM1ScaleTensor)
	d.may("bmm2_scale", a.BMM2Scale, &c.BMM2ScaleTensor)
	d.may("sinks", a.Sinks, &c.Sinks)
	d.may("mask", a.Mask, &c.Mask)
	d.may("cum_seq_lens_q", a.CumSeqLensQ, &c.CumSeqLensQ)
	d.may("workspace_buffer", a.Workspace, &c.Workspace)
	d.need("out", a.Out, &c.Out)
	if c.OutDType == attn.U8 {
		d.need("out", a.OutScale, &c.OutScale)
	} else {
		d.may("out", a.OutScale, &c.OutScale)
	}
	if a.OutScale == nil {
		d.check(decodeOut(&c, c.Out))
	}
	d.may("lse", a.LSE, &c.LSE)
	d.may("lse", a.LSELog2, &c.LSE2)
	return d.run(&c)
}
