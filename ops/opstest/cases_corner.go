package opstest

import (
	"fmt"
	"math"

	"github.com/gaze-ml/gaze/internal/attn"
)

// decodeCornerCases are the places where decode kernels go wrong.
func decodeCornerCases() []Case {
	var out []Case
	add := func(name, why string, b body) {
		out = append(out, Case{Name: "decode/" + name, Why: why, Op: "decode", List: Corner, body: b})
	}
	add("tail/kv_len=5", "NaN in the unused slots of the last page must not reach the result: 2.0", uniform([]int{5}, 1, 16, 1, 1, 64))
	add("tail/kv_len=4090", "the same at the end of a long context", uniform([]int{4090}, 1, 16, 2, 1, 64))
	add("tail/inf", "the same with +Inf", uniform([]int{5, 17}, 1, 16, 4, 2, 64).with(func(s *decodeSpec) { s.tailInf = true }))
	for _, kv := range []attn.DType{attn.F32, attn.BF16, attn.E4M3} {
		add(fmt.Sprintf("tail/kv=%v", kv), "the same in the other dtypes", newDecode([]int{5, 33}, 2, 16, 4, 2, 64).with(func(s *decodeSpec) {
			s.kv = kv
			if s.q = kv; kv == attn.E4M3 {
				s.q = attn.BF16
			}
		}))
	}
	for _, most := range []int{64, 8192} {
		add(fmt.Sprintf("empty/max_seq_len=%d", most), "requests of length 0: out 0, LSE -inf, no table entry read", uniform([]int{0, 5, 0}, 1, 16, 8, 2, 64).with(func(s *decodeSpec) {
			s.maxSeqLen = most
		}))
	}
	add("empty/all", "nothing but empty requests, over a pool", uniform([]int{0, 0}, 3, 16, 4, 2, 64))
	add("empty/no_columns", "a table without columns and a pool without pages", newDecode([]int{0, 0}, 2, 16, 4, 2, 64).with(func(s *decodeSpec) { s.noExtraColumns, s.noExtraPages = true, true }))
	add("empty/batch=0", "no request at all: nothing is written, no error", newDecode(nil, 1, 16, 4, 2, 64))
	add("rows_before_start", "S_b < L_b: the first rows see nothing", uniform([]int{2, 9, 1}, 4, 16, 4, 2, 64))
	add("kv_len=1", "one key: its value, exactly", newDecode([]int{1, 1}, 1, 16, 4, 2, 64))
	add("page_boundary", "lengths at and around whole pages", uniform([]int{15, 16, 17, 31, 32, 33}, 1, 16, 2, 1, 64))

	add("q_strided", "q is a slice of a fused QKV row: bits as of a packed copy", sameBits{
		{"packed", newDecode([]int{21, 7, 33, 16}, 1, 16, 32, 4, 128)},
		{"strides 5120,128,1", newDecode([]int{21, 7, 33, 16}, 1, 16, 32, 4, 128).with(func(s *decodeSpec) { s.qGap = 8 * 128 })},
		{"heads apart", newDecode([]int{21, 7, 33, 16}, 1, 16, 32, 4, 128).with(func(s *decodeSpec) { s.qGap, s.qHeadGap = 40, 8 })},
	})
	add("q_strided/f32", "the same in float32", sameBits{
		{"packed", newDecode([]int{21, 7, 33, 16}, 2, 16, 8, 4, 64).with(func(s *decodeSpec) { s.q = attn.F32 })},
		{"rows apart", newDecode([]int{21, 7, 33, 16}, 2, 16, 8, 4, 64).with(func(s *decodeSpec) { s.q, s.qGap = attn.F32, 8*64 })},
		{"heads apart", newDecode([]int{21, 7, 33, 16}, 2, 16, 8, 4, 64).with(func(s *decodeSpec) { s.q, s.qGap, s.qHeadGap = attn.F32, 40, 8 })},
	})
	add("q_strided/one_row", "a dimension of size 1 may have any stride", sameBits{
		{"packed", newDecode([]int{21}, 1, 16, 32, 4, 128)},
		{"odd stride", newDecode([]int{21}, 1, 16, 32, 4, 128).with(func(s *decodeSpec) { s.qGap = 8*128 + 24 })},
	})
	for _, dt := range []attn.DType{attn.F16, attn.F32} {
		add(fmt.Sprintf("layouts/kv=%v", dt), "one logical cache in every form, Hkv = page size so that shapes can't tell: equal bits", layouts(dt, false))
		add(fmt.Sprintf("layouts/shared/kv=%v", dt), "K and V the same memory", layouts(dt, true))
	}
	add("table_slice", "the table is a slice of a wider one", sameBits{
		{"packed", newDecode([]int{21, 70, 33}, 1, 16, 4, 2, 64)},
		{"row stride", newDecode([]int{21, 70, 33}, 1, 16, 4, 2, 64).with(func(s *decodeSpec) { s.tableGap = 5 })},
		{"no spare columns", newDecode([]int{21, 70, 33}, 1, 16, 4, 2, 64).with(func(s *decodeSpec) { s.noExtraColumns = true })},
	})
	add("max_seq_len", "a larger bound may change the work's division, not the answer", newDecode([]int{21, 70}, 1, 16, 4, 2, 64).with(func(s *decodeSpec) { s.maxSeqLen = 1 << 20 }))

	ragged := func(maxQ int) decodeSpec {
		s := uniform([]int{9, 10, 7, 2}, 0, 16, 4, 2, 64)
		s.qLens, s.maxQ = []int{1, 3, 0, 2}, maxQ
		s.rule = s.uniformRule()
		return s
	}
	for _, m := range []int{3, 100} {
		add(fmt.Sprintf("ragged/max_q_len=%d", m), "query lengths 1, 3, 0, 2: 4.0 | 3.5 4.0 4.5 | - | 0.0 0.5", ragged(m))
	}
	add("ragged/window=1", "windows in ragged rows", ragged(3).with(func(s *decodeSpec) {
		s.window = 1
		s.rule = s.uniformRule()
	}))
	add("ragged/no_rows", "requests of which none has a row", newDecode([]int{90, 33}, 0, 16, 4, 2, 64).with(func(s *decodeSpec) { s.qLens = []int{0, 0} }))
	for _, check := range []bool{false, true} {
		add(fmt.Sprintf("ragged/table_without_rows/check=%v", check), "a request without rows has keys, and a table that nobody looks at",
			newDecode([]int{33, 20, 5}, 0, 16, 4, 2, 64).with(func(s *decodeSpec) {
				s.qLens, s.checkVals = []int{0, 2, 0}, check
				s.set = []badValue{{arg: "block_tables", index: 0, value: -1}, {arg: "block_tables", index: 1, value: 1 << 30}, {arg: "block_tables", index: 2 * 5, value: -1}}
			}))
	}
	add("ragged/random", "ragged rows over longer contexts, with sinks", newDecode([]int{90, 33, 0, 5, 64}, 0, 16, 6, 2, 64).with(func(s *decodeSpec) {
		s.qLens, s.sinks = []int{5, 1, 2, 7, 0}, []float64{1, -1, 0, 2, -3, 4}
	}))
	out = append(out, nanCases()...)
	out = append(out, negInfCases()...)
	add("hidden_nan", "a NaN key that only the last row sees leaves the rows before it alone", decodeNaN(newDecode([]int{40, 9}, 3, 16, 4, 2, 64), func(b, t, _, _ int) bool { return b == 0 && t == 39 }))
	add("window_nan", "NaN keys outside the window", decodeNaN(newDecode([]int{70, 9}, 2, 16, 4, 2, 64).with(func(s *decodeSpec) { s.window = 20 }), func(b, t, _, _ int) bool { return b == 0 && t < 48 }))
	add("mask_nan", "NaN draft tokens that the mask hides", decodeNaN(newDecode([]int{40, 9}, 3, 16, 4, 2, 64).with(func(s *decodeSpec) {
		s.mask = visibleTokens([]int{0}, []int{0, 1}, []int{0})
	}), func(_, t, _, _ int) bool { return t == 39 }))
	add("saturate", "an e4m3 output saturates at 448", newDecode([]int{20, 3}, 1, 16, 4, 2, 64).with(func(s *decodeSpec) {
		s.q, s.kv, s.out, s.bmm2 = attn.BF16, attn.E4M3, attn.E4M3, 2000
	}))
	add("overflow_f16", "a float16 output overflows to infinity as numbers do", newDecode([]int{20, 3}, 1, 16, 4, 2, 64).with(func(s *decodeSpec) { s.bmm2 = 3e5 }))
	add("window=max", "a window wider than any sequence, and rows before the first key", newDecode([]int{2, 40, 0}, 4, 16, 4, 2, 64).with(func(s *decodeSpec) {
		s.window, s.mask = math.MaxInt, visibleTokens([]int{0}, []int{0, 1}, []int{0, 2}, []int{0, 1, 2, 3})
	}))
	add("window=max/causal", "the same without a mask", newDecode([]int{2, 40, 0}, 4, 16, 4, 2, 64).with(func(s *decodeSpec) { s.window = math.MaxInt }))
	add("sinks/special", "a sink of infinity or NaN spoils rows with keys, and is none in rows without", newDecode([]int{37, 0, 2}, 3, 16, 4, 2, 64).with(func(s *decodeSpec) {
		s.sinks = []float64{math.Inf(1), math.NaN(), math.Inf(-1), 80}
	}))
	add("large_scores", "scores of thousands: exponentials must not overflow", newDecode([]int{90, 17}, 2, 16, 4, 2, 64).with(func(s *decodeSpec) {
		s.bmm1, s.q = 40, attn.F16
		s.fillQ = func(r, h, d int) float64 { return 8 * noise(r, h, d, 5) }
		s.fillV = func(b, t, h, d int) float64 { return float64((t*5+h)%7) / 4 }
		s.fillK = func(b, t, h, d int) float64 { return math.Round(8*noise(b, t, h, d)) / 8 }
	}))
	for _, dt := range []attn.DType{attn.F16, attn.BF16, attn.F32} {
		add(fmt.Sprintf("huge_scores/%v", dt), "scores of 10⁹: their products with the scale round to whole hundreds", newDecode([]int{90, 17}, 2, 16, 4, 2, 64).with(func(s *decodeSpec) { s.q, s.fillQ, s.fillK = dt, hugeQuery, huge }))
	}
	for _, dt := range []attn.DType{attn.F16, attn.BF16, attn.F32} {
		add(fmt.Sprintf("far_scores/%v", dt), "scores of -299,520 a few units apart: what is left of a softmax that takes a rounded maximum off rounded products",
			newDecode([]int{300, 37, 2}, 3, 16, 4, 2, 64).with(func(s *decodeSpec) { s.q, s.bmm1, s.fillQ, s.fillK = dt, 1.25, farQuery, far }))
	}
	return out
}

