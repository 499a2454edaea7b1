package ops_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/gaze-ml/gaze/ops"
)

// decodeWith builds a plain decode of these dtypes with options. kv is the cache, its page or head shapes.
func decodeWith(q, kv tensor.Dtype, opts ...ops.Option) error {
	return decodeShaped(q, kv, []int{6, 4, 16}, []int{5, 2, 2, 4, 16}, 6, opts...)
}

func decodeShaped(q, kv tensor.Dtype, qShape, kvShape []int, requests int, opts ...ops.Option) error {
	g := gorgonia.NewGraph()
	_, err := ops.BatchDecode(input(g, 0, q, qShape...), ops.StackedKV(input(g, 1, kv, kvShape...), ops.HND), input(g, 2, i32, requests, 4), input(g, 3, i32, requests), 16, opts...)
	return err
}

func prefillWith(q, kv tensor.Dtype, opts ...ops.Option) error {
	g := gorgonia.NewGraph()
	opts = append(opts, ops.WithBlockTables(input(g, 2, i32, 2, 4)))
	_, err := ops.BatchPrefill(input(g, 0, q, 6, 4, 16), ops.StackedKV(input(g, 1, kv, 5, 2, 2, 4, 16), ops.NHD), 0.25, input(g, 3, i32, 2), input(g, 4, i32, 2), 4, 16, true, opts...)
	return err
}

func ropeWith(base float64, opts ...ops.Option) error {
	g := gorgonia.NewGraph()
	_, err := ops.RoPE(input(g, 0, f32, 2, 3, 16), input(g, 1, i32, 2), base, opts...)
	return err
}

func appendWith(cache, k tensor.Dtype, opts ...ops.Option) error {
	g := gorgonia.NewGraph()
	_, err := ops.AppendKV(ops.StackedKV(input(g, 0, cache, 5, 2, 2, 4, 16), ops.HND), input(g, 1, k, 3, 2, 16), input(g, 2, k, 3, 2, 16), input(g, 3, i32, 2, 4), input(g, 4, i32, 3), input(g, 5, i32, 3), opts...)
	return err
}

func normWith(eps float64) error {
	g := gorgonia.NewGraph()
	_, err := ops.RMSNorm(input(g, 0, f32, 2, 16), input(g, 1, f32, 16), eps)
	return err
}

func softmaxWith(temperature float64) error {
	_, err := ops.Softmax(input(gorgonia.NewGraph(), 0, f32, 2, 16), ops.WithTemperature(temperature))
	return err
}

func topKOf(k int) error {
	_, _, err := ops.TopK(input(gorgonia.NewGraph(), 0, f32, 2, 16), k)
	return err
}

