package opstest

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/gaze-ml/gaze/internal/attn"
)

// What Infer must refuse, and that what it must not refuse passes: the contract's validation tables, row by row.

// good calls, with everything given that a row below may spoil.
func goodDecode() *attn.DecodeCall {
	c := attn.NewDecodeCall()
	c.Query, c.Key, c.Value = attn.Of(attn.F16, 6, 8, 64), attn.Of(attn.F16, 9, 2, 16, 64), attn.Of(attn.F16, 9, 2, 16, 64)
	c.BlockTables, c.SeqLens = attn.Of(attn.I32, 3, 4), attn.Of(attn.I32, 3)
	c.QLenPerReq = 2
	return &c
}

func raggedDecode() *attn.DecodeCall {
	c := goodDecode()
	c.QLenPerReq, c.MaxQLen, c.CumSeqLensQ = 0, 3, attn.Of(attn.I32, 4)
	return c
}

func nvfp4Decode() *attn.DecodeCall {
	c := goodDecode()
	c.Query.DType, c.Key.DType, c.Value.DType = attn.E4M3, attn.E4M3, attn.E4M3
	c.OutDType, c.OSFScale, c.OSFVecSize = attn.U8, 300, 16
	c.Out, c.OutScale = attn.Of(attn.U8, 6, 8, 32), attn.Of(attn.E4M3, 128, 32)
	return c
}

func maskedDecode() *attn.DecodeCall {
	c := goodDecode()
	c.Mask = attn.Of(attn.U16, 3, 2, 2)
	return c
}

func goodPrefill() *attn.PrefillCall {
	return &attn.PrefillCall{
		Query: attn.Of(attn.F16, 20, 8, 64), Key: attn.Of(attn.F16, 9, 2, 16, 64), Value: attn.Of(attn.F16, 9, 2, 16, 64),
		BlockTables: attn.Of(attn.I32, 3, 4), QLens: attn.Of(attn.I32, 3), KVLens: attn.Of(attn.I32, 3), Scale: 0.125, MaxQLen: 16, MaxKVLen: 64, Causal: true,
	}
}

func raggedPrefill() *attn.PrefillCall {
	c := goodPrefill()
	c.Key, c.Value, c.BlockTables = attn.Of(attn.F16, 70, 2, 64), attn.Of(attn.F16, 70, 2, 64), attn.Tensor{}
	return c
}

func e4m3Prefill() *attn.PrefillCall {
	c := goodPrefill()
	c.Query.DType, c.Key.DType, c.Value.DType = attn.E4M3, attn.E4M3, attn.E4M3
	c.QScale, c.KScale, c.VScale = attn.Of(attn.F32, 1, 1, 1, 1), attn.Of(attn.F32, 1), attn.Of(attn.F32)
	return c
}

func goodAppend() *attn.AppendCall {
	c := attn.NewAppendCall()
	c.KeyCache, c.ValueCache = attn.Of(attn.F16, 9, 2, 16, 64), attn.Of(attn.F16, 9, 2, 16, 64)
	c.Key, c.Value, c.BlockTables = attn.Of(attn.F16, 5, 2, 64), attn.Of(attn.F16, 5, 2, 64), attn.Of(attn.I32, 3, 4)
	c.Positions, c.Requests = attn.Of(attn.I32, 5), attn.Of(attn.I32, 5)
	return &c
}

func goodNorm() *attn.RMSNormCall {
	return &attn.RMSNormCall{X: attn.Of(attn.F16, 3, 64), Residual: attn.Of(attn.F16, 3, 64), Weight: attn.Of(attn.F32, 64), Eps: 1e-5}
}

func goodRoPE() *attn.RoPECall {
	return &attn.RoPECall{X: attn.Of(attn.F16, 3, 8, 64), Positions: attn.Of(attn.I32, 3), Factors: attn.Of(attn.F32, 32), Base: 1e4}
}

func goodLinear() *attn.LinearCall {
	return &attn.LinearCall{X: attn.Of(attn.F16, 3, 256), Weight: attn.Of(attn.Q4_K, 10, 1), Bias: attn.Of(attn.F16, 10)}
}

func goodSiLU() *attn.SiLUMulCall {
	return &attn.SiLUMulCall{Gate: attn.Of(attn.F16, 3, 64), Up: attn.Of(attn.F16, 3, 64)}
}

func goodEmbedding() *attn.EmbeddingCall {
	return &attn.EmbeddingCall{IDs: attn.Of(attn.I32, 3), Weight: attn.Of(attn.Q8_0, 10, 2)}
}

func goodMerge() *attn.MergeLSECall {
	o, l := attn.Of(attn.F16, 3, 8, 64), attn.Of(attn.F32, 3, 8)
	return &attn.MergeLSECall{OutA: o, OutB: o, LSEA: l, LSEB: l}
}

// strided gives a descriptor whose last dimension doesn't lie together.
func strided(t attn.Tensor) attn.Tensor {
	for i := range t.Rank {
		t.Stride[i] *= 2
	}
	return t
}

// gapped gives a descriptor with contiguous rows apart.
func gapped(t attn.Tensor) attn.Tensor {
	t.Stride[0] += 8
	return t
}

type refusalRow struct {
	name string
	call attn.Call
	kind error
	arg  string
}

// row spoils a good call.
func row[C attn.Call](name string, c C, kind error, arg string, spoil func(C)) refusalRow {
	spoil(c)
	return refusalRow{name, c, kind, arg}
}