// far and farQuery are exactly representable in every dtype but float8_e4m3, and so are their products and sums.
func far(b, t, h, d int) float64 {
	switch d {
	case 0:
		return -29952
	case 1:
		return float64(t*37%53+t/40) / 64
	}
	return 0
}

func farQuery(row, h, d int) float64 {
	switch d {
	case 0:
		return 8
	case 1:
		return float64(4 * (1 + (7*row+h)%3))
	}
	return 0
}

func huge(b, t, h, d int) float64     { return 3e4 * noise(b, t, h, d) }
func hugeQuery(row, h, d int) float64 { return 3e4 * noise(row, h, d, 9) }

// layouts is one cache in every form. Where K and V share memory they are equal, so they are in all variants.
func layouts(dt attn.DType, shared bool) sameBits {
	base := newDecode([]int{21, 70, 1}, 2, 16, 32, 16, 64).with(func(s *decodeSpec) {
		s.q = dt
		s.fillK = noise
		s.fillV = func(b, t, h, d int) float64 { return noise(b, t, h, d+1000) }
		if shared {
			s.fillV = noise
		}
	})
	forms := []form{pairHND, pairNHD, stackedHND, stackedNHD, padded}
	if shared {
		forms = append(forms, sharedHND, sharedNHD)
	}
	var out sameBits
	for _, f := range forms {
		out = append(out, namedSpec{f.String(), base.with(func(s *decodeSpec) { s.form = f })})
	}
	return out
}