// Every scalar and combination that FlashInfer refuses, or that has no meaning, is refused where the graph is built.
func TestConstructorsRefuseArguments(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	for _, c := range []struct {
		what string
		err  error
		op   string
		arg  string
		kind error
	}{
		{"bmm1 NaN", decodeWith(f32, f32, ops.WithBMM1Scale(nan)), "decode", "bmm1_scale", ops.ErrArgument},
		{"bmm1 Inf", decodeWith(f32, f32, ops.WithBMM1Scale(inf)), "decode", "bmm1_scale", ops.ErrArgument},
		{"bmm2 NaN", decodeWith(f32, f32, ops.WithBMM2Scale(nan)), "decode", "bmm2_scale", ops.ErrArgument},
		{"bmm2 -Inf", decodeWith(f32, f32, ops.WithBMM2Scale(-inf)), "decode", "bmm2_scale", ops.ErrArgument},
		{"o_scale 0", decodeWith(f16, e4m3, ops.WithOutDType(e4m3), ops.WithOScale(0)), "decode", "o_scale", ops.ErrArgument},
		{"o_scale NaN", decodeWith(f16, e4m3, ops.WithOutDType(e4m3), ops.WithOScale(nan)), "decode", "o_scale", ops.ErrArgument},
		{"o_scale with 16-bit out", decodeWith(f16, e4m3, ops.WithOScale(2)), "decode", "o_scale", ops.ErrArgument},
		{"window -2", decodeWith(f32, f32, ops.WithWindowLeft(-2)), "decode", "window_left", ops.ErrArgument},
		{"q_len 0", decodeWith(f32, f32, ops.WithQLenPerReq(0)), "decode", "q_len_per_req", ops.ErrArgument},
		{"q_len -1", decodeWith(f32, f32, ops.WithQLenPerReq(-1)), "decode", "q_len_per_req", ops.ErrArgument},
		{"tokens % q_len", decodeShaped(f32, f32, []int{7, 4, 16}, []int{5, 2, 2, 4, 16}, 3, ops.WithQLenPerReq(2)), "decode", "query", ops.ErrShape},
		{"axis 1 of 3", decodeShaped(f32, f32, []int{6, 4, 16}, []int{5, 3, 2, 4, 16}, 6), "decode", "kv_cache", ops.ErrShape},
		{"axis 1 of 0", decodeShaped(f32, f32, []int{6, 4, 16}, []int{5, 0, 2, 4, 16}, 6), "decode", "kv_cache", ops.ErrShape},
		{"page size 0", decodeShaped(f32, f32, []int{6, 4, 16}, []int{5, 2, 2, 0, 16}, 6), "decode", "kv_cache", ops.ErrShape},
		{"10 heads over 4", decodeShaped(f32, f32, []int{6, 10, 16}, []int{5, 2, 4, 4, 16}, 6), "decode", "num_heads", ops.ErrShape},
		{"4 heads over 8", decodeShaped(f32, f32, []int{6, 4, 16}, []int{5, 2, 8, 4, 16}, 6), "decode", "num_heads", ops.ErrShape},
		{"head dim 20", decodeShaped(f32, f32, []int{6, 4, 20}, []int{5, 2, 2, 4, 20}, 6), "decode", "query", ops.ErrShape},
		{"head dim 520", decodeShaped(f32, f32, []int{6, 4, 520}, []int{5, 2, 2, 4, 520}, 6), "decode", "query", ops.ErrShape},
		{"head dim 0", decodeShaped(f32, f32, []int{6, 4, 0}, []int{5, 2, 2, 4, 0}, 6), "decode", "query", ops.ErrShape},
		{"backend cudnn", decodeWith(f32, f32, ops.WithBackend("cudnn")), "decode", "backend", ops.ErrArgument},
		{"xqa and nvfp4", decodeWith(e4m3, e4m3, ops.WithBackend("xqa"), ops.WithOutDType(ops.NVFP4), ops.WithOSFScale(1)), "decode", "backend", ops.ErrUnsupported},
		{"xqa and q_len 2 without a mask", decodeShaped(f16, f16, []int{6, 4, 16}, []int{5, 2, 2, 4, 16}, 3, ops.WithBackend("xqa"), ops.WithQLenPerReq(2)), "decode", "mask", ops.ErrArgument},
		{"xqa and an e4m3 query", decodeWith(e4m3, e4m3, ops.WithBackend("xqa")), "decode", "query", ops.ErrDType},
		{"f16 over bf16", decodeWith(f16, bf16), "decode", "kv_cache", ops.ErrDType},
		{"f32 over e4m3", decodeWith(f32, e4m3), "decode", "kv_cache", ops.ErrDType},
		{"e4m3 out of f16", decodeWith(f16, f16, ops.WithOutDType(e4m3)), "decode", "out_dtype", ops.ErrDType},
		{"bf16 out of f16", decodeWith(f16, f16, ops.WithOutDType(bf16)), "decode", "out_dtype", ops.ErrDType},
		{"f32 out of e4m3", decodeWith(e4m3, e4m3, ops.WithOutDType(f32)), "decode", "out_dtype", ops.ErrDType},
		{"uint8 is not nvfp4", decodeWith(e4m3, e4m3, ops.WithOutDType(u8), ops.WithOSFScale(1)), "decode", "out_dtype", ops.ErrDType},
		{"nvfp4 of f16", decodeWith(f16, f16, ops.WithOutDType(ops.NVFP4), ops.WithOSFScale(1)), "decode", "out_dtype", ops.ErrDType},
		{"nvfp4 without o_sf_scale", decodeWith(e4m3, e4m3, ops.WithOutDType(ops.NVFP4)), "decode", "o_sf_scale", ops.ErrArgument},
		{"o_sf_scale 0", decodeWith(e4m3, e4m3, ops.WithOutDType(ops.NVFP4), ops.WithOSFScale(0)), "decode", "o_sf_scale", ops.ErrArgument},
		{"o_sf_scale NaN", decodeWith(e4m3, e4m3, ops.WithOutDType(ops.NVFP4), ops.WithOSFScale(nan)), "decode", "o_sf_scale", ops.ErrArgument},
		{"o_sf_vec_size 32", decodeWith(e4m3, e4m3, ops.WithOutDType(ops.NVFP4), ops.WithOSFScale(1), ops.WithOSFVecSize(32)), "decode", "o_sf_vec_size", ops.ErrArgument},
		{"o_sf_vec_size 0", decodeWith(e4m3, e4m3, ops.WithOSFVecSize(0)), "decode", "o_sf_vec_size", ops.ErrArgument},
		{"o_sf_scale 1e60", decodeWith(e4m3, e4m3, ops.WithOutDType(ops.NVFP4), ops.WithOSFScale(1e60)), "decode", "o_sf_scale", ops.ErrArgument},
		{"o_sf_scale 1e-60", decodeWith(e4m3, e4m3, ops.WithOutDType(ops.NVFP4), ops.WithOSFScale(1e-60)), "decode", "o_sf_scale", ops.ErrArgument},
		{"o_sf_scale without nvfp4", decodeWith(e4m3, e4m3, ops.WithOSFScale(1)), "decode", "o_sf_scale", ops.ErrArgument},
		{"o_sf_vec_size without nvfp4", decodeWith(e4m3, e4m3, ops.WithOSFVecSize(16)), "decode", "o_sf_scale", ops.ErrArgument},
		{"nvfp4 of head dim 24", decodeShaped(e4m3, e4m3, []int{6, 4, 24}, []int{5, 2, 2, 4, 24}, 6, ops.WithOutDType(ops.NVFP4), ops.WithOSFScale(1)), "decode", "query", ops.ErrShape},
		{"prefill scale NaN", refusedPrefill(func(p *prefillCase) { p.scale = nan }), "prefill", "scale", ops.ErrArgument},
		{"prefill max_q -1", refusedPrefill(func(p *prefillCase) { p.maxQ = -1 }), "prefill", "max_token_per_sequence", ops.ErrArgument},
		{"prefill max_kv -1", refusedPrefill(func(p *prefillCase) { p.maxKV = -1 }), "prefill", "max_sequence_kv", ops.ErrArgument},
		{"paged prefill without tables", refusedPrefill(func(p *prefillCase) { p.opts = nil }), "prefill", "block_tables", ops.ErrArgument},
		{"prefill backend xqa", prefillWith(f16, f16, ops.WithBackend("xqa")), "prefill", "backend", ops.ErrArgument},
		{"prefill f16 over e4m3", prefillWith(f16, e4m3), "prefill", "k_cache", ops.ErrDType},
		{"prefill e4m3 without scales", prefillWith(e4m3, e4m3), "prefill", "q_scale", ops.ErrArgument},
		{"prefill e4m3 out of f16", prefillWith(f16, f16, ops.WithODataType(e4m3)), "prefill", "o_data_type", ops.ErrDType},
		{"rope base 0", ropeWith(0), "rope", "base", ops.ErrArgument},
		{"rope base NaN", ropeWith(nan), "rope", "base", ops.ErrArgument},
		{"rotary dim 0", ropeWith(1e4, ops.WithRotaryDim(0)), "rope", "rotary_dim", ops.ErrArgument},
		{"rotary dim 7", ropeWith(1e4, ops.WithRotaryDim(7)), "rope", "rotary_dim", ops.ErrArgument},
		{"rotary dim 18", ropeWith(1e4, ops.WithRotaryDim(18)), "rope", "rotary_dim", ops.ErrArgument},
		{"pairing 7", ropeWith(1e4, ops.WithPairing(7)), "rope", "pairing", ops.ErrArgument},
		{"scaling factor NaN", ropeWith(1e4, ops.WithRoPEScaling(ops.RoPEScaling{Factor: nan})), "rope", "scaling.factor", ops.ErrArgument},
		{"scaling high below low", ropeWith(1e4, ops.WithRoPEScaling(ops.RoPEScaling{Factor: 8, LowFreqFactor: 4, HighFreqFactor: 1, OriginalContext: 8192})), "rope", "scaling.high_freq_factor", ops.ErrArgument},
		{"eps 0", normWith(0), "rms_norm", "eps", ops.ErrArgument},
		{"eps 1e-60", normWith(1e-60), "rms_norm", "eps", ops.ErrArgument},
		{"eps NaN", normWith(nan), "rms_norm", "eps", ops.ErrArgument},
		{"k_scale 0", appendWith(e4m3, f16, ops.WithKVScales(0, 1)), "append_kv", "k_scale", ops.ErrArgument},
		{"k_scale 1e-60", appendWith(e4m3, f16, ops.WithKVScales(1e-60, 1)), "append_kv", "k_scale", ops.ErrArgument},
		{"v_scale 1e60", appendWith(e4m3, f16, ops.WithKVScales(1, 1e60)), "append_kv", "v_scale", ops.ErrArgument},
		{"v_scale NaN", appendWith(e4m3, f16, ops.WithKVScales(1, nan)), "append_kv", "v_scale", ops.ErrArgument},
		{"scales of a 16-bit cache", appendWith(f16, f16, ops.WithKVScales(2, 1)), "append_kv", "k_scale", ops.ErrArgument},
		{"e4m3 rows into a 16-bit cache", appendWith(f16, e4m3), "append_kv", "k", ops.ErrDType},
		{"temperature 0", softmaxWith(0), "softmax", "temperature", ops.ErrArgument},
		{"temperature NaN", softmaxWith(nan), "softmax", "temperature", ops.ErrArgument},
		{"temperature Inf", softmaxWith(inf), "softmax", "temperature", ops.ErrArgument},
		{"top 0", topKOf(0), "top_k", "k", ops.ErrArgument},
		{"top 17 of 16", topKOf(17), "top_k", "k", ops.ErrArgument},
		{"append with base 0", appendWith(f16, f16, ops.WithRoPE(0)), "append_kv", "base", ops.ErrArgument},
		{"append with base -1", appendWith(f16, f16, ops.WithRoPE(-1)), "append_kv", "base", ops.ErrArgument},
		{"append with a pairing and no base", appendWith(f16, f16, ops.WithPairing(ops.Adjacent)), "append_kv", "base", ops.ErrArgument},
		{"append with rotary dim 18", appendWith(f16, f16, ops.WithRoPE(1e4), ops.WithRotaryDim(18)), "append_kv", "rotary_dim", ops.ErrArgument},
		{"append with pairing 7", appendWith(f16, f16, ops.WithRoPE(1e4), ops.WithPairing(7)), "append_kv", "pairing", ops.ErrArgument},
		{"append of turned e4m3 rows", appendWith(e4m3, e4m3, ops.WithRoPE(1e4)), "append_kv", "k", ops.ErrDType},
	} {
		t.Run(c.what, func(t *testing.T) { wantRefusal(t, c.what, c.err, c.op, c.arg, c.kind) })
	}
}