func decodeRefusals() []refusalRow {
	type D = *attn.DecodeCall
	shape, dtype, arg, unsupported := attn.ErrShape, attn.ErrDType, attn.ErrArgument, attn.ErrUnsupported
	return []refusalRow{
		row("backend unknown", goodDecode(), arg, "backend", func(c D) { c.Backend = "cudnn" }),
		row("xqa with nvfp4 by dtype", nvfp4Decode(), unsupported, "backend", func(c D) { c.Backend, c.Out, c.OutScale = "xqa", attn.Tensor{}, attn.Tensor{} }),
		row("xqa with nvfp4 by out", nvfp4Decode(), unsupported, "backend", func(c D) { c.Backend, c.OutDType = "xqa", attn.Invalid }),
		row("xqa with o_sf_scale", maskedDecode(), unsupported, "backend", func(c D) { c.Backend, c.OSFScale = "xqa", 1 }),
		row("xqa with o_sf_vec_size", maskedDecode(), unsupported, "backend", func(c D) { c.Backend, c.OSFVecSize = "xqa", 16 }),
		row("xqa with cum_seq_lens_q", raggedDecode(), unsupported, "backend", func(c D) { c.Backend = "xqa" }),
		row("xqa with max_q_len alone", maskedDecode(), arg, "max_q_len", func(c D) { c.Backend, c.MaxQLen = "xqa", 2 }),
		row("xqa with drafts and no mask", goodDecode(), arg, "mask", func(c D) { c.Backend = "xqa" }),
		row("xqa with an e4m3 query", maskedDecode(), dtype, "query", func(c D) {
			c.Backend, c.Query.DType, c.Key.DType, c.Value.DType = "xqa", attn.E4M3, attn.E4M3, attn.E4M3
		}),
		row("trtllm-gen with a mask", maskedDecode(), unsupported, "mask", func(c D) { c.Backend = "trtllm-gen" }),
		row("trtllm-gen with o_sf_scale without nvfp4", goodDecode(), arg, "o_sf_scale", func(c D) { c.Backend, c.OSFScale = "trtllm-gen", 1 }),
		row("trtllm-gen with nvfp4 of a float16 query", goodDecode(), dtype, "out_dtype", func(c D) { c.Backend, c.OutDType, c.OSFScale = "trtllm-gen", attn.U8, 1 }),

		row("K and V of two dtypes", goodDecode(), dtype, "kv_cache", func(c D) { c.Value.DType = attn.BF16 }),
		row("nvfp4 without o_sf_scale", nvfp4Decode(), arg, "o_sf_scale", func(c D) { c.OSFScale = 0 }),
		row("nvfp4 with a negative o_sf_scale", nvfp4Decode(), arg, "o_sf_scale", func(c D) { c.OSFScale = -1 }),
		row("nvfp4 with o_sf_scale NaN", nvfp4Decode(), arg, "o_sf_scale", func(c D) { c.OSFScale = math.NaN() }),
		row("nvfp4 with o_sf_scale Inf", nvfp4Decode(), arg, "o_sf_scale", func(c D) { c.OSFScale = math.Inf(1) }),
		row("nvfp4 with blocks of 32", nvfp4Decode(), arg, "o_sf_vec_size", func(c D) { c.OSFVecSize = 32 }),
		row("nvfp4 into a plain tensor", nvfp4Decode(), dtype, "out", func(c D) { c.Out = attn.Of(attn.F16, 6, 8, 64) }),
		row("nvfp4 with head_dim 40", nvfp4Decode(), shape, "query", func(c D) {
			c.Out, c.OutScale = attn.Tensor{}, attn.Tensor{}
			c.Query, c.Key = attn.Of(attn.E4M3, 6, 8, 40), attn.Of(attn.E4M3, 9, 2, 16, 40)
			c.Value = c.Key
		}),
		row("o_sf_scale without nvfp4", goodDecode(), arg, "o_sf_scale", func(c D) { c.OSFScale = 1 }),
		row("o_sf_vec_size without nvfp4", goodDecode(), arg, "o_sf_scale", func(c D) { c.OSFVecSize = 16 }),
		row("block scales without nvfp4", goodDecode(), arg, "out", func(c D) { c.OutScale = attn.Of(attn.E4M3, 128, 32) }),
		row("nvfp4 data of full width", nvfp4Decode(), shape, "out", func(c D) { c.Out = attn.Of(attn.U8, 6, 8, 64) }),
		row("nvfp4 scales of float16", nvfp4Decode(), dtype, "out", func(c D) { c.OutScale = attn.Of(attn.F16, 128, 32) }),
		row("nvfp4 scale rows not of 128", nvfp4Decode(), shape, "out", func(c D) { c.OutScale = attn.Of(attn.E4M3, 120, 32) }),
		row("nvfp4 scale columns", nvfp4Decode(), shape, "out", func(c D) { c.OutScale = attn.Of(attn.E4M3, 128, 36) }),
		row("nvfp4 scales with gaps", nvfp4Decode(), shape, "out", func(c D) { c.OutScale = gapped(c.OutScale) }),
		row("nvfp4 start row -1", nvfp4Decode(), arg, "scale_start_index", func(c D) { c.SFStartRow = -1 }),
		row("nvfp4 start row too late", nvfp4Decode(), arg, "scale_start_index", func(c D) { c.SFStartRow = 123 }),

		row("bmm1 tensor of float16", goodDecode(), dtype, "bmm1_scale", func(c D) { c.BMM1ScaleTensor = attn.Of(attn.F16, 1) }),
		row("bmm2 tensor of float16", goodDecode(), dtype, "bmm2_scale", func(c D) { c.BMM2ScaleTensor = attn.Of(attn.F16, 1) }),
		row("bmm1 tensor of two", goodDecode(), shape, "bmm1_scale", func(c D) { c.BMM1ScaleTensor = attn.Of(attn.F32, 2) }),
		row("bmm1 NaN", goodDecode(), arg, "bmm1_scale", func(c D) { c.BMM1Scale = math.NaN() }),
		row("bmm1 Inf", goodDecode(), arg, "bmm1_scale", func(c D) { c.BMM1Scale = math.Inf(-1) }),
		row("bmm2 NaN", goodDecode(), arg, "bmm2_scale", func(c D) { c.BMM2Scale = math.NaN() }),
		row("bmm2 Inf", goodDecode(), arg, "bmm2_scale", func(c D) { c.BMM2Scale = math.Inf(1) }),
		row("o_scale 0", goodDecode(), arg, "o_scale", func(c D) { c.OScale = 0 }),
		row("o_scale NaN", goodDecode(), arg, "o_scale", func(c D) { c.OScale = math.NaN() }),
		row("o_scale 2 with a float16 output", goodDecode(), arg, "o_scale", func(c D) { c.OScale = 2 }),
		row("sinks of float16", goodDecode(), dtype, "sinks", func(c D) { c.Sinks = attn.Of(attn.F16, 8) }),
		row("sinks by KV head", goodDecode(), shape, "sinks", func(c D) { c.Sinks = attn.Of(attn.F32, 2) }),
		row("sinks [Hkv,G]", goodDecode(), shape, "sinks", func(c D) { c.Sinks = attn.Of(attn.F32, 2, 4) }),

		row("heads 10/4", goodDecode(), shape, "num_heads", func(c D) {
			c.Query = attn.Of(attn.F16, 6, 10, 64)
			c.Key, c.Value = attn.Of(attn.F16, 9, 4, 16, 64), attn.Of(attn.F16, 9, 4, 16, 64)
		}),
		row("heads 4/8", goodDecode(), shape, "num_heads", func(c D) {
			c.Query = attn.Of(attn.F16, 6, 4, 64)
			c.Key, c.Value = attn.Of(attn.F16, 9, 8, 16, 64), attn.Of(attn.F16, 9, 8, 16, 64)
		}),
		row("no KV heads", goodDecode(), shape, "num_heads", func(c D) { c.Key, c.Value = attn.Of(attn.F16, 9, 0, 16, 64), attn.Of(attn.F16, 9, 0, 16, 64) }),
		row("head_dim of K", goodDecode(), shape, "kv_cache", func(c D) { c.Key, c.Value = attn.Of(attn.F16, 9, 2, 16, 128), attn.Of(attn.F16, 9, 2, 16, 128) }),
		row("head_dim of V", goodDecode(), shape, "kv_cache", func(c D) { c.Value = attn.Of(attn.F16, 9, 2, 16, 128) }),
		row("pages of V", goodDecode(), shape, "kv_cache", func(c D) { c.Value = attn.Of(attn.F16, 8, 2, 16, 64) }),
		row("page size of V", goodDecode(), shape, "kv_cache", func(c D) { c.Value = attn.Of(attn.F16, 9, 2, 32, 64) }),
		row("KV heads of V", goodDecode(), shape, "kv_cache", func(c D) { c.Value = attn.Of(attn.F16, 9, 4, 16, 64) }),
		row("page size 0", goodDecode(), shape, "kv_cache", func(c D) { c.Key, c.Value = attn.Of(attn.F16, 9, 2, 0, 64), attn.Of(attn.F16, 9, 2, 0, 64) }),
		row("head_dim 12", goodDecode(), shape, "query", func(c D) {
			c.Query, c.Key, c.Value = attn.Of(attn.F16, 6, 8, 12), attn.Of(attn.F16, 9, 2, 16, 12), attn.Of(attn.F16, 9, 2, 16, 12)
		}),
		row("head_dim 520", goodDecode(), shape, "query", func(c D) {
			c.Query, c.Key, c.Value = attn.Of(attn.F16, 6, 8, 520), attn.Of(attn.F16, 9, 2, 16, 520), attn.Of(attn.F16, 9, 2, 16, 520)
		}),
		row("head_dim 0", goodDecode(), shape, "query", func(c D) {
			c.Query, c.Key, c.Value = attn.Of(attn.F16, 6, 8, 0), attn.Of(attn.F16, 9, 2, 16, 0), attn.Of(attn.F16, 9, 2, 16, 0)
		}),
		row("query strided in D", goodDecode(), shape, "query", func(c D) { c.Query = strided(c.Query) }),
		row("K strided in D", goodDecode(), shape, "kv_cache", func(c D) { c.Key = strided(c.Key) }),
		row("V strided in D", goodDecode(), shape, "kv_cache", func(c D) { c.Value = strided(c.Value) }),
		row("table strided in columns", goodDecode(), shape, "block_tables", func(c D) { c.BlockTables = strided(c.BlockTables) }),
		row("query of rank 2", goodDecode(), shape, "query", func(c D) { c.Query = attn.Of(attn.F16, 6, 512) }),
		row("cache of rank 5", goodDecode(), shape, "kv_cache", func(c D) { c.Key = attn.Of(attn.F16, 9, 2, 2, 16, 64) }),
		row("query absent", goodDecode(), arg, "query", func(c D) { c.Query = attn.Tensor{} }),
		row("cache absent", goodDecode(), arg, "kv_cache", func(c D) { c.Value = attn.Tensor{} }),
		row("table absent", goodDecode(), arg, "block_tables", func(c D) { c.BlockTables = attn.Tensor{} }),
		row("lengths absent", goodDecode(), arg, "seq_lens", func(c D) { c.SeqLens = attn.Tensor{} }),

		row("ragged without max_q_len", raggedDecode(), arg, "max_q_len", func(c D) { c.MaxQLen = 0 }),
		row("max_q_len without cum_seq_lens_q", goodDecode(), arg, "max_q_len", func(c D) { c.MaxQLen = 2 }),
		row("max_q_len -1", raggedDecode(), arg, "max_q_len", func(c D) { c.MaxQLen = -1 }),
		row("q_len_per_req 2 with cum_seq_lens_q", raggedDecode(), arg, "q_len_per_req", func(c D) { c.QLenPerReq = 2 }),
		row("mask with cum_seq_lens_q", raggedDecode(), arg, "mask", func(c D) { c.Mask = attn.Of(attn.U16, 3, 3, 2) }),
		row("cum_seq_lens_q int64", raggedDecode(), dtype, "cum_seq_lens_q", func(c D) { c.CumSeqLensQ = attn.Of(attn.I64, 4) }),
		row("cum_seq_lens_q of rank 2", raggedDecode(), shape, "cum_seq_lens_q", func(c D) { c.CumSeqLensQ = attn.Of(attn.I32, 4, 1) }),
		row("cum_seq_lens_q empty", raggedDecode(), shape, "cum_seq_lens_q", func(c D) { c.CumSeqLensQ = attn.Of(attn.I32, 0) }),
		row("cum_seq_lens_q [B]", raggedDecode(), shape, "seq_lens", func(c D) { c.CumSeqLensQ = attn.Of(attn.I32, 3) }),
		row("q_len_per_req 4 of 6 tokens", goodDecode(), shape, "query", func(c D) { c.QLenPerReq = 4 }),
		row("q_len_per_req -1", goodDecode(), arg, "q_len_per_req", func(c D) { c.QLenPerReq = -1 }),
		row("window_left -2", goodDecode(), arg, "window_left", func(c D) { c.WindowLeft = -2 }),
		row("max_seq_len -1", goodDecode(), arg, "max_seq_len", func(c D) { c.MaxSeqLen = -1 }),
		row("seq_lens int64", goodDecode(), dtype, "seq_lens", func(c D) { c.SeqLens = attn.Of(attn.I64, 3) }),
		row("seq_lens of another batch", goodDecode(), shape, "seq_lens", func(c D) { c.SeqLens = attn.Of(attn.I32, 2) }),
		row("seq_lens of rank 2", goodDecode(), shape, "seq_lens", func(c D) { c.SeqLens = attn.Of(attn.I32, 3, 1) }),
		row("seq_lens with gaps", goodDecode(), shape, "seq_lens", func(c D) { c.SeqLens = strided(c.SeqLens) }),
		row("block_tables int64", goodDecode(), dtype, "block_tables", func(c D) { c.BlockTables = attn.Of(attn.I64, 3, 4) }),
		row("block_tables uint32", goodDecode(), dtype, "block_tables", func(c D) { c.BlockTables = attn.Of(attn.U32, 3, 4) }),
		row("block_tables of another batch", goodDecode(), shape, "block_tables", func(c D) { c.BlockTables = attn.Of(attn.I32, 6, 4) }),
		row("block_tables of rank 1", goodDecode(), shape, "block_tables", func(c D) { c.BlockTables = attn.Of(attn.I32, 12) }),
		row("mask of one word a row", maskedDecode(), shape, "mask", func(c D) { c.Mask = attn.Of(attn.U16, 3, 2, 1) }),
		row("mask of int32", maskedDecode(), dtype, "mask", func(c D) { c.Mask = attn.Of(attn.I32, 3, 2, 2) }),
		row("mask of another batch", maskedDecode(), shape, "mask", func(c D) { c.Mask = attn.Of(attn.U16, 6, 2, 2) }),
		row("mask shape with q_len 1", maskedDecode(), shape, "mask", func(c D) {
			c.QLenPerReq, c.BlockTables, c.SeqLens = 1, attn.Of(attn.I32, 6, 4), attn.Of(attn.I32, 6)
		}),
		row("mask of 33 drafts in two halves", maskedDecode(), shape, "mask", func(c D) {
			c.Query, c.QLenPerReq, c.Mask = attn.Of(attn.F16, 99, 8, 64), 33, attn.Of(attn.U16, 3, 33, 2)
		}),
		row("out of another shape", goodDecode(), shape, "out", func(c D) { c.Out = attn.Of(attn.F16, 6, 8, 128) }),
		row("out of another dtype", goodDecode(), dtype, "out", func(c D) { c.Out, c.OutDType = attn.Of(attn.BF16, 6, 8, 64), attn.F16 }),
		row("out with gaps", goodDecode(), shape, "out", func(c D) { c.Out = gapped(attn.Of(attn.F16, 6, 8, 64)) }),
		row("lse of another shape", goodDecode(), shape, "lse", func(c D) { c.LSE = attn.Of(attn.F32, 3, 8) }),
		row("lse of float16", goodDecode(), dtype, "lse", func(c D) { c.LSE = attn.Of(attn.F16, 6, 8) }),
		row("lse2 of another shape", goodDecode(), shape, "lse", func(c D) { c.LSE2 = attn.Of(attn.F32, 8, 6) }),
	}
}

