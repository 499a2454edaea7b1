package opstest

import (
	"math"

	"github.com/gaze-ml/gaze/internal/attn"
)

// decodeRefusals are decode calls with one thing wrong.
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
		row("nvfp4 scale rows of 192", nvfp4Decode(), shape, "out", func(c D) { c.OutScale = attn.Of(attn.E4M3, 192, 32) }),
		row("nvfp4 scale columns", nvfp4Decode(), shape, "out", func(c D) { c.OutScale = attn.Of(attn.E4M3, 128, 36) }),
		row("nvfp4 scales with gaps", nvfp4Decode(), shape, "out", func(c D) { c.OutScale = gapped(c.OutScale) }),
		row("nvfp4 start row -1", nvfp4Decode(), shape, "scale_start_index", func(c D) { c.SFStartRow = -1 }),
		row("nvfp4 start row too late", nvfp4Decode(), shape, "scale_start_index", func(c D) { c.SFStartRow = 123 }),

		row("nvfp4 start row behind the scales, without rows", nvfp4Decode(), shape, "scale_start_index", func(c D) {
			c.Query, c.Out, c.BlockTables, c.SeqLens = attn.Of(attn.E4M3, 0, 8, 64), attn.Of(attn.U8, 0, 8, 32), attn.Of(attn.I32, 0, 4), attn.Of(attn.I32, 0)
			c.SFStartRow = 128
		}),
		row("rows without requests", raggedDecode(), shape, "cum_seq_lens_q", func(c D) {
			c.CumSeqLensQ, c.BlockTables, c.SeqLens = attn.Of(attn.I32, 1), attn.Of(attn.I32, 0, 4), attn.Of(attn.I32, 0)
		}),
		row("sinks with gaps", goodDecode(), shape, "sinks", func(c D) { c.Sinks = strided(attn.Of(attn.F32, 8)) }),
		row("mask with gaps", maskedDecode(), shape, "mask", func(c D) { c.Mask = gapped(c.Mask) }),
		row("seq_lens with gaps", goodDecode(), shape, "seq_lens", func(c D) { c.SeqLens = strided(c.SeqLens) }),
		row("cum_seq_lens_q with gaps", raggedDecode(), shape, "cum_seq_lens_q", func(c D) { c.CumSeqLensQ = strided(c.CumSeqLensQ) }),
		row("block_tables strided in the last dimension", goodDecode(), shape, "block_tables", func(c D) { c.BlockTables = strided(c.BlockTables) }),
		row("nvfp4 start row -6", nvfp4Decode(), shape, "scale_start_index", func(c D) { c.SFStartRow = -6 }),
		row("max_q_len alone with xqa", goodDecode(), attn.ErrUnsupported, "backend", func(c D) { c.QLenPerReq, c.MaxQLen, c.Backend, c.Query = 0, 3, "xqa", attn.Of(attn.F16, 3, 8, 64) }),
		row("workspace with gaps", goodDecode(), shape, "workspace_buffer", func(c D) { c.Workspace = gapped(attn.Of(attn.F32, 64, 64)) }),
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