type prefillCase struct {
	scale       float64
	maxQ, maxKV int
	opts        []ops.Option
}

func refusedPrefill(edit func(*prefillCase)) error {
	g := gorgonia.NewGraph()
	p := prefillCase{0.25, 4, 16, []ops.Option{ops.WithBlockTables(input(g, 2, i32, 2, 4))}}
	edit(&p)
	_, err := ops.BatchPrefill(input(g, 0, f16, 6, 4, 16), ops.StackedKV(input(g, 1, f16, 5, 2, 2, 4, 16), ops.HND), p.scale, input(g, 3, i32, 2), input(g, 4, i32, 2), p.maxQ, p.maxKV, true, p.opts...)
	return err
}

// Combinations of nodes that contradict each other.
func TestConstructorsRefuseCombinations(t *testing.T) {
	g := gorgonia.NewGraph()
	q, kv := input(g, 0, f16, 6, 4, 16), ops.StackedKV(input(g, 1, f16, 5, 2, 2, 4, 16), ops.HND)
	tables, lens := input(g, 2, i32, 3, 4), input(g, 3, i32, 3)
	cum, mask := input(g, 4, i32, 4), input(g, 5, u16, 3, 2, 2)
	decode := func(opts ...ops.Option) error { _, err := ops.BatchDecode(q, kv, tables, lens, 0, opts...); return err }
	k := input(g, 9, f16, 3, 2, 16)
	ragged := ops.RaggedKV(input(g, 6, f16, 9, 2, 16), input(g, 7, f16, 9, 2, 16))
	_, raggedDecode := ops.BatchDecode(q, ragged, tables, lens, 0)
	_, noKV := ops.BatchDecode(q, ops.KV[*node]{}, tables, lens, 0)
	_, raggedTables := ops.BatchPrefill(q, ragged, 1, lens, lens, 4, 9, true, ops.WithBlockTables(tables))
	_, nobodysRows := ops.AppendKVRanges(kv, k, k, input(g, 14, i32, 0, 4), input(g, 15, i32, 1), input(g, 16, i32, 0))
	_, raggedAppend := ops.AppendKV(ragged, q, q, tables, lens, lens)
	shared := ops.StackedKV(input(g, 8, f16, 5, 1, 2, 4, 16), ops.HND)
	_, sharedAppend := ops.AppendKV(shared, k, k, tables, lens, lens)
	_, badLayout := ops.BatchDecode(q, ops.StackedKV(input(g, 1, f16, 5, 2, 2, 4, 16), 9), tables, lens, 0, ops.WithQLenPerReq(2))
	appended, err := ops.AppendKV(kv, k, k, tables, lens, lens)
	if err != nil {
		t.Fatal(err)
	}
	queryAlone := func(q *node, opts ...ops.Option) error {
		_, err := ops.AppendKV(kv, k, k, tables, lens, lens, append(opts, ops.WithRotatedQuery(q))...)
		return err
	}
	_, turnedInput := ops.RotatedQuery(kv)
	_, turnedNothing := ops.RotatedQuery(ops.KV[*node]{})
	_, turnedWithout := ops.RotatedQuery(appended)
	bytes, q8, kv8 := input(g, 11, u8, 6, 4, 8), input(g, 12, e4m3, 6, 4, 16), ops.StackedKV(input(g, 13, e4m3, 5, 2, 2, 4, 16), ops.HND)
	_, bytesOfE4M3 := ops.BatchDecode(q8, kv8, tables, lens, 0, ops.WithQLenPerReq(2), ops.WithOSFScale(1), ops.WithOut(bytes))
	_, bytesOfPrefill := ops.BatchPrefill(q, ragged, 1, lens, lens, 4, 9, true, ops.WithOut(bytes))
	bytesNow := ops.Decode(ops.DecodeArgs{Query: zeros(e4m3, 6, 4, 16), KV: ops.StackedKV(zeros(e4m3, 5, 2, 2, 4, 16), ops.HND), BlockTables: zeros(i32, 3, 4),
		SeqLens: zeros(i32, 3), Out: zeros(u8, 6, 4, 8)}, ops.WithQLenPerReq(2), ops.WithOSFScale(1))
	_, lseOfInput := ops.LSE(q)
	_, lseOfNil := ops.LSE(nil)
	good, err := ops.BatchDecode(q, kv, tables, lens, 0, ops.WithQLenPerReq(2))
	if err != nil {
		t.Fatal(err)
	}
	_, badBase := ops.LSE(good, 7)
	_, twoBases := ops.LSE(good, ops.Natural, ops.Base2)
	_, scaleOfF16 := ops.FP4Scale(good)
	_, scaleOfNil := ops.FP4Scale(nil)
	_, wrongCount := ops.Reshape(q, 5, 5)
	_, negative := ops.Reshape(q, -1, 64)
	_, highRank := ops.Reshape(q, 1, 1, 1, 6, 4, 16)
	for _, c := range []struct {
		what    string
		err     error
		op, arg string
		kind    error
	}{
		{"a mask with cum_seq_lens_q", decode(ops.WithVarLenQueries(3, cum), ops.WithMask(mask)), "decode", "mask", ops.ErrArgument},
		{"q_len 2 with cum_seq_lens_q", decode(ops.WithVarLenQueries(3, cum), ops.WithQLenPerReq(2)), "decode", "q_len_per_req", ops.ErrArgument},
		{"max_q_len 0", decode(ops.WithVarLenQueries(0, cum)), "decode", "max_q_len", ops.ErrArgument},
		{"cum_seq_lens_q nil", decode(ops.WithVarLenQueries(3, nil)), "decode", "cum_seq_lens_q", ops.ErrArgument},
		{"xqa with cum_seq_lens_q", decode(ops.WithVarLenQueries(3, cum), ops.WithBackend("xqa")), "decode", "backend", ops.ErrUnsupported},
		{"trtllm-gen with a mask", decode(ops.WithQLenPerReq(2), ops.WithMask(mask), ops.WithBackend("trtllm-gen")), "decode", "mask", ops.ErrUnsupported},
		{"scale rows for a plain output", decode(ops.WithQLenPerReq(2), ops.WithFP4Out(q, input(g, 10, e4m3, 128, 4), 0)), "decode", "out_dtype", ops.ErrDType},
		{"bytes for the output of float16", decode(ops.WithQLenPerReq(2), ops.WithOut(bytes)), "decode", "out", ops.ErrDType},
		{"bytes for the output of float8, without scales", bytesOfE4M3, "decode", "out", ops.ErrDType},
		{"bytes, now", bytesNow, "decode", "out", ops.ErrDType},
		{"bytes for the output of prefill", bytesOfPrefill, "prefill", "out", ops.ErrDType},
		{"ragged decode", raggedDecode, "decode", "kv_cache", ops.ErrShape},
		{"no cache", noKV, "decode", "kv_cache", ops.ErrArgument},
		{"tables with ragged", raggedTables, "prefill", "block_tables", ops.ErrShape},
		{"append to ragged", raggedAppend, "append_kv", "kv_cache", ops.ErrArgument},
		{"append of rows to no request", nobodysRows, "append_kv", "cum_seq_lens", ops.ErrShape},
		{"append where K is V", sharedAppend, "append_kv", "kv_cache", ops.ErrShape},
		{"a query without RoPE", queryAlone(k), "append_kv", "query", ops.ErrArgument},
		{"a query of other rows", queryAlone(q, ops.WithRoPE(1e4)), "append_kv", "query", ops.ErrShape},
		{"a query of nil", queryAlone(nil, ops.WithRoPE(1e4)), "append_kv", "query", ops.ErrArgument},
		{"the rotated query of an input", turnedInput, "rotated_query", "kv_cache", ops.ErrArgument},
		{"the rotated query of no cache", turnedNothing, "rotated_query", "kv_cache", ops.ErrArgument},
		{"the rotated query of an append without", turnedWithout, "rotated_query", "kv_cache", ops.ErrArgument},
		{"layout 9", badLayout, "decode", "kv_layout", ops.ErrArgument},
		{"LSE of an input", lseOfInput, "lse", "out", ops.ErrArgument},
		{"LSE of nil", lseOfNil, "lse", "out", ops.ErrArgument},
		{"LSE in base 7", badBase, "lse", "base", ops.ErrArgument},
		{"LSE in two bases", twoBases, "lse", "base", ops.ErrArgument},
		{"scales of a float16 output", scaleOfF16, "fp4_scale", "out", ops.ErrArgument},
		{"scales of nil", scaleOfNil, "fp4_scale", "out", ops.ErrArgument},
		{"reshape to other counts", wrongCount, "reshape", "shape", ops.ErrShape},
		{"reshape to -1", negative, "reshape", "shape", ops.ErrShape},
		{"reshape to rank 6", highRank, "reshape", "shape", ops.ErrShape},
	} {
		t.Run(c.what, func(t *testing.T) { wantRefusal(t, c.what, c.err, c.op, c.arg, c.kind) })
	}
}

