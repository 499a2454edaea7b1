package opstest

import (
	"fmt"
	"math"
	"slices"

	"github.com/gaze-ml/gaze/internal/attn"
)

// edges are numbers at which the formats differ: ties and what is beside them, subnormals, and both ends of each range.
func edges(_, d int) float64 {
	x := []float64{0, 1, 1 + 0x1p-8, 1 + 0x3p-8, 1 + 0x1p-8 + 0x1p-23, 1 + 0x1p-11, 1 + 0x3p-11, 1 + 0x1p-11 + 0x1p-23, 65504, 65519.996, 65520, 1e5,
		0x1p-14, 0x1p-15 + 0x1p-24, 0x1p-24, 0x1p-25, 0x1p-25 + 0x1p-40, 0x1.8p-24, 0x1p-126, 0x1p-127, 0x1p-133, 0x1p-134, 0x1.8p-133, 0x1p-149,
		1 + 0x1p-4, 1 + 0x3p-4, 1 + 0x1p-4 + 0x1p-7, 1 + 0x1p-4 + 0x1p-23, 448, 464, 466, 0x1p-6 - 0x1p-10, 0x1.8p-9, 0x1p-10, 0x1p-10 + 0x1p-17,
		0x1.fep127, 0x1.fefffep127, 0x1.ffp127, 0x1.fffffep127, math.Inf(1), math.NaN()}[d/2]
	if d%2 == 1 {
		return -x
	}
	return x
}

const edgeCount = 82

// castCases copy to other dtypes.
func castCases() []Case {
	var out []Case
	add := func(list List, name, why string, s castSpec) {
		out = append(out, Case{Name: "cast/" + name, Why: why, Op: "cast", List: list, body: s})
	}
	dts := append(slices.Clone(floatDTypes), attn.E4M3)
	for _, from := range dts {
		for _, to := range dts {
			add(Correctness, fmt.Sprintf("x=%v/out=%v", from, to), "rounded once, to nearest even", castSpec{shape: []int{7, 3, 64}, from: from, to: to})
			add(Corner, fmt.Sprintf("edges/x=%v/out=%v", from, to), "ties, subnormals, overflow, signs of 0, infinities and NaN", castSpec{shape: []int{2, edgeCount}, from: from, to: to, rule: edges})
		}
	}
	for _, shape := range [][]int{{}, {1}, {7}, {8}, {129}, {3, 5}, {2, 3, 5, 7}, {1, 2, 3, 4, 5}, {0, 64}, {64, 0}} {
		add(Corner, fmt.Sprintf("shape=%v", shape), "any rank, sizes that fill no vector, and none", castSpec{shape: shape, from: attn.F32, to: attn.BF16})
	}
	add(Corner, "large", "more than one pass of any grid", castSpec{shape: []int{33, 40001}, from: attn.F16, to: attn.F32})
	return out
}

// castSpec is a cast as data.
type castSpec struct {
	shape    []int
	from, to attn.DType
	rule     func(row, d int) float64
}

func (s castSpec) check(ses *session) {
	call := &attn.CastCall{OutDType: s.to}
	in := &instance{call: call}
	x := placeMatrix(in, ses.rng, "x", &call.X, s.from, 0, s.rule, s.shape...)
	if err := call.Infer(); err != nil {
		ses.fail(err)
		return
	}
	out := in.output("out", &call.Out)
	in.checks = append(in.checks, func(ses *session) {
		for i, got := range out.floats() {
			want := formats[s.to].round(x.values[i])
			if math.IsNaN(want) && math.IsNaN(got) || got == want && math.Signbit(got) == math.Signbit(want) {
				continue
			}
			ses.failf("out: element %d is %v, want %v, which is %v in %v", i, got, want, x.values[i], s.to)
			return
		}
	})
	ses.run(in)
}

// Cast computes the call.
func (r *Reference) Cast(c *attn.CastCall) error {
	floats := make([]float64, c.X.Len())
	floatsAt(floats, &c.X, 0)
	r.set(&c.Out, 0, floats...)
	return nil
}