func prefillRefusals() []refusalRow {
	type P = *attn.PrefillCall
	shape, dtype, arg := attn.ErrShape, attn.ErrDType, attn.ErrArgument
	return []refusalRow{
		row("backend unknown", goodPrefill(), arg, "backend", func(c P) { c.Backend = "xqa" }),
		row("lse of another shape", goodPrefill(), shape, "lse", func(c P) { c.LSE = attn.Of(attn.F32, 20, 8) }),
		row("lse of another max", goodPrefill(), shape, "lse", func(c P) { c.LSE = attn.Of(attn.F32, 3, 17, 8) }),
		row("lse2 of another shape", goodPrefill(), shape, "lse", func(c P) { c.LSE2 = attn.Of(attn.F32, 3, 8, 16) }),
		row("lse of float16", goodPrefill(), dtype, "lse", func(c P) { c.LSE = attn.Of(attn.F16, 3, 16, 8) }),
		row("lengths of q absent", goodPrefill(), arg, "actual_seq_lens_q", func(c P) { c.QLens = attn.Tensor{} }),
		row("lengths of kv absent", goodPrefill(), arg, "actual_seq_lens_kv", func(c P) { c.KVLens = attn.Tensor{} }),
		row("lengths of kv of another batch", goodPrefill(), shape, "actual_seq_lens_kv", func(c P) { c.KVLens = attn.Of(attn.I32, 2) }),
		row("lengths int64", goodPrefill(), dtype, "actual_seq_lens_q", func(c P) { c.QLens = attn.Of(attn.I64, 3) }),
		row("lengths uint32", goodPrefill(), dtype, "actual_seq_lens_kv", func(c P) { c.KVLens = attn.Of(attn.U32, 3) }),
		row("lengths [B,1]", goodPrefill(), shape, "actual_seq_lens_q", func(c P) { c.QLens = attn.Of(attn.I32, 3, 1) }),
		row("lengths [1,B,1,1]", goodPrefill(), shape, "actual_seq_lens_q", func(c P) { c.QLens = attn.Of(attn.I32, 1, 3, 1, 1) }),
		row("table with ragged keys", raggedPrefill(), shape, "block_tables", func(c P) { c.BlockTables = attn.Of(attn.I32, 3, 4) }),
		row("paged keys without a table", goodPrefill(), arg, "block_tables", func(c P) { c.BlockTables = attn.Tensor{} }),
		row("paged K and ragged V", goodPrefill(), shape, "v_cache", func(c P) { c.Value = attn.Of(attn.F16, 70, 2, 64) }),
		row("ragged K and paged V", raggedPrefill(), shape, "v_cache", func(c P) { c.Value = attn.Of(attn.F16, 9, 2, 16, 64) }),
		row("K of rank 5", goodPrefill(), shape, "k_cache", func(c P) { c.Key = attn.Of(attn.F16, 9, 2, 2, 16, 64) }),
		row("K of rank 2", raggedPrefill(), shape, "k_cache", func(c P) { c.Key = attn.Of(attn.F16, 70, 128) }),
		row("q of rank 4", goodPrefill(), shape, "q", func(c P) { c.Query = attn.Of(attn.F16, 2, 10, 8, 64) }),
		row("table of another batch", goodPrefill(), shape, "block_tables", func(c P) { c.BlockTables = attn.Of(attn.I32, 2, 4) }),
		row("table int64", goodPrefill(), dtype, "block_tables", func(c P) { c.BlockTables = attn.Of(attn.I64, 3, 4) }),
		row("table strided in columns", goodPrefill(), shape, "block_tables", func(c P) { c.BlockTables = strided(c.BlockTables) }),
		row("heads 10/4", goodPrefill(), shape, "num_heads", func(c P) {
			c.Query, c.Key, c.Value = attn.Of(attn.F16, 20, 10, 64), attn.Of(attn.F16, 9, 4, 16, 64), attn.Of(attn.F16, 9, 4, 16, 64)
		}),
		row("heads 4/8", raggedPrefill(), shape, "num_heads", func(c P) {
			c.Query, c.Key, c.Value = attn.Of(attn.F16, 20, 4, 64), attn.Of(attn.F16, 70, 8, 64), attn.Of(attn.F16, 70, 8, 64)
		}),
		row("head_dim of K", goodPrefill(), shape, "k_cache", func(c P) { c.Key = attn.Of(attn.F16, 9, 2, 16, 128) }),
		row("pages of V", goodPrefill(), shape, "v_cache", func(c P) { c.Value = attn.Of(attn.F16, 8, 2, 16, 64) }),
		row("KV heads of V", raggedPrefill(), shape, "v_cache", func(c P) { c.Value = attn.Of(attn.F16, 70, 4, 64) }),
		row("tokens of V", raggedPrefill(), shape, "v_cache", func(c P) { c.Value = attn.Of(attn.F16, 69, 2, 64) }),
		row("head_dim 12", raggedPrefill(), shape, "q", func(c P) { c.Query, c.Key = attn.Of(attn.F16, 20, 8, 12), attn.Of(attn.F16, 70, 2, 12) }),
		row("value dim 12", raggedPrefill(), shape, "v_cache", func(c P) { c.Value = attn.Of(attn.F16, 70, 2, 12) }),
		row("q strided in D", goodPrefill(), shape, "q", func(c P) { c.Query = strided(c.Query) }),
		row("K strided in D", raggedPrefill(), shape, "k_cache", func(c P) { c.Key = strided(c.Key) }),
		row("V strided in D", goodPrefill(), shape, "v_cache", func(c P) { c.Value = strided(c.Value) }),
		row("scale NaN", goodPrefill(), arg, "scale", func(c P) { c.Scale = math.NaN() }),
		row("scale Inf", goodPrefill(), arg, "scale", func(c P) { c.Scale = math.Inf(1) }),
		row("max_token_per_sequence -1", goodPrefill(), arg, "max_token_per_sequence", func(c P) { c.MaxQLen = -1 }),
		row("max_sequence_kv -1", goodPrefill(), arg, "max_sequence_kv", func(c P) { c.MaxKVLen = -1 }),
		row("q_scale with float16", goodPrefill(), arg, "q_scale", func(c P) { c.QScale = attn.Of(attn.F32, 1) }),
		row("e4m3 without scales", e4m3Prefill(), arg, "q_scale", func(c P) { c.QScale, c.KScale, c.VScale = attn.Tensor{}, attn.Tensor{}, attn.Tensor{} }),
		row("e4m3 without v_scale", e4m3Prefill(), arg, "q_scale", func(c P) { c.VScale = attn.Tensor{} }),
		row("k_scale of float16", e4m3Prefill(), dtype, "k_scale", func(c P) { c.KScale = attn.Of(attn.F16, 1) }),
		row("v_scale of two", e4m3Prefill(), shape, "v_scale", func(c P) { c.VScale = attn.Of(attn.F32, 2) }),
		row("offsets of q uint32", goodPrefill(), dtype, "batch_offsets_q", func(c P) { c.OffsetsQ = attn.Of(attn.U32, 3) }),
		row("offsets of o [B+2]", goodPrefill(), shape, "batch_offsets_o", func(c P) { c.OffsetsO = attn.Of(attn.I32, 5) }),
		row("offsets of k [B-1]", raggedPrefill(), shape, "batch_offsets_k", func(c P) { c.OffsetsK = attn.Of(attn.I32, 2) }),
		row("offsets of v with gaps", raggedPrefill(), shape, "batch_offsets_v", func(c P) { c.OffsetsV = strided(attn.Of(attn.I64, 3)) }),
		row("offsets of stats [1,B]", goodPrefill(), shape, "batch_offsets_stats", func(c P) { c.OffsetsStats = attn.Of(attn.I32, 1, 3) }),
		row("out of another shape", goodPrefill(), shape, "out", func(c P) { c.Out = attn.Of(attn.F16, 20, 8, 128) }),
		row("out of another dtype", goodPrefill(), dtype, "out", func(c P) { c.Out, c.OutDType = attn.Of(attn.BF16, 20, 8, 64), attn.F16 }),
		row("out with gaps", goodPrefill(), shape, "out", func(c P) { c.Out = gapped(attn.Of(attn.F16, 20, 8, 64)) }),
	}
}

