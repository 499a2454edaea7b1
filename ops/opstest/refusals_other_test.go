package opstest

import (
	"math"

	"github.com/gaze-ml/gaze/internal/attn"
)

// prefillRefusals are prefill calls with one thing wrong.
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
		row("lengths with gaps", goodPrefill(), shape, "actual_seq_lens_q", func(c P) { c.QLens = strided(c.QLens) }),
		row("lengths [B,1,1,1] with gaps", goodPrefill(), shape, "actual_seq_lens_kv", func(c P) { c.KVLens = gapped(attn.Of(attn.I32, 3, 1, 1, 1)) }),
		row("workspace with gaps", goodPrefill(), shape, "workspace_buffer", func(c P) { c.Workspace = gapped(attn.Of(attn.F32, 64, 64)) }),
		row("out of another shape", goodPrefill(), shape, "out", func(c P) { c.Out = attn.Of(attn.F16, 20, 8, 128) }),
		row("out of another dtype", goodPrefill(), dtype, "out", func(c P) { c.Out, c.OutDType = attn.Of(attn.BF16, 20, 8, 64), attn.F16 }),
		row("out with gaps", goodPrefill(), shape, "out", func(c P) { c.Out = gapped(attn.Of(attn.F16, 20, 8, 64)) }),
	}
}

