package opstest

import (
	"fmt"
	"math"

	"github.com/gaze-ml/gaze/internal/attn"
)

// decodeCases are ordinary decode calls over sizes, groups and features.
func decodeCases() []Case {
	var out []Case
	add := func(name, why string, s decodeSpec) {
		out = append(out, Case{Name: "decode/" + name, Why: why, Op: "decode", List: Correctness, body: s})
	}
	add("two_keys", "the softmax of two chosen logits, natural log in the LSE (1.3133, not 1.8946)", twoKeys(1, 0))
	add("two_keys/scale_doubled", "bmm1_scale reaches the logits once: 0.8808", twoKeys(1, 0).with(func(s *decodeSpec) {
		s.bmm1, s.rule = 0.25, twoKeys(2, 0).rule
	}))
	add("two_keys/logits=90", "the maximum is taken off before the exponential", twoKeys(90, 88))
	add("two_keys/logits=-300000", "no finite number stands for minus infinity", twoKeys(0, 0).with(func(s *decodeSpec) {
		s.bmm1 = 1.25
		s.fillQ = lead(8, 8)
		s.fillK = func(_, t, _, d int) float64 { return lead(-30000, 0.125*float64(1-t))(0, 0, d) }
		s.rule = func(_, _, _ int) (float64, float64) {
			return 1 / (1 + math.Exp(-1.25)), -300000 + math.Log(1+math.Exp(1.25))
		}
	}))
	for _, g := range [][2]int{{9, 3}, {5, 1}, {12, 2}, {28, 4}, {64, 4}, {64, 1}, {7, 7}} {
		add(fmt.Sprintf("uniform/heads=%d-%d", g[0], g[1]), "any group size: head h reads KV head h/G",
			uniform([]int{21, 3}, 1, 16, g[0], g[1], 64))
	}
	add("random/heads=256-1", "more heads in a group than rows in a tile", newDecode([]int{21, 40}, 2, 16, 256, 1, 64))
	for _, d := range []int{8, 40, 64, 72, 96, 128, 192, 256, 512} {
		add(fmt.Sprintf("random/d=%d", d), "head dims, multiples of 8 that no vector width divides among them", newDecode([]int{37, 5}, 1, 16, 4, 2, d))
	}
	for _, p := range []int{1, 3, 8, 16, 32, 64, 128, 1024} {
		add(fmt.Sprintf("random/page=%d", p), "page sizes, powers of two and not", newDecode([]int{70, 64, 1}, 1, p, 4, 2, 64))
	}
	for _, l := range []int{2, 3, 5, 6, 7, 8} {
		for _, g := range []int{1, 3, 5, 8} {
			add(fmt.Sprintf("uniform/q_len=%d/group=%d", l, g), "rows of later requests stand where they belong, implicit causal mask",
				uniform([]int{21, 21}, l, 16, 2*g, 2, 128))
		}
	}
	add("random/batch=7/ragged_kv", "requests of very different lengths", newDecode([]int{1, 300, 17, 64, 2, 129, 90}, 1, 16, 8, 2, 64))
	add("uniform/kv_len=4097", "a long context, summed in pieces or not", uniform([]int{4097}, 1, 16, 4, 2, 64))
	add("random/kv_len=3000/q_len=4", "several rows over a long context", newDecode([]int{3000, 777}, 4, 32, 8, 2, 64))
	add("random/kv_len=100000", "sums of a hundred thousand weights", newDecode([]int{100000}, 1, 64, 1, 1, 64).with(func(s *decodeSpec) {
		s.q = attn.F32
		s.fillV = func(_, t, h, d int) float64 { return 1 + 0.5*noise(t, h, d, 3) }
	}))
	add("random/pdl=on", "enable_pdl changes no number", newDecode([]int{37}, 1, 16, 4, 2, 64).with(func(s *decodeSpec) { s.pdl = 1 }))
	add("random/bmm2=0.37", "bmm2_scale multiplies the result, for 16-bit caches too", newDecode([]int{37, 12}, 1, 16, 4, 2, 64).with(func(s *decodeSpec) { s.bmm2 = 0.37 }))
	add("random/bmm2=-2", "a negative scale is a number like any other", newDecode([]int{37, 12}, 1, 16, 4, 2, 64).with(func(s *decodeSpec) { s.bmm1, s.bmm2 = -0.125, -2 }))
	add("random/device_scales", "one-element tensors win over the host's scales", newDecode([]int{37, 12}, 2, 16, 4, 2, 64).with(func(s *decodeSpec) {
		s.bmm1, s.bmm2, s.deviceScales = 0.1, 0.6, true
	}))
	add("random/out_given", "a caller's out is filled", newDecode([]int{37, 12}, 1, 16, 4, 2, 64).with(func(s *decodeSpec) { s.given = true }))
	add("random/no_lse", "no LSE is wanted", newDecode([]int{37, 12}, 1, 16, 4, 2, 64).with(func(s *decodeSpec) { s.noLSE = true }))
	add("random/uint32_lens", "seq_lens may be uint32", newDecode([]int{37, 12}, 1, 16, 4, 2, 64).with(func(s *decodeSpec) { s.unsigned = true }))
	add("random/max_seq_len=0", "0 means the table's width", newDecode([]int{37, 12}, 1, 16, 4, 2, 64).with(func(s *decodeSpec) { s.maxSeqLen = 0 }))
	add("random/shared_prefix", "two requests may name the same pages", newDecode([]int{70, 50, 33}, 1, 16, 4, 2, 64).with(func(s *decodeSpec) { s.share = 2 }))
	add("random/check_values", "checking before the launch changes no number", newDecode([]int{37, 12}, 1, 16, 4, 2, 64).with(func(s *decodeSpec) { s.checkVals = true }))
	for _, name := range []string{"auto", "xqa", "trtllm-gen"} {
		add("random/backend="+name, "a backend's name changes no number", newDecode([]int{37, 12}, 1, 16, 4, 2, 64).with(func(s *decodeSpec) { s.backend = name }))
	}
	out = append(out, windowCases()...)
	out = append(out, maskCases()...)
	out = append(out, sinkCases()...)
	return append(out, inF32(out)...)
}