// decodeNaN plants NaN keys and values where the rule says.
func decodeNaN(s decodeSpec, where func(b, t, h, d int) bool) decodeSpec {
	plant := func(seed int) func(b, t, h, d int) float64 {
		return func(b, t, h, d int) float64 {
			if where(b, t, h, d) {
				return math.NaN()
			}
			return 2 * noise(b, t, h, d+seed)
		}
	}
	s.fillK, s.fillV = plant(0), plant(1000)
	return s
}

// nanCases: a NaN that a row sees reaches that row, and no other.
func nanCases() []Case {
	var out []Case
	add := func(name string, s decodeSpec) {
		out = append(out, Case{Name: "decode/nan/" + name, Op: "decode", List: Corner, body: s,
			Why: "NaN and Inf propagate to the rows that see them, and to no other"})
	}
	base := newDecode([]int{20, 33}, 2, 16, 4, 2, 64)
	add("query", base.with(func(s *decodeSpec) {
		s.fillQ = func(row, h, d int) float64 {
			if row == 1 && h == 2 && d == 5 {
				return math.NaN()
			}
			return noise(row, h, d, 9)
		}
	}))
	add("key", base.with(func(s *decodeSpec) {
		s.fillK = func(b, t, h, d int) float64 {
			if b == 1 && t == 3 && h == 1 && d == 7 {
				return math.NaN()
			}
			return noise(b, t, h, d)
		}
	}))
	add("value", base.with(func(s *decodeSpec) {
		s.fillV = func(b, t, h, d int) float64 {
			if b == 1 && t == 3 && h == 1 && d == 7 {
				return math.NaN()
			}
			return noise(b, t, h, d)
		}
	}))
	add("value_inf", base.with(func(s *decodeSpec) {
		s.fillV = func(b, t, h, d int) float64 {
			if b == 0 && t == 3 && h == 1 && d == 7 {
				return math.Inf(1)
			}
			return noise(b, t, h, d)
		}
	}))
	add("scale", base.with(func(s *decodeSpec) { s.bmm1, s.deviceScales = math.NaN(), true }))
	add("scale2", base.with(func(s *decodeSpec) { s.bmm2, s.deviceScales = math.NaN(), true }))
	add("e4m3_out", base.with(func(s *decodeSpec) {
		s.q, s.kv, s.out = attn.BF16, attn.E4M3, attn.E4M3
		s.bmm2, s.deviceScales = math.NaN(), true
	}))
	return out
}