// otherRefusals are calls of the other ops with one thing wrong.
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

		row("base NaN", turningAppend(), arg, "base", func(c A) { c.Base = math.NaN() }),
		row("pairing without a base", turningAppend(), arg, "base", func(c A) { c.RoPEConfig = attn.RoPEConfig{Pairing: attn.Adjacent} }),
		row("pairing unknown", turningAppend(), arg, "pairing", func(c A) { c.Pairing = 2 }),
		row("rotary_dim 66", turningAppend(), arg, "rotary_dim", func(c A) { c.RotaryDim = 66 }),
		row("scaling without a factor", turningAppend(), arg, "scaling.factor", func(c A) { c.Scaling.OriginalContext = 8192 }),
		row("factors of another length", turningAppend(), shape, "factors", func(c A) { c.Factors = attn.Of(attn.F32, 64) }),
		row("factors of float16", turningAppend(), dtype, "factors", func(c A) { c.Factors.DType = attn.F16 }),
		row("factors without RoPE", turningAppend(), arg, "factors", func(c A) { c.RoPEConfig, c.Query = attn.RoPEConfig{}, attn.Tensor{} }),
		row("query without RoPE", turningAppend(), arg, "query", func(c A) { c.RoPEConfig = attn.RoPEConfig{} }),
		row("query of another dtype", turningAppend(), dtype, "query", func(c A) { c.Query.DType = attn.F32 }),
		row("query of other rows", turningAppend(), shape, "query", func(c A) { c.Query = attn.Of(attn.F16, 4, 8, 64) }),
		row("query of another dim", turningAppend(), shape, "query", func(c A) { c.Query = attn.Of(attn.F16, 5, 8, 128) }),
		row("query strided in D", turningAppend(), shape, "query", func(c A) { c.Query = strided(c.Query) }),
		row("query_out of another shape", turningAppend(), shape, "query_out", func(c A) { c.QueryOut = attn.Of(attn.F16, 5, 4, 64) }),
		row("turned e4m3 rows", turningAppend(), dtype, "k", func(c A) {
			c.Query = attn.Tensor{}
			for _, t := range []*attn.Tensor{&c.Key, &c.Value, &c.KeyCache, &c.ValueCache} {
				t.DType = attn.E4M3
			}
		}),

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

		row("x of int32", goodCast(), dtype, "x", func(c *attn.CastCall) { c.X = attn.Of(attn.I32, 3, 64) }),
		row("x absent", goodCast(), arg, "x", func(c *attn.CastCall) { c.X = attn.Tensor{} }),
		row("x strided", goodCast(), shape, "x", func(c *attn.CastCall) { c.X.Stride[0]++ }),
		row("out_dtype nvfp4", goodCast(), dtype, "out_dtype", func(c *attn.CastCall) { c.OutDType = attn.U8 }),
		row("out of another dtype", goodCast(), dtype, "out", func(c *attn.CastCall) { c.Out = attn.Of(attn.E4M3, 3, 8, 64) }),
		row("out of another shape", goodCast(), shape, "out", func(c *attn.CastCall) { c.Out = attn.Of(attn.F32, 3, 64, 8) }),

		row("x of e4m3", goodArgmax(), dtype, "x", func(c *attn.ArgmaxCall) { c.X = attn.Of(attn.E4M3, 3, 64) }),
		row("rows of nothing", goodArgmax(), shape, "x", func(c *attn.ArgmaxCall) { c.X = attn.Of(attn.F16, 3, 0) }),
		row("x strided", goodArgmax(), shape, "x", func(c *attn.ArgmaxCall) { c.X = strided(c.X) }),
		row("out of int64", goodArgmax(), dtype, "out", func(c *attn.ArgmaxCall) { c.Out = attn.Of(attn.I64, 3) }),

		row("logits of e4m3", goodSoftmax(), dtype, "logits", func(c *attn.SoftmaxCall) { c.Logits = attn.Of(attn.E4M3, 3, 64) }),
		row("rows of nothing", goodSoftmax(), shape, "logits", func(c *attn.SoftmaxCall) { c.Logits = attn.Of(attn.F16, 3, 0) }),
		row("logits strided", goodSoftmax(), shape, "logits", func(c *attn.SoftmaxCall) { c.Logits = strided(c.Logits) }),
		row("temperature 0", goodSoftmax(), arg, "temperature", func(c *attn.SoftmaxCall) { c.Temperature = 0 }),
		row("temperature NaN", goodSoftmax(), arg, "temperature", func(c *attn.SoftmaxCall) { c.Temperature = math.NaN() }),
		row("out of float16", goodSoftmax(), dtype, "out", func(c *attn.SoftmaxCall) { c.Out = attn.Of(attn.F16, 3, 64) }),

		row("logits of int32", goodTopK(), dtype, "logits", func(c *attn.TopKCall) { c.Logits = attn.Of(attn.I32, 3, 64) }),
		row("logits of rank 1", goodTopK(), shape, "logits", func(c *attn.TopKCall) { c.Logits = attn.Of(attn.F32, 64) }),
		row("k 0", goodTopK(), arg, "k", func(c *attn.TopKCall) { c.K = 0 }),
		row("k 65 of 64", goodTopK(), arg, "k", func(c *attn.TopKCall) { c.K = 65 }),
		row("values of another k", goodTopK(), shape, "values", func(c *attn.TopKCall) { c.Values = attn.Of(attn.F32, 3, 6) }),
		row("values of float16", goodTopK(), dtype, "values", func(c *attn.TopKCall) { c.Values = attn.Of(attn.F16, 3, 5) }),
		row("indices of int64", goodTopK(), dtype, "indices", func(c *attn.TopKCall) { c.Indices = attn.Of(attn.I64, 3, 5) }),

		row("halves of two dtypes", goodMerge(), dtype, "out_b", func(c *attn.MergeLSECall) { c.OutB.DType = attn.BF16 }),
		row("halves of two shapes", goodMerge(), shape, "out_b", func(c *attn.MergeLSECall) { c.OutB = attn.Of(attn.F16, 3, 4, 64) }),
		row("lse of float16", goodMerge(), dtype, "lse_b", func(c *attn.MergeLSECall) { c.LSEB = attn.Of(attn.F16, 3, 8) }),
		row("lse of another shape", goodMerge(), shape, "lse_a", func(c *attn.MergeLSECall) { c.LSEA = attn.Of(attn.F32, 8, 3) }),
	}
}