func otherRefusals() []refusalRow {
	type A = *attn.AppendCall
	shape, dtype, arg := attn.ErrShape, attn.ErrDType, attn.ErrArgument
	return []refusalRow{
		row("cache of int32", goodAppend(), dtype, "kv_cache", func(c A) { c.KeyCache.DType = attn.I32 }),
		row("K and V caches of two dtypes", goodAppend(), dtype, "kv_cache", func(c A) { c.ValueCache.DType = attn.BF16 }),
		row("k and v of two dtypes", goodAppend(), dtype, "v", func(c A) { c.Value.DType = attn.BF16 }),
		row("e4m3 rows for a float16 cache", goodAppend(), dtype, "k", func(c A) { c.Key.DType, c.Value.DType = attn.E4M3, attn.E4M3 }),
		row("scale with a float16 cache", goodAppend(), arg, "k_scale", func(c A) { c.VScale = 2 }),
		row("k_scale 0", goodAppend(), arg, "k_scale", func(c A) { c.KScale = 0 }),
		row("v_scale NaN", goodAppend(), arg, "v_scale", func(c A) { c.VScale = math.NaN() }),
		row("heads of k", goodAppend(), shape, "k", func(c A) { c.Key = attn.Of(attn.F16, 5, 4, 64) }),
		row("rows of v", goodAppend(), shape, "v", func(c A) { c.Value = attn.Of(attn.F16, 4, 2, 64) }),
		row("dim of v", goodAppend(), shape, "v", func(c A) { c.Value = attn.Of(attn.F16, 5, 2, 128) }),
		row("pages of V", goodAppend(), shape, "kv_cache", func(c A) { c.ValueCache = attn.Of(attn.F16, 8, 2, 16, 64) }),
		row("rows strided in D", goodAppend(), shape, "k", func(c A) { c.Key = strided(c.Key) }),
		row("positions of another length", goodAppend(), shape, "positions", func(c A) { c.Positions = attn.Of(attn.I32, 3) }),
		row("positions int64", goodAppend(), dtype, "positions", func(c A) { c.Positions = attn.Of(attn.I64, 5) }),
		row("requests absent", goodAppend(), arg, "requests", func(c A) { c.Requests = attn.Tensor{} }),
		row("requests of another length", goodAppend(), shape, "requests", func(c A) { c.Requests = attn.Of(attn.I32, 3) }),
		row("neither positions nor cum_seq_lens", goodAppend(), arg, "positions", func(c A) { c.Positions, c.Requests = attn.Tensor{}, attn.Tensor{} }),
		row("both positions and cum_seq_lens", goodAppend(), arg, "positions", func(c A) { c.CumSeqLens, c.StartPositions = attn.Of(attn.I32, 4), attn.Of(attn.I32, 3) }),
		row("cum_seq_lens [B]", goodAppend(), shape, "cum_seq_lens", func(c A) {
			c.Positions, c.Requests, c.CumSeqLens, c.StartPositions = attn.Tensor{}, attn.Tensor{}, attn.Of(attn.I32, 3), attn.Of(attn.I32, 3)
		}),
		row("start_positions absent", goodAppend(), arg, "start_positions", func(c A) {
			c.Positions, c.Requests, c.CumSeqLens = attn.Tensor{}, attn.Tensor{}, attn.Of(attn.I32, 4)
		}),
		row("table absent", goodAppend(), arg, "block_tables", func(c A) { c.BlockTables = attn.Tensor{} }),

		row("weight of another width", goodNorm(), shape, "weight", func(c *attn.RMSNormCall) { c.Weight = attn.Of(attn.F32, 32) }),
		row("weight of another dtype", goodNorm(), dtype, "weight", func(c *attn.RMSNormCall) { c.Weight = attn.Of(attn.BF16, 64) }),
		row("residual of another dtype", goodNorm(), dtype, "residual", func(c *attn.RMSNormCall) { c.Residual = attn.Of(attn.F32, 3, 64) }),
		row("residual of another shape", goodNorm(), shape, "residual", func(c *attn.RMSNormCall) { c.Residual = attn.Of(attn.F16, 2, 64) }),
		row("eps 0", goodNorm(), arg, "eps", func(c *attn.RMSNormCall) { c.Eps = 0 }),
		row("eps NaN", goodNorm(), arg, "eps", func(c *attn.RMSNormCall) { c.Eps = math.NaN() }),
		row("x of rank 3", goodNorm(), shape, "x", func(c *attn.RMSNormCall) { c.X = attn.Of(attn.F16, 3, 2, 32) }),
		row("x of e4m3", goodNorm(), dtype, "x", func(c *attn.RMSNormCall) { c.X.DType = attn.E4M3 }),
		row("x of width 0", goodNorm(), shape, "x", func(c *attn.RMSNormCall) {
			c.X, c.Residual, c.Weight = attn.Of(attn.F16, 3, 0), attn.Tensor{}, attn.Of(attn.F16, 0)
		}),
		row("sum of another shape", goodNorm(), shape, "sum", func(c *attn.RMSNormCall) { c.Sum = attn.Of(attn.F16, 3, 32) }),

		row("positions of another length", goodRoPE(), shape, "positions", func(c *attn.RoPECall) { c.Positions = attn.Of(attn.I32, 2) }),
		row("positions int64", goodRoPE(), dtype, "positions", func(c *attn.RoPECall) { c.Positions = attn.Of(attn.I64, 3) }),
		row("factors of another length", goodRoPE(), shape, "factors", func(c *attn.RoPECall) { c.Factors = attn.Of(attn.F32, 64) }),
		row("base 0", goodRoPE(), arg, "base", func(c *attn.RoPECall) { c.Base = 0 }),
		row("base Inf", goodRoPE(), arg, "base", func(c *attn.RoPECall) { c.Base = math.Inf(1) }),
		row("rotary_dim 66", goodRoPE(), arg, "rotary_dim", func(c *attn.RoPECall) { c.RotaryDim = 66 }),
		row("rotary_dim odd", goodRoPE(), arg, "rotary_dim", func(c *attn.RoPECall) { c.RotaryDim = 31 }),
		row("rotary_dim negative", goodRoPE(), arg, "rotary_dim", func(c *attn.RoPECall) { c.RotaryDim = -2 }),
		row("pairing unknown", goodRoPE(), arg, "pairing", func(c *attn.RoPECall) { c.Pairing = 2 }),
		row("scaling without a factor", goodRoPE(), arg, "scaling.factor", func(c *attn.RoPECall) {
			c.Scaling = attn.RoPEScaling{LowFreqFactor: 1, HighFreqFactor: 4, OriginalContext: 8192}
		}),
		row("scaling upside down", goodRoPE(), arg, "scaling.high_freq_factor", func(c *attn.RoPECall) {
			c.Scaling = attn.RoPEScaling{Factor: 8, LowFreqFactor: 4, HighFreqFactor: 1, OriginalContext: 8192}
		}),
		row("scaling without a context", goodRoPE(), arg, "scaling.original_context", func(c *attn.RoPECall) {
			c.Scaling = attn.RoPEScaling{Factor: 8, LowFreqFactor: 1, HighFreqFactor: 4}
		}),

		row("weight of another width", goodLinear(), shape, "weight", func(c *attn.LinearCall) { c.Weight = attn.Of(attn.Q4_K, 10, 2) }),
		row("weight of e4m3", goodLinear(), dtype, "weight", func(c *attn.LinearCall) { c.Weight = attn.Of(attn.E4M3, 10, 256) }),
		row("weight of rank 1", goodLinear(), shape, "weight", func(c *attn.LinearCall) { c.Weight = attn.Of(attn.F16, 256) }),
		row("weight strided", goodLinear(), shape, "weight", func(c *attn.LinearCall) { c.Weight = strided(attn.Of(attn.F16, 10, 256)) }),
		row("bias of another length", goodLinear(), shape, "bias", func(c *attn.LinearCall) { c.Bias = attn.Of(attn.F16, 11) }),
		row("bias of another dtype", goodLinear(), dtype, "bias", func(c *attn.LinearCall) { c.Bias = attn.Of(attn.BF16, 10) }),
		row("out of another dtype", goodLinear(), dtype, "out", func(c *attn.LinearCall) { c.Out = attn.Of(attn.F32, 3, 10) }),

		row("up of another dtype", goodSiLU(), dtype, "up", func(c *attn.SiLUMulCall) { c.Up = attn.Of(attn.F32, 3, 64) }),
		row("up of another shape", goodSiLU(), shape, "up", func(c *attn.SiLUMulCall) { c.Up = attn.Of(attn.F16, 3, 32) }),
		row("up absent", goodSiLU(), arg, "up", func(c *attn.SiLUMulCall) { c.Up = attn.Tensor{} }),

		row("ids int64", goodEmbedding(), dtype, "ids", func(c *attn.EmbeddingCall) { c.IDs = attn.Of(attn.I64, 3) }),
		row("ids of rank 2", goodEmbedding(), shape, "ids", func(c *attn.EmbeddingCall) { c.IDs = attn.Of(attn.I32, 3, 1) }),
		row("out_dtype e4m3", goodEmbedding(), dtype, "out_dtype", func(c *attn.EmbeddingCall) { c.OutDType = attn.E4M3 }),
		row("out of another shape", goodEmbedding(), shape, "out", func(c *attn.EmbeddingCall) { c.Out = attn.Of(attn.F32, 3, 2) }),

		row("halves of two dtypes", goodMerge(), dtype, "out_b", func(c *attn.MergeLSECall) { c.OutB.DType = attn.BF16 }),
		row("halves of two shapes", goodMerge(), shape, "out_b", func(c *attn.MergeLSECall) { c.OutB = attn.Of(attn.F16, 3, 4, 64) }),
		row("lse of float16", goodMerge(), dtype, "lse_b", func(c *attn.MergeLSECall) { c.LSEB = attn.Of(attn.F16, 3, 8) }),
		row("lse of another shape", goodMerge(), shape, "lse_a", func(c *attn.MergeLSECall) { c.LSEA = attn.Of(attn.F32, 8, 3) }),
	}
}

