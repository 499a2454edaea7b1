package ops

import (
	"cmp"
	"errors"
	"slices"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/gaze-ml/gaze/internal/attn"
)

// Option sets an optional argument of an op. Each is named after FlashInfer's argument, whose default holds without it. An
// op refuses an option that it does not have.
type Option struct {
	name string
	ops  []string // the ops that have it
	set  func(*settings)
}

// settings is everything that options can say. Nodes are nil where they were not given.
type settings struct {
	op   string
	errs []error

	decode  attn.DecodeCall // scalars only
	prefill attn.PrefillCall
	append  attn.AppendCall
	rope    attn.RoPECall
	embed   attn.EmbeddingCall
	softmax attn.SoftmaxCall

	bmm1, bmm2, sinks, mask, cumSeqLensQ, workspace      *gorgonia.Node
	out, outScale, lse                                   *gorgonia.Node
	blockTables, qScale, kScale, vScale                  *gorgonia.Node
	offsetsQ, offsetsO, offsetsK, offsetsV, offsetsStats *gorgonia.Node
	bias, factors, query                                 *gorgonia.Node
	nodes                                                []string // options with nodes, which direct calls refuse
}

// settle applies the options of one op.
func settle(op string, opts []Option) (*settings, error) {
	s := &settings{op: op, decode: attn.NewDecodeCall(), append: attn.NewAppendCall(), softmax: attn.SoftmaxCall{Temperature: 1}}
	for _, o := range opts {
		if slices.Contains(o.ops, op) {
			o.set(s)
		} else {
			s.refuse(cmp.Or(o.name, "options"), "an option that this op has", "one that it has not")
		}
	}
	return s, errors.Join(s.errs...)
}

func (s *settings) refuse(arg, want, got string) {
	s.errs = append(s.errs, attn.Errorf(ErrArgument, s.op, arg, want, "%s", got))
}

// settleDirect is settle for a direct call, whose tensors are fields of its arguments.
func settleDirect(op string, opts []Option) (*settings, error) {
	s, err := settle(op, opts)
	if err == nil && len(s.nodes) > 0 {
		err = attn.Errorf(ErrArgument, op, s.nodes[0], "a tensor in the call's struct", "a graph node in an option")
	}
	return s, err
}

func scalar(name string, ops []string, set func(*settings)) Option { return Option{name, ops, set} }

func node(name string, n *gorgonia.Node, ops []string, at func(*settings) **gorgonia.Node) Option {
	return Option{name, ops, func(s *settings) {
		s.nodes = append(s.nodes, name)
		*at(s) = n
		if n == nil {
			*at(s) = missing
		}
	}}
}

// missing stands for a nil node that was passed to an option, so that it isn't taken for an option left out.
var missing = &gorgonia.Node{}

var (
	onDecode    = []string{"decode"}
	onPrefill   = []string{"prefill"}
	onAttention = []string{"decode", "prefill"}
)

// WithBMM1Scale is the whole factor on q·k, 1/sqrt(D) included: bmm1_scale, 1 by default.
func WithBMM1Scale(x float64) Option {
	return scalar("bmm1_scale", onDecode, func(s *settings) { s.decode.BMM1Scale = x })
}

// WithBMM1ScaleNode is bmm1_scale as a tensor, [1] float32, read at run time.
func WithBMM1ScaleNode(n *gorgonia.Node) Option {
	return node("bmm1_scale", n, onDecode, func(s *settings) **gorgonia.Node { return &s.bmm1 })
}

// WithBMM2Scale is the factor on the output: bmm2_scale, 1 by default.
func WithBMM2Scale(x float64) Option {
	return scalar("bmm2_scale", onDecode, func(s *settings) { s.decode.BMM2Scale = x })
}

// WithBMM2ScaleNode is bmm2_scale as a tensor, [1] float32, read at run time.
func WithBMM2ScaleNode(n *gorgonia.Node) Option {
	return node("bmm2_scale", n, onDecode, func(s *settings) **gorgonia.Node { return &s.bmm2 })
}

// WithWindowLeft makes a row see its own position and w keys before it: window_left, -1 (no window) by default.
func WithWindowLeft(w int) Option {
	return scalar("window_left", onDecode, func(s *settings) { s.decode.WindowLeft = w })
}