// negInf gives scores of -Inf to the keys that the rule chooses: element 7 of them is, beside a positive one of every query.
func negInf(s decodeSpec, which func(b, t int) bool) decodeSpec {
	s.fillQ = func(row, h, d int) float64 {
		x := noise(row, h, d, 9)
		if d == 7 {
			x = 1 + math.Abs(x)
		}
		return x
	}
	s.fillK = func(b, t, h, d int) float64 {
		if d == 7 && which(b, t) {
			return math.Inf(-1)
		}
		return noise(b, t, h, d)
	}
	return s
}

// negInfCases: a row all of whose scores are -Inf is NaN, unless a finite sink takes the weight; among others such a key has none.
func negInfCases() []Case {
	var out []Case
	lens := []int{20, 33, 3, 0}
	base := negInf(newDecode(lens, 3, 16, 4, 2, 64), func(b, t int) bool { return t < lens[b]-2 })
	add := func(name string, change func(*decodeSpec)) {
		out = append(out, Case{Name: "decode/neg_inf/" + name, Op: "decode", List: Corner, body: base.with(change),
			Why: "a row all of whose scores are -Inf is NaN, unless a finite sink takes the weight; one without keys is 0"})
	}
	for _, dt := range []attn.DType{attn.F16, attn.BF16, attn.F32} {
		add(fmt.Sprintf("q=%v", dt), func(s *decodeSpec) { s.q = dt })
	}
	add("sinks", func(s *decodeSpec) { s.sinks = []float64{1, math.Inf(-1), math.Inf(1), math.NaN()} })
	add("window", func(s *decodeSpec) { s.window = 1 })
	add("mask", func(s *decodeSpec) { s.mask, s.window = visibleTokens([]int{}, []int{0}, []int{0, 1}), 2 })
	add("long", func(s *decodeSpec) {
		s.kvLens, s.fillK = []int{3000, 20}, negInf(*s, func(_, t int) bool { return t < 2998 }).fillK
	})
	add("scale=0", func(s *decodeSpec) { s.bmm1, s.deviceScales = 0, true })
	add("scale=-inf", func(s *decodeSpec) {
		s.bmm1, s.deviceScales = math.Inf(-1), true
		s.fillQ = func(row, h, d int) float64 { return 1 + math.Abs(noise(row, h, d, 9)) }
		s.fillK = func(b, t, h, d int) float64 { return 1 + math.Abs(noise(b, t, h, d)) }
	})
	return out
}