// Every row is refused with its kind, its argument, what was got and what is wanted.
func TestRefusals(t *testing.T) {
	for _, r := range slices.Concat(decodeRefusals(), prefillRefusals(), otherRefusals()) {
		t.Run(r.call.Op()+"/"+r.name, func(t *testing.T) {
			err := r.call.Infer()
			if e := (&refusal{kind: r.kind, args: []string{r.arg}, request: -1}).check(r.call.Op(), err); e != nil {
				t.Error(e)
			}
			if err != nil && strings.Contains(err.Error(), "%!") {
				t.Errorf("garbled text: %v", err)
			}
		})
	}
}

// All reasons come at once.
func TestRefusalsTogether(t *testing.T) {
	c := goodDecode()
	c.WindowLeft, c.BMM1Scale, c.QLenPerReq, c.SeqLens = -2, math.NaN(), -1, attn.Of(attn.I64, 3)
	var args []string
	for _, e := range typedErrors(c.Infer()) {
		args = append(args, e.Arg)
	}
	for _, want := range []string{"window_left", "bmm1_scale", "q_len_per_req", "seq_lens"} {
		if !slices.Contains(args, want) {
			t.Errorf("reasons about %v, none about %s", args, want)
		}
	}
}

// What the rows above spoil is accepted whole, and accepting allocates nothing.
func TestAccepted(t *testing.T) {
	with := func(c *attn.DecodeCall, change func(*attn.DecodeCall)) *attn.DecodeCall { change(c); return c }
	calls := []attn.Call{
		goodDecode(), raggedDecode(), nvfp4Decode(), maskedDecode(), goodPrefill(), raggedPrefill(), e4m3Prefill(), goodAppend(), goodNorm(), goodRoPE(),
		goodLinear(), goodSiLU(), goodEmbedding(), goodMerge(),
		with(maskedDecode(), func(c *attn.DecodeCall) { c.Backend = "xqa" }),
		with(goodDecode(), func(c *attn.DecodeCall) { c.Backend = "trtllm-gen" }),
		with(raggedDecode(), func(c *attn.DecodeCall) { c.Backend = "trtllm-gen" }),
		with(raggedDecode(), func(c *attn.DecodeCall) { c.QLenPerReq = 1 }),
		with(nvfp4Decode(), func(c *attn.DecodeCall) { c.Backend = "trtllm-gen" }),
		with(nvfp4Decode(), func(c *attn.DecodeCall) { c.SFStartRow = 122 }),
		with(nvfp4Decode(), func(c *attn.DecodeCall) { c.OSFVecSize = 0 }),
	}
	for _, name := range []string{"", "auto", "xqa", "trtllm-gen"} {
		for _, d := range []int{8, 80, 104, 512} { // a name never decides sizes
			calls = append(calls, with(goodDecode(), func(c *attn.DecodeCall) {
				c.Backend, c.QLenPerReq = name, 0
				c.Query, c.Key = attn.Of(attn.F16, 3, 14, d), attn.Of(attn.F16, 9, 2, 5, d)
				c.Value = c.Key
			}))
		}
	}
	for _, name := range []string{"", "auto", "cudnn", "cubin"} {
		for _, d := range []int{8, 80, 512} {
			c := goodPrefill()
			c.Backend, c.Query, c.Key, c.Value = name, attn.Of(attn.F16, 20, 14, d), attn.Of(attn.F16, 9, 2, 5, d), attn.Of(attn.F16, 9, 2, 5, 520-d-d%8)
			if d == 8 {
				c.Value = attn.Of(attn.F16, 9, 2, 5, 512)
			}
			calls = append(calls, c)
		}
	}
	for i, c := range calls {
		if err := c.Infer(); err != nil {
			t.Errorf("call %d, %s: %v", i, c.Op(), err)
			continue
		}
		if n := testing.AllocsPerRun(10, func() { _ = c.Infer() }); n != 0 {
			t.Errorf("call %d, %s: Infer allocates %v times", i, c.Op(), n)
		}
	}
}