// WithSinks gives one logit a head, [Hq] float32, that is added to the softmax denominator: sinks. In a row without keys only a finite one
// counts, for the LSE; in others +Inf and NaN make the row NaN.
func WithSinks(n *gorgonia.Node) Option {
	return node("sinks", n, onDecode, func(s *settings) **gorgonia.Node { return &s.sinks })
}

// WithQLenPerReq gives every request l query tokens: q_len_per_req, 1 by default.
func WithQLenPerReq(l int) Option {
	return scalar("q_len_per_req", onDecode, func(s *settings) {
		if s.decode.QLenPerReq = l; l == 0 { // the call reads 0 as not given
			s.refuse("q_len_per_req", "1 or more", "0")
		}
	})
}

// WithVarLenQueries gives each request its own query length: max_q_len and cum_seq_lens_q, [B+1] int32 prefix sums.
func WithVarLenQueries(maxQLen int, cumSeqLensQ *gorgonia.Node) Option {
	o := node("cum_seq_lens_q", cumSeqLensQ, onDecode, func(s *settings) **gorgonia.Node { return &s.cumSeqLensQ })
	return both(o, func(s *settings) { s.decode.MaxQLen = maxQLen })
}

func both(o Option, more func(*settings)) Option {
	set := o.set
	o.set = func(s *settings) { set(s); more(s) }
	return o
}

// WithMask gives the draft tokens' visibility, [B, L, 2·ceil(L/32)] uint16 holding little-endian 32-bit words: mask.
func WithMask(n *gorgonia.Node) Option {
	return node("mask", n, onDecode, func(s *settings) **gorgonia.Node { return &s.mask })
}

// WithOScale is the scale that the caller has folded into bmm2_scale for a Float8E4M3 output: o_scale. It is only checked: above 0, and 1 for
// other outputs.
func WithOScale(x float64) Option {
	return scalar("o_scale", onDecode, func(s *settings) { s.decode.OScale = x })
}

// WithOSFScale is the global encode multiplier of an NVFP4 output, which wants it: o_sf_scale, above 0 in float32.
func WithOSFScale(x float64) Option {
	return scalar("o_sf_scale", onDecode, func(s *settings) {
		s.decode.OSFScale = x
		if x == 0 {
			s.refuse("o_sf_scale", "a finite number above 0", "0")
		}
	})
}

// WithOSFVecSize is the block length of an NVFP4 output, 16: o_sf_vec_size.
func WithOSFVecSize(n int) Option {
	return scalar("o_sf_vec_size", onDecode, func(s *settings) {
		s.decode.OSFVecSize = n
		if n == 0 {
			s.refuse("o_sf_vec_size", "16", "0")
		}
	})
}

// WithPDL asks for programmatic dependent launch: enable_pdl. It never changes a number.
func WithPDL(on bool) Option {
	return scalar("enable_pdl", onDecode, func(s *settings) {
		s.decode.PDL = -1
		if on {
			s.decode.PDL = 1
		}
	})
}

// WithOutDType is the output's dtype: out_dtype. It is the query's by default, the weight's for [Embedding].
func WithOutDType(dt tensor.Dtype) Option {
	return scalar("out_dtype", []string{"decode", "embedding"}, func(s *settings) {
		s.decode.OutDType, s.embed.OutDType = outDType(dt), DTypeOf(dt)
	})
}

// outDType keeps uint8 from passing for nvfp4.
func outDType(dt tensor.Dtype) attn.DType {
	if d := DTypeOf(dt); d != attn.U8 || dt == NVFP4 {
		return d
	}
	return attn.Other
}

// WithODataType is the output's dtype in prefill: o_data_type.
func WithODataType(dt tensor.Dtype) Option {
	return scalar("o_data_type", onPrefill, func(s *settings) { s.prefill.OutDType = outDType(dt) })
}

// WithOut writes the output into n, in place: out.
func WithOut(n *gorgonia.Node) Option {
	return node("out", n, onAttention, func(s *settings) **gorgonia.Node { return &s.out })
}