// decodeErrorCases are values that a backend must refuse before it writes anything.
func decodeErrorCases() []Case {
	var out []Case
	add := func(name string, s decodeSpec, bad badValue, args ...string) {
		bad.want.kind, bad.want.args = attn.ErrArgument, args
		s.bad = &bad
		out = append(out, Case{Name: "decode/refuse/" + name, Op: "decode", List: Corner, body: s,
			Why: "a bad value is an ErrArgument that names argument and request, and nothing is written"})
	}
	base := newDecode([]int{17, 5, 33}, 2, 16, 4, 2, 64)
	for _, in := range []struct {
		name string
		s    decodeSpec
		bad  badValue
		args []string
	}{
		{"seq_len=-1", base, badValue{arg: "seq_lens", index: 1, value: -1, want: refusal{request: 1}}, []string{"seq_lens"}},
		{"seq_len=min", base, badValue{arg: "seq_lens", index: 2, value: math.MinInt32, want: refusal{request: 2}}, []string{"seq_lens"}},
		{"seq_len_over_table", base.with(func(s *decodeSpec) { s.maxSeqLen = 1 << 20 }), badValue{arg: "seq_lens", index: 1, value: 5*16 + 1, want: refusal{request: 1}}, []string{"seq_lens"}},
		{"seq_len_over_table/max=0", base.with(func(s *decodeSpec) { s.maxSeqLen = 0 }), badValue{arg: "seq_lens", index: 1, value: 5*16 + 1, want: refusal{request: 1}}, []string{"seq_lens"}},
		{"seq_len_over_max", base.with(func(s *decodeSpec) { s.maxSeqLen = 33 }), badValue{arg: "seq_lens", index: 2, value: 34, want: refusal{request: 2}}, []string{"seq_lens", "max_seq_len"}},
		{"seq_len=2^31", base.with(func(s *decodeSpec) { s.unsigned = true }), badValue{arg: "seq_lens", index: 2, value: -1 << 31, want: refusal{request: 2}}, []string{"seq_lens"}},
		{"table=-1", base, badValue{arg: "block_tables", index: 2*5 + 2, value: -1, want: refusal{request: 2}}, []string{"block_tables"}},
		{"table=pages", base, badValue{arg: "block_tables", index: 1, value: 9, want: refusal{request: 0}}, []string{"block_tables"}},
		{"table=2^30", base, badValue{arg: "block_tables", index: 5, value: 1 << 30, want: refusal{request: 1}}, []string{"block_tables"}},
	} {
		add(in.name, in.s, in.bad, in.args...)
	}
	ragged := base.with(func(s *decodeSpec) { s.qLen, s.qLens = 0, []int{1, 3, 2} })
	add("cum_falls", ragged, badValue{arg: "cum_seq_lens_q", index: 2, value: 0, want: refusal{request: 1}}, "cum_seq_lens_q")
	add("cum_starts_at_1", ragged, badValue{arg: "cum_seq_lens_q", index: 0, value: 1, want: refusal{request: -1}}, "cum_seq_lens_q")
	add("cum_ends_early", ragged, badValue{arg: "cum_seq_lens_q", index: 3, value: 5, want: refusal{request: -1}}, "cum_seq_lens_q", "query")
	add("cum_ends_late", ragged.with(func(s *decodeSpec) { s.maxQ = 9 }), badValue{arg: "cum_seq_lens_q", index: 3, value: 7, want: refusal{request: -1}}, "cum_seq_lens_q", "query")
	add("q_len_over_max", ragged.with(func(s *decodeSpec) { s.maxQ = 3 }), badValue{arg: "cum_seq_lens_q", index: 1, value: 0, want: refusal{request: 1}}, "cum_seq_lens_q", "max_q_len")
	return out
}