// Of all triples of dtypes exactly the contract's are accepted, every other is an ErrDType.
func TestDTypeTables(t *testing.T) {
	var all []attn.DType
	for d := attn.F32; d <= attn.Q6_K; d++ {
		all = append(all, d)
	}
	try := func(op string, accepted [][3]attn.DType, infer func(q, kv, out attn.DType) error) {
		n := 0
		for _, q := range all {
			for _, kv := range all {
				for _, out := range all {
					err := infer(q, kv, out)
					triple := [3]attn.DType{q, kv, out}
					if slices.Contains(accepted, triple) {
						n++
						if err != nil {
							t.Errorf("%s: %v is refused: %v", op, triple, err)
						}
					} else if !errors.Is(err, attn.ErrDType) {
						t.Errorf("%s: %v gives %v, want ErrDType", op, triple, err)
					}
				}
			}
		}
		if n != len(accepted) {
			t.Errorf("%s: %d triples tried of %d accepted", op, n, len(accepted))
		}
	}
	for _, given := range []bool{false, true} {
		try(fmt.Sprintf("decode, out given %v", given), DecodeDTypes(), func(q, kv, out attn.DType) error {
			c := goodDecode()
			c.Query.DType, c.Key.DType, c.Value.DType, c.OutDType = q, kv, kv, out
			if out == attn.U8 {
				c.OSFScale = 1
			}
			if given {
				c.OutDType, c.Out = attn.Invalid, attn.Of(out, 6, 8, 64)
				if out == attn.U8 {
					c.Out = attn.Of(out, 6, 8, 32)
				}
			}
			return c.Infer()
		})
		try(fmt.Sprintf("prefill, out given %v", given), PrefillDTypes(), func(q, kv, out attn.DType) error {
			c := goodPrefill()
			c.Query.DType, c.Key.DType, c.Value.DType, c.OutDType = q, kv, kv, out
			if q == attn.E4M3 {
				c.QScale, c.KScale, c.VScale = attn.Of(attn.F32, 1), attn.Of(attn.F32, 1), attn.Of(attn.F32, 1)
			}
			if given {
				c.OutDType, c.Out = attn.Invalid, attn.Of(out, 20, 8, 64)
			}
			return c.Infer()
		})
	}
}