// inF32 repeats the cases with random 16-bit inputs in f32, whose tolerance is a hundred times tighter.
func inF32(cases []Case) []Case {
	var out []Case
	for _, c := range cases {
		switch s := c.body.(type) {
		case decodeSpec:
			if s.fillQ != nil || s.q != attn.F16 {
				continue
			}
			s.q = attn.F32
			c.body = s
		case prefillSpec:
			if s.fillQ != nil || s.in != attn.F16 || s.out != attn.Invalid {
				continue
			}
			s.in = attn.F32
			c.body = s
		}
		c.Name += "/f32"
		out = append(out, c)
	}
	return out
}

func windowCases() []Case {
	var out []Case
	for _, w := range []int{0, 7, 19, 20, 127} {
		s := uniform([]int{20}, 1, 4, 2, 1, 64).with(func(s *decodeSpec) { s.window = w })
		s.rule = s.uniformRule()
		out = append(out, Case{Name: fmt.Sprintf("decode/window=%d", w), Op: "decode", List: Correctness, body: s,
			Why: "window_left keeps its own key and so many before it: 0 gives 19, 7 gives 15.5"})
	}
	s := uniform([]int{20, 6, 3}, 4, 4, 2, 1, 64).with(func(s *decodeSpec) { s.window = 3 })
	s.rule = s.uniformRule()
	out = append(out, Case{Name: "decode/window=3/q_len=4", Op: "decode", List: Correctness, body: s,
		Why: "each row has its own window: 14.5 15.5 16.5 17.5"})
	for _, w := range []int{63, 127} {
		for _, l := range []int{1, 5} {
			s := newDecode([]int{300, 90, 129}, l, 16, 8, 2, 64).with(func(s *decodeSpec) { s.window = w })
			out = append(out, Case{Name: fmt.Sprintf("decode/window=%d/kv_len=300/q_len=%d", w, l), Op: "decode", List: Correctness, body: s,
				Why: "windows that really cut, whole pages of them"})
		}
	}
	return out
}

// visibleTokens is a draft mask given as lists: row i of every request sees the draft tokens of list i.
func visibleTokens(rows ...[]int) func(b, i, c int) bool {
	return func(_, i, c int) bool {
		for _, t := range rows[i] {
			if t == c {
				return true
			}
		}
		return false
	}
}

