package opstest

import (
	"fmt"
	"math"

	"github.com/gaze-ml/gaze/internal/attn"
)

var floatDTypes = []attn.DType{attn.F32, attn.F16, attn.BF16}

// layerCases are the ops of a decoder layer besides attention and linear.
func layerCases() []Case {
	out := append(normCases(), ropeCases()...)
	out = append(out, gateCases()...)
	out = append(out, mergeCases()...)
	out = append(out, argmaxCases()...)
	out = append(out, castCases()...)
	out = append(out, softmaxCases()...)
	return append(out, topKCases()...)
}

func normCases() []Case {
	var out []Case
	add := func(list List, name, why string, s normSpec) {
		if s.eps == 0 {
			s.eps = 1e-5
		}
		out = append(out, Case{Name: "rms_norm/" + name, Why: why, Op: "rms_norm", List: list, body: s})
	}
	for _, dt := range floatDTypes {
		for _, w := range []attn.DType{dt, attn.F32} {
			if w == dt && dt == attn.F32 {
				continue
			}
			for _, res := range []bool{false, true} {
				add(Correctness, fmt.Sprintf("x=%v/weight=%v/residual=%v", dt, w, res), "the formula, with the sum stored where there is a residual",
					normSpec{tokens: 5, hidden: 576, dt: dt, weightDT: w, residual: res})
			}
		}
	}
	for _, h := range []int{1, 7, 77, 2048, 4096} {
		add(Corner, fmt.Sprintf("hidden=%d", h), "widths that fill no vector", normSpec{tokens: 3, hidden: h, dt: attn.F32, weightDT: attn.F32, residual: true})
	}
	add(Corner, "strided", "rows apart", normSpec{tokens: 4, hidden: 64, dt: attn.BF16, weightDT: attn.F32, residual: true, gap: 24})
	add(Corner, "tokens=0", "no row", normSpec{tokens: 0, hidden: 64, dt: attn.F32, weightDT: attn.F32, residual: true})
	add(Corner, "zero_row", "a row of zeros stays 0: eps is inside the root", normSpec{tokens: 3, hidden: 64, dt: attn.F32, weightDT: attn.F32, fill: func(row, d int) float64 {
		return float64(row) * noise(row, d, 0, 0)
	}})
	add(Corner, "small", "eps of the order of the squares", normSpec{tokens: 3, hidden: 64, dt: attn.F32, weightDT: attn.F32, eps: 1e-3, fill: func(row, d int) float64 {
		return 0.05 * noise(row, d, 0, 0)
	}})
	add(Corner, "large_f16", "squares beyond float16's range: sums are f32", normSpec{tokens: 3, hidden: 576, dt: attn.F16, weightDT: attn.F16, fill: func(row, d int) float64 {
		return 3000 * noise(row, d, 0, 0)
	}})
	add(Corner, "nan_row", "a NaN spoils its own row only", normSpec{tokens: 3, hidden: 64, dt: attn.F32, weightDT: attn.F32, fill: func(row, d int) float64 {
		if row == 1 && d == 60 {
			return math.NaN()
		}
		return noise(row, d, 0, 0)
	}})
	return out
}

func ropeCases() []Case {
	var out []Case
	add := func(list List, name, why string, s ropeSpec) {
		if s.base == 0 {
			s.base = 10000
		}
		if s.positions == nil {
			s.positions = []int{0, 1, 5, 2047, 77}
		}
		out = append(out, Case{Name: "rope/" + name, Why: why, Op: "rope", List: list, body: s})
	}
	llama3 := attn.RoPEScaling{Factor: 8, LowFreqFactor: 1, HighFreqFactor: 4, OriginalContext: 8192}
	for _, p := range []attn.Pairing{attn.HalfSplit, attn.Adjacent} {
		for _, dt := range floatDTypes {
			add(Correctness, fmt.Sprintf("%v/x=%v", p, dt), "which elements turn together", ropeSpec{heads: 3, d: 64, dt: dt, pairing: p})
		}
		tag := "/" + p.String()
		add(Correctness, "llama3"+tag, "Llama 3's scaling: short waves stay, long ones stretch by 8, a slope between", ropeSpec{heads: 2, d: 128, dt: attn.F32, pairing: p,
			base: 500000, scaling: llama3, positions: []int{0, 1, 100, 8191, 16000}})
		add(Correctness, "linear"+tag, "every frequency over the factor", ropeSpec{heads: 2, d: 64, dt: attn.F32, pairing: p, scaling: attn.RoPEScaling{Factor: 4}})
		add(Correctness, "factors"+tag, "each frequency over its own factor", ropeSpec{heads: 2, d: 64, dt: attn.F32, pairing: p, factors: true})
		add(Correctness, "rotary_dim=32"+tag, "elements past the rotary dim are copied", ropeSpec{heads: 2, d: 80, rotary: 32, dt: attn.F32, pairing: p})
		add(Corner, "rotary_dim=2"+tag, "one pair", ropeSpec{heads: 2, d: 8, rotary: 2, dt: attn.F32, pairing: p})
		add(Corner, "position=-1"+tag, "a row at -1 is copied", ropeSpec{heads: 3, d: 64, dt: attn.F16, pairing: p, positions: []int{-1, 3, -1, 0}})
		add(Corner, "position=131071"+tag, "angles of 131071 radians: f32 frequencies would be off by 0.01", ropeSpec{heads: 2, d: 128, dt: attn.F32, pairing: p, base: 500000,
			positions: []int{131071, 131070, 100003}})
		add(Corner, "strided"+tag, "rows apart, as in a slice of QKV", ropeSpec{heads: 2, d: 64, dt: attn.BF16, pairing: p, gap: 136})
		add(Corner, "d=6"+tag, "three pairs", ropeSpec{heads: 1, d: 6, dt: attn.F32, pairing: p})
		add(Corner, "quarter_turn"+tag, "position 1, base 1: every pair turns by one radian, the same way", ropeSpec{heads: 1, d: 64, dt: attn.F32, pairing: p, base: 1, positions: []int{1, 2},
			fill: func(_, d int) float64 { return float64(d) }})
	}
	add(Corner, "tokens=0", "no row", ropeSpec{heads: 2, d: 64, dt: attn.F32, positions: []int{}})
	for _, pos := range []int{-2, math.MinInt32} {
		add(Corner, fmt.Sprintf("refuse/position=%d", pos), "a position below -1 is an ErrArgument, and nothing is written", ropeSpec{heads: 2, d: 64, dt: attn.F32,
			bad: &badValue{arg: "positions", index: 1, value: pos, want: refusal{kind: attn.ErrArgument, args: []string{"positions"}, request: -1}}})
	}
	return out
}