// Cache tensors become HND views; what is no cache is refused.
func TestCacheViews(t *testing.T) {
	hnd, err := attn.PagedView("decode", "kv_cache", attn.Of(attn.F16, 9, 2, 16, 64), attn.HND)
	if err != nil || hnd.Shape != [5]int{9, 2, 16, 64} || hnd.Stride != [5]int{2048, 1024, 64, 1} {
		t.Errorf("HND: %v %v, %v", hnd.Shape, hnd.Stride, err)
	}
	nhd, err := attn.PagedView("decode", "kv_cache", attn.Of(attn.F16, 9, 16, 2, 64), attn.NHD)
	if err != nil || nhd.Shape != [5]int{9, 2, 16, 64} || nhd.Stride != [5]int{2048, 64, 128, 1} {
		t.Errorf("NHD: %v %v, %v", nhd.Shape, nhd.Stride, err)
	}
	buf := make([]byte, 9*2*2*16*64*2)
	for _, layout := range []attn.Layout{attn.HND, attn.NHD} {
		shape := []int{9, 2, 2, 16, 64}
		if layout == attn.NHD {
			shape = []int{9, 2, 16, 2, 64}
		}
		whole := attn.Of(attn.F16, shape...)
		whole.Ptr = pointer(buf)
		k, v, err := attn.SplitStacked("decode", whole, layout)
		if err != nil || k.Shape != [5]int{9, 2, 16, 64} || v.Shape != k.Shape || k.Stride != v.Stride || k.Stride[0] != 4096 {
			t.Errorf("%v stacked: K %v %v, V %v %v, %v", layout, k.Shape, k.Stride, v.Shape, v.Stride, err)
		}
		if k.Ptr != whole.Ptr || v.Ptr != whole.At(2048) {
			t.Errorf("%v stacked: V doesn't begin half a page after K", layout)
		}
	}
	shared := attn.Of(attn.F16, 9, 1, 2, 16, 64)
	shared.Ptr = pointer(buf)
	if k, v, err := attn.SplitStacked("decode", shared, attn.HND); err != nil || k != v {
		t.Errorf("shared: %v %v %v", k, v, err)
	}
	for name, f := range map[string]func() error{
		"stacked of three": func() error {
			_, _, err := attn.SplitStacked("decode", attn.Of(attn.F16, 9, 3, 2, 16, 64), attn.HND)
			return err
		},
		"stacked of rank 4": func() error {
			_, _, err := attn.SplitStacked("decode", attn.Of(attn.F16, 9, 2, 16, 64), attn.HND)
			return err
		},
		"pair of rank 5": func() error {
			_, err := attn.PagedView("decode", "kv_cache", attn.Of(attn.F16, 9, 2, 2, 16, 64), attn.HND)
			return err
		},
	} {
		if e := (&refusal{kind: attn.ErrShape, args: []string{"kv_cache"}, request: -1}).check("decode", f()); e != nil {
			t.Errorf("%s: %v", name, e)
		}
	}
	for _, f := range []func() error{
		func() error {
			_, err := attn.PagedView("decode", "kv_cache", attn.Of(attn.F16, 9, 2, 16, 64), 2)
			return err
		},
		func() error {
			_, _, err := attn.SplitStacked("decode", attn.Of(attn.F16, 9, 2, 2, 16, 64), 7)
			return err
		},
	} {
		if e := (&refusal{kind: attn.ErrArgument, args: []string{"kv_layout"}, request: -1}).check("decode", f()); e != nil {
			t.Error(e)
		}
	}
}