// meanRule is the uniform fixture's answer where a row sees all of the keys before `prior` and the listed ones.
func meanRule(prior func(b int) int, group int, seen func(b, i int) []int) func(b, i, h int) (float64, float64) {
	return func(b, i, h int) (float64, float64) {
		n := prior(b)
		sum, count := float64(n*(n-1))/2, n
		for _, t := range seen(b, i) {
			sum += float64(t)
			count++
		}
		if count == 0 {
			return 0, math.Inf(-1)
		}
		return sum/float64(count) + float64(100*(h/group)), math.Log(float64(count))
	}
}

func maskCases() []Case {
	var out []Case
	add := func(name, why string, s decodeSpec) {
		out = append(out, Case{Name: "decode/mask/" + name, Why: why, Op: "decode", List: Correctness, body: s})
	}
	tree := [][]int{{0}, {0, 1}, {0, 2}, {0, 1, 3}}
	add("tree", "the bits decide, not causality: 8, 8.5, 8.5556, 9.0526", uniform([]int{20}, 4, 16, 4, 2, 64).with(func(s *decodeSpec) {
		s.mask = visibleTokens(tree...)
		s.rule = meanRule(func(int) int { return 16 }, 2, func(_, i int) []int {
			seen := []int{}
			for _, c := range tree[i] {
				seen = append(seen, 16+c)
			}
			return seen
		})
	}))
	add("full", "an all-ones mask shows every draft token to every row", uniform([]int{20, 9}, 4, 16, 4, 2, 64).with(func(s *decodeSpec) {
		s.mask = func(_, _, _ int) bool { return true }
		s.rule = meanRule(func(b int) int { return []int{20, 9}[b] }, 2, func(_, _ int) []int { return nil })
	}))
	add("zero_rows", "a row may see no draft token; with no key before them its output is 0 and its LSE -inf", uniform([]int{20, 4}, 4, 16, 4, 2, 64).with(func(s *decodeSpec) {
		s.mask = func(_, i, _ int) bool { return i == 3 }
		s.rule = meanRule(func(b int) int { return []int{16, 0}[b] }, 2, func(b, i int) []int {
			if i < 3 {
				return nil
			}
			n := []int{16, 0}[b]
			return []int{n, n + 1, n + 2, n + 3}
		})
	}))
	for _, l := range []int{31, 32, 33, 65} {
		add(fmt.Sprintf("q_len=%d", l), "masks of several words a row, other bits for the other request",
			newDecode([]int{100, l, 70}, l, 16, 4, 2, 64).with(func(s *decodeSpec) {
				s.mask = func(b, i, c int) bool { return (i*7+c*3+b)%5 < 3 }
			}))
	}
	add("window=2", "the window holds for drafts too", newDecode([]int{20, 6}, 4, 16, 4, 2, 64).with(func(s *decodeSpec) {
		s.mask, s.window = visibleTokens(tree...), 2
	}))
	add("causal=xqa", "xqa's causal mask equals the implicit one", newDecode([]int{20, 40}, 4, 16, 4, 2, 64).with(func(s *decodeSpec) {
		s.mask, s.backend = func(_, i, c int) bool { return c <= i }, "xqa"
	}))
	add("short_request", "drafts before the first position do not exist", newDecode([]int{2, 40, 0}, 4, 16, 4, 2, 64).with(func(s *decodeSpec) {
		s.mask = func(_, i, c int) bool { return c <= i || c == 3 }
	}))
	add("q_len=1", "with one query token a mask is checked and ignored", newDecode([]int{20, 7}, 1, 16, 4, 2, 64).with(func(s *decodeSpec) {
		s.qLen, s.mask = 1, func(_, _, _ int) bool { return false }
	}))
	return out
}