// An option of another op is refused by name, and never ignored.
func TestOptionsOfOtherOps(t *testing.T) {
	g := gorgonia.NewGraph()
	n := input(g, 0, f32, 1)
	has := map[string][]string{}
	options := map[string]ops.Option{
		"bmm1_scale": ops.WithBMM1Scale(1), "bmm2_scale": ops.WithBMM2Scale(1), "window_left": ops.WithWindowLeft(-1), "sinks": ops.WithSinks(n), "q_len_per_req": ops.WithQLenPerReq(1),
		"cum_seq_lens_q": ops.WithVarLenQueries(1, n), "mask": ops.WithMask(n), "o_scale": ops.WithOScale(1), "o_sf_scale": ops.WithOSFScale(1), "o_sf_vec_size": ops.WithOSFVecSize(16),
		"enable_pdl": ops.WithPDL(true), "out_dtype": ops.WithOutDType(f32), "o_data_type": ops.WithODataType(f32), "out": ops.WithOut(n), "lse": ops.WithLSEOut(n),
		"backend": ops.WithBackend("auto"), "workspace_buffer": ops.WithWorkspace(n), "value_checks": ops.WithValueChecks(), "block_tables": ops.WithBlockTables(n),
		"q_scale": ops.WithScales(n, n, n), "batch_offsets": ops.WithBatchOffsets(n, n, n, n, n), "is_cuda_graph_compatible": ops.WithCUDAGraphCompatible(),
		"k_scale": ops.WithKVScales(1, 1), "pairing": ops.WithPairing(ops.Adjacent), "scaling": ops.WithRoPEScaling(ops.RoPEScaling{}), "rotary_dim": ops.WithRotaryDim(2),
		"factors": ops.WithRoPEFactors(n), "bias": ops.WithBias(n), "base": ops.WithRoPE(1e4), "query": ops.WithRotatedQuery(n), "temperature": ops.WithTemperature(1),
	}
	has["decode"] = []string{"bmm1_scale", "bmm2_scale", "window_left", "sinks", "q_len_per_req", "cum_seq_lens_q", "mask", "o_scale", "o_sf_scale", "o_sf_vec_size", "enable_pdl", "out_dtype", "out", "lse", "backend", "workspace_buffer", "value_checks"}
	has["prefill"] = []string{"o_data_type", "out", "lse", "backend", "workspace_buffer", "value_checks", "block_tables", "q_scale", "batch_offsets", "is_cuda_graph_compatible"}
	has["append_kv"] = []string{"k_scale", "value_checks", "base", "query", "pairing", "scaling", "rotary_dim", "factors"}
	has["rope"] = []string{"pairing", "scaling", "rotary_dim", "factors", "value_checks"}
	has["linear"] = []string{"bias"}
	has["softmax"] = []string{"temperature"}
	has["embedding"] = []string{"out_dtype", "value_checks"}
	build := map[string]func(ops.Option) error{
		"decode": func(o ops.Option) error {
			_, err := ops.BatchDecode(n, ops.StackedKV(n, ops.HND), n, n, 0, o)
			return err
		},
		"prefill": func(o ops.Option) error {
			_, err := ops.BatchPrefill(n, ops.RaggedKV(n, n), 1, n, n, 0, 0, true, o)
			return err
		},
		"append_kv": func(o ops.Option) error {
			_, err := ops.AppendKV(ops.StackedKV(n, ops.HND), n, n, n, n, n, o)
			return err
		},
		"rope":      func(o ops.Option) error { _, err := ops.RoPE(n, n, 1e4, o); return err },
		"linear":    func(o ops.Option) error { _, err := ops.Linear(n, n, o); return err },
		"softmax":   func(o ops.Option) error { _, err := ops.Softmax(n, o); return err },
		"embedding": func(o ops.Option) error { _, err := ops.Embedding(n, n, o); return err },
	}
	for op, b := range build {
		for name, o := range options {
			foreign := strings.Contains(fmt.Sprint(b(o)), "one that it has not")
			if own := slices.Contains(has[op], name); own == foreign {
				t.Errorf("%s with %s: %v", op, name, b(o))
			} else if foreign {
				wantRefusal(t, op+" with "+name, b(o), op, name, ops.ErrArgument)
			}
		}
	}
}
