package opstest

import (
	"fmt"
	"math"

	"github.com/gaze-ml/gaze/internal/attn"
)

// WeightDTypes lists the formats of weight matrices: floats, then GGUF's blocks.
func WeightDTypes() []attn.DType {
	return []attn.DType{attn.F32, attn.F16, attn.BF16, attn.Q8_0, attn.Q4_0, attn.Q4_1, attn.Q5_0, attn.Q5_1, attn.Q4_K, attn.Q5_K, attn.Q6_K}
}

// linearCases are matrix products and embeddings over every weight format.
func linearCases() []Case {
	var out []Case
	add := func(op string, list List, name, why string, b body) {
		out = append(out, Case{Name: op + "/" + name, Why: why, Op: op, List: list, body: b})
	}
	for _, w := range WeightDTypes() {
		for _, dt := range floatDTypes {
			add("linear", Correctness, fmt.Sprintf("x=%v/weight=%v", dt, w), "the product over dequantised weights; activations keep their precision",
				linearSpec{tokens: 3, in: 512, out: 37, dt: dt, weight: w})
		}
		for _, t := range []int{1, 2, 4, 5, 17, 33} {
			add("linear", Correctness, fmt.Sprintf("tokens=%d/weight=%v", t, w), "one row and many take different ways",
				linearSpec{tokens: t, in: 256 * (1 + t%3), out: 24, dt: attn.F32, weight: w})
		}
		for _, o := range []int{1, 3, 4, 9} {
			add("linear", Corner, fmt.Sprintf("out=%d/weight=%v", o, w), "numbers of outputs that fill no tile",
				linearSpec{tokens: 2, in: 256, out: o, dt: attn.F32, weight: w})
		}
		add("linear", Corner, fmt.Sprintf("large/tokens=2/weight=%v", w), "rows longer and more than any tile", linearSpec{tokens: 2, in: 2304, out: 360, dt: attn.F32, weight: w, bias: attn.F32})
		add("linear", Corner, fmt.Sprintf("large/tokens=40/weight=%v", w), "more tokens than any tile", linearSpec{tokens: 40, in: 2304, out: 40, dt: attn.F16, weight: w, bias: attn.F16})
		add("linear", Corner, fmt.Sprintf("strided/weight=%v", w), "rows of x and of the weights apart", linearSpec{tokens: 4, in: 256, out: 10, dt: attn.BF16, weight: w, gap: 24})
		add("linear", Corner, fmt.Sprintf("one_hot/weight=%v", w), "a row of x with a single 1 picks one column of weights, exactly",
			linearSpec{tokens: 32, in: 256, out: 5, dt: attn.F32, weight: w, fill: func(row, d int) float64 { return b2f(d == row*37%256) }})
		for _, o := range []attn.DType{attn.F32, attn.F16, attn.BF16} {
			add("embedding", Correctness, fmt.Sprintf("weight=%v/out=%v", w, o), "rows by id, blocks dequantised",
				embeddingSpec{ids: []int{3, 0, 18, 3, 7}, vocab: 19, hidden: 256, weight: w, out: o})
		}
		add("embedding", Corner, fmt.Sprintf("strided/weight=%v", w), "rows of the table apart", embeddingSpec{ids: []int{3, 0, 18}, vocab: 19, hidden: 512, weight: w, gap: 24})
	}
	for _, bias := range floatDTypes {
		for _, dt := range floatDTypes {
			if bias == attn.F32 || bias == dt {
				add("linear", Correctness, fmt.Sprintf("bias=%v/x=%v", bias, dt), "a bias of x's dtype or f32", linearSpec{tokens: 3, in: 64, out: 20, dt: dt, weight: attn.F32, bias: bias})
			}
		}
	}
	add("linear", Corner, "large/tokens=260", "16-bit results of many tokens", linearSpec{tokens: 260, in: 64, out: 70, dt: attn.BF16, weight: attn.Q8_0, bias: attn.F32})
	for _, in := range []int{1, 7, 33, 100, 1000} {
		add("linear", Corner, fmt.Sprintf("in=%d", in), "inner lengths that fill no vector", linearSpec{tokens: 3, in: in, out: 7, dt: attn.F32, weight: attn.BF16})
	}
	add("linear", Corner, "tokens=0", "no row", linearSpec{tokens: 0, in: 64, out: 8, dt: attn.F32, weight: attn.F32})
	add("linear", Corner, "nan_row", "a NaN in x spoils its own row only", linearSpec{tokens: 5, in: 64, out: 20, dt: attn.F32, weight: attn.Q8_0, fill: func(row, d int) float64 {
		if row == 2 && d == 63 {
			return math.NaN()
		}
		return noise(row, d, 0, 0)
	}})
	add("linear", Corner, "nan_weight", "a NaN in a row of the weights spoils its own column only", linearSpec{tokens: 5, in: 64, out: 20, dt: attn.F32, weight: attn.F16, fillW: func(row, d int) float64 {
		if row == 7 && d == 0 {
			return math.NaN()
		}
		return noise(row, d, 0, 0)
	}})
	add("embedding", Corner, "tokens=0", "no row", embeddingSpec{ids: []int{}, vocab: 19, hidden: 64, weight: attn.F32})
	for _, id := range []int{-1, 19, math.MinInt32, math.MaxInt32} {
		add("embedding", Corner, fmt.Sprintf("refuse/id=%d", id), "an id outside the table is an ErrArgument, and nothing is written",
			embeddingSpec{ids: []int{3, 0, 18}, vocab: 19, hidden: 64, weight: attn.F32,
				bad: &badValue{arg: "ids", index: 2, value: id, want: refusal{kind: attn.ErrArgument, args: []string{"ids"}, request: -1}}})
	}
	return out
}

func b2f(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