func sinkCases() []Case {
	var out []Case
	add := func(name, why string, s decodeSpec) {
		out = append(out, Case{Name: "decode/sinks/" + name, Why: why, Op: "decode", List: Correctness, body: s})
	}
	sinks := []float64{math.Log(8), math.Log(24), math.Inf(-1), 80}
	// n visible keys of weight 1 with mean m: m·n/(n+exp sink).
	withSinks := func(s decodeSpec, sinks []float64) decodeSpec {
		s.sinks = make([]float64, len(sinks))
		for h, x := range sinks {
			s.sinks[h] = float64(float32(x))
		}
		plain := s.uniformRule()
		s.rule = func(b, i, h int) (float64, float64) {
			mean, lse := plain(b, i, h)
			n, e := math.Exp(lse), math.Exp(s.sinks[h])
			if n+e == 0 {
				return 0, math.Inf(-1)
			}
			return mean * n / (n + e), math.Log(n + e)
		}
		return s
	}
	for _, l := range []int{1, 3} {
		s := uniform([]int{37}, l, 16, 4, 2, 64).with(func(s *decodeSpec) { s.window = 7 })
		add(fmt.Sprintf("window=7/q_len=%d", l), "a sink joins the denominator once, by query head, in natural log: 16.25, 8.125, 132.5, ~0", withSinks(s, sinks))
	}
	five := make([]float64, 10)
	for h := range five {
		five[h] = math.Log(float64(1 + 3*h))
	}
	add("group=5", "group sizes that fill no vector", withSinks(uniform([]int{37, 5}, 1, 16, 10, 2, 64), five))
	add("kv_len=4097", "once, however many pieces the context is cut into: 0.2499", withSinks(uniform([]int{4097}, 1, 16, 1, 1, 64), []float64{math.Log(4097)}))
	add("empty", "rows without a key: out 0, LSE the sink, -inf where that is -inf", withSinks(uniform([]int{0, 5, 2}, 4, 16, 4, 2, 64), sinks))
	add("random", "sinks beside scaled scores: not multiplied by bmm1_scale", newDecode([]int{128, 33, 1}, 1, 32, 8, 2, 64).with(func(s *decodeSpec) {
		s.bmm1 = 0.3
		s.sinks = []float64{-2, 0, 1, 3, 8, -40, 0.5, 20}
	}))
	add("bmm1=1", "unscaled scores, as in FlashInfer's tests", newDecode([]int{128, 32}, 1, 32, 8, 2, 64).with(func(s *decodeSpec) {
		s.bmm1 = 1
		s.sinks = []float64{-2, 0, 1, 3, 8, -40, 0.5, 20}
	}))
	return out
}

// decodeDTypeCases run every accepted triple of query, cache and output dtype once.
func decodeDTypeCases() []Case {
	var out []Case
	for _, t := range DecodeDTypes() {
		s := newDecode([]int{37, 0, 70}, 2, 16, 8, 2, 64).with(func(s *decodeSpec) {
			s.q, s.kv, s.out = t[0], t[1], t[2]
			if t[1] == attn.E4M3 {
				s.bmm1, s.bmm2, s.deviceScales = 0.9*s.bmm1, 0.75, true
			}
			if t[2] == attn.U8 {
				s.osfScale = 300
			}
			if t[2] == attn.E4M3 {
				s.bmm2, s.oScale = 2, 0.5
			}
		})
		out = append(out, Case{Name: fmt.Sprintf("decode/dtypes/q=%v/kv=%v/out=%s", t[0], t[1], outName(t[2])), Op: "decode", List: Correctness, body: s,
			Why: "every accepted combination computes"})
	}
	return out
}

func outName(d attn.DType) string {
	if d == attn.U8 {
		return "nvfp4"
	}
	return d.String()
}

// DecodeDTypes lists the accepted (query, cache, output) dtypes; U8 stands for nvfp4.
func DecodeDTypes() [][3]attn.DType {
	out := [][3]attn.DType{{attn.F32, attn.F32, attn.F32}}
	for _, h := range []attn.DType{attn.F16, attn.BF16} {
		out = append(out, [3]attn.DType{h, h, h}, [3]attn.DType{h, attn.E4M3, h}, [3]attn.DType{h, attn.E4M3, attn.E4M3},
			[3]attn.DType{attn.E4M3, attn.E4M3, h})
	}
	return append(out, [3]attn.DType{attn.E4M3, attn.E4M3, attn.E4M3}, [3]attn.DType{attn.E4M3, attn.E4M3, attn.U8})
}

// PrefillDTypes lists the accepted (q, cache, output) dtypes.
func PrefillDTypes() [][3]attn.DType {
	out := [][3]attn.DType{{attn.F32, attn.F32, attn.F32}, {attn.E4M3, attn.E4M3, attn.E4M3}}
	for _, h := range []attn.DType{attn.F16, attn.BF16} {
		out = append(out, [3]attn.DType{h, h, h}, [3]attn.DType{attn.E4M3, attn.E4M3, h})
	}
	return out
}