// WithFP4Out writes an NVFP4 output in place: data [T,Hq,D/2] uint8, and the block scales of token t into row startRow+t of
// scale, Float8E4M3 [a multiple of 128, Hq·D/16 rounded up to 4], in the 128×4 swizzle: of C columns, that of row r and column
// c is element (r/128·C/4 + c/4)·512 + r%32·16 + r%128/32·4 + c%4.
func WithFP4Out(data, scale *gorgonia.Node, startRow int) Option {
	o := node("out", data, onDecode, func(s *settings) **gorgonia.Node { return &s.out })
	o = both(o, node("out_scale", scale, onDecode, func(s *settings) **gorgonia.Node { return &s.outScale }).set)
	return both(o, func(s *settings) { s.decode.SFStartRow, s.decode.OutDType = startRow, attn.U8 })
}

// WithLSEOut writes the log-sum-exp into n, in place: lse, [T,Hq] float32 for decode, [B,max_token_per_sequence,Hq] for
// prefill.
func WithLSEOut(n *gorgonia.Node) Option {
	return node("lse", n, onAttention, func(s *settings) **gorgonia.Node { return &s.lse })
}

// WithBackend names FlashInfer's backend: "auto", "xqa" or "trtllm-gen" for decode, "auto", "cudnn" or "cubin" for prefill.
// A name only refuses what FlashInfer refuses under it; but "cudnn" has no kernels on a GPU.
func WithBackend(name string) Option {
	return scalar("backend", onAttention, func(s *settings) { s.decode.Backend, s.prefill.Backend = name, name })
}

// WithWorkspace lends scratch memory of any dtype and content, contiguous and apart from every operand: workspace_buffer. Nothing needs it: the
// CPU leaves it alone, and a GPU has its own, but decode there refuses one that is smaller than what it would use, with the size, or not at a
// multiple of 16 bytes.
func WithWorkspace(n *gorgonia.Node) Option {
	return node("workspace_buffer", n, onAttention, func(s *settings) **gorgonia.Node { return &s.workspace })
}

// WithValueChecks makes a device wait and check lengths, block tables, positions and ids before it launches. The CPU always checks.
func WithValueChecks() Option {
	return scalar("value_checks", []string{"decode", "prefill", "append_kv", "rope", "embedding"}, func(s *settings) {
		s.decode.CheckValues, s.prefill.CheckValues, s.append.CheckValues = true, true, true
		s.rope.CheckValues, s.embed.CheckValues = true, true
	})
}

// WithBlockTables gives the block tables of a paged prefill, [B, maxPages] int32: block_tables.
func WithBlockTables(n *gorgonia.Node) Option {
	return node("block_tables", n, onPrefill, func(s *settings) **gorgonia.Node { return &s.blockTables })
}

// WithScales gives the dequantisation factors of Float8E4M3 inputs, one float32 each: q_scale, k_scale, v_scale.
func WithScales(q, k, v *gorgonia.Node) Option {
	o := node("q_scale", q, onPrefill, func(s *settings) **gorgonia.Node { return &s.qScale })
	o = both(o, node("k_scale", k, onPrefill, func(s *settings) **gorgonia.Node { return &s.kScale }).set)
	return both(o, node("v_scale", v, onPrefill, func(s *settings) **gorgonia.Node { return &s.vScale }).set)
}

// WithBatchOffsets gives the element offset of each request's first row in q, out, k, v and the LSE, [B] or [B+1] int32 or
// int64; nil means packed: batch_offsets_q, _o, _k, _v, _stats.
func WithBatchOffsets(q, o, k, v, stats *gorgonia.Node) Option {
	return Option{"batch_offsets", onPrefill, func(s *settings) {
		s.nodes = append(s.nodes, "batch_offsets")
		s.offsetsQ, s.offsetsO, s.offsetsK, s.offsetsV, s.offsetsStats = q, o, k, v, stats
	}}
}

// WithCUDAGraphCompatible wants lengths on the query's device: is_cuda_graph_compatible.
func WithCUDAGraphCompatible() Option {
	return scalar("is_cuda_graph_compatible", onPrefill, func(s *settings) { s.prefill.CUDAGraph = true })
}