func gateCases() []Case {
	var out []Case
	add := func(list List, name, why string, s siluSpec) {
		out = append(out, Case{Name: "silu_mul/" + name, Why: why, Op: "silu_mul", List: list, body: s})
	}
	for _, dt := range floatDTypes {
		add(Correctness, fmt.Sprintf("x=%v", dt), "gate/(1+exp(-gate))·up", siluSpec{tokens: 5, width: 1536, dt: dt})
		add(Corner, fmt.Sprintf("extremes/x=%v", dt), "no overflow where the exponential does: 0 below, the gate itself above", siluSpec{tokens: 2, width: 64, dt: dt,
			fillGate: func(_, d int) float64 {
				return []float64{0, -20, 20, -90, 90, -1000, 1000, -0.001, 30000, -30000}[d%10]
			}})
	}
	add(Corner, "strided", "gate and up are halves of one row", siluSpec{tokens: 4, width: 77, dt: attn.F32, gap: 77})
	add(Corner, "tokens=0", "no row", siluSpec{tokens: 0, width: 64, dt: attn.F32})
	add(Corner, "nan", "a NaN spoils its own element only", siluSpec{tokens: 2, width: 64, dt: attn.F32, fillGate: func(row, d int) float64 {
		if row == 1 && d == 9 {
			return math.NaN()
		}
		return noise(row, d, 1, 1)
	}})
	return out
}

func mergeCases() []Case {
	var out []Case
	add := func(list List, name, why string, s mergeSpec) {
		if s.lseA == nil {
			s.lseA = func(row, h int) float64 { return 3 * noise(row, h, 1, 2) }
		}
		if s.lseB == nil {
			s.lseB = func(row, h int) float64 { return 3 * noise(row, h, 3, 4) }
		}
		out = append(out, Case{Name: "merge_lse/" + name, Why: why, Op: "merge_lse", List: list, body: s})
	}
	for _, dt := range floatDTypes {
		add(Correctness, fmt.Sprintf("x=%v", dt), "both sides by their share, in natural logs", mergeSpec{tokens: 5, heads: 3, d: 64, dt: dt})
	}
	add(Corner, "strided", "rows apart", mergeSpec{tokens: 4, heads: 2, d: 40, dt: attn.F32, gap: 24})
	inf := func(which int) func(row, h int) float64 {
		return func(row, h int) float64 {
			if (row+h)%4&which != 0 {
				return math.Inf(-1)
			}
			return noise(row, h, which, 0)
		}
	}
	add(Corner, "empty_sides", "an LSE of -inf weighs nothing; two of them give 0 and -inf", mergeSpec{tokens: 5, heads: 3, d: 64, dt: attn.F32, lseA: inf(1), lseB: inf(2)})
	add(Corner, "far_apart", "LSEs of thousands: no overflow", mergeSpec{tokens: 5, heads: 2, d: 64, dt: attn.F32,
		lseA: func(row, h int) float64 { return float64(1000*row - 2000) }, lseB: func(row, h int) float64 { return float64(2000 - 1000*row) }})
	add(Corner, "tokens=0", "no row", mergeSpec{tokens: 0, heads: 2, d: 64, dt: attn.F32})
	return out
}
