package opstest

import (
	"fmt"
	"math"
	"slices"

	"github.com/gaze-ml/gaze/internal/attn"
)

// argmaxCases are greedy choices.
func argmaxCases() []Case {
	var out []Case
	add := func(list List, name, why string, s argmaxSpec) {
		out = append(out, Case{Name: "argmax/" + name, Why: why, Op: "argmax", List: list, body: s})
	}
	for _, dt := range floatDTypes {
		add(Correctness, fmt.Sprintf("x=%v", dt), "the index of the largest logit of a vocabulary", argmaxSpec{tokens: 5, width: 49152, dt: dt})
		add(Correctness, fmt.Sprintf("equals/x=%v", dt), "of equal elements the first, wherever the parts of a row begin", argmaxSpec{tokens: 64, width: 4100, dt: dt,
			fill: func(row, d int) float64 { return b2f(d == 63*row+5 || d == 4099-row || d == 63*row+1029) }})
		add(Corner, fmt.Sprintf("strided/x=%v", dt), "rows apart, with NaN between", argmaxSpec{tokens: 4, width: 77, dt: dt, gap: 5})
	}
	for _, width := range []int{1, 2, 7, 33, 1025} {
		add(Corner, fmt.Sprintf("width=%d", width), "widths that fill no vector; the largest is last", argmaxSpec{tokens: 3, width: width, dt: attn.F16,
			fill: func(_, d int) float64 { return float64(d) - 2000 }})
	}
	add(Corner, "tokens=0", "no row", argmaxSpec{tokens: 0, width: 8, dt: attn.F32})
	nan, inf := math.NaN(), math.Inf(1)
	add(Corner, "nan", "NaN loses to everything, minus infinity too; a row of NaN gives 0", argmaxSpec{tokens: 5, width: 4, dt: attn.F32, fill: func(row, d int) float64 {
		return [][]float64{{nan, nan, nan, nan}, {nan, -inf, nan, -inf}, {1, nan, 2, nan}, {-inf, -inf, -inf, -inf}, {nan, inf, inf, 1}}[row][d]
	}})
	add(Corner, "signed_zeros", "0 and -0 are equal", argmaxSpec{tokens: 2, width: 8, dt: attn.F32, fill: func(row, d int) float64 { return math.Copysign(0, float64(d%2*2-1)) }})
	return out
}

// argmaxSpec looks for the largest element of rows, as data.
type argmaxSpec struct {
	tokens, width int
	dt            attn.DType
	gap           int
	fill          func(row, d int) float64
}

func (s argmaxSpec) check(ses *session) {
	call := &attn.ArgmaxCall{}
	in := &instance{call: call}
	x := placeMatrix(in, ses.rng, "x", &call.X, s.dt, s.gap, s.fill, s.tokens, s.width)
	if err := call.Infer(); err != nil {
		ses.fail(err)
		return
	}
	out := in.output("out", &call.Out)
	in.checks = append(in.checks, func(ses *session) {
		for t := range s.tokens {
			want := argmax(x.values[t*s.width : (t+1)*s.width])
			if got := int(int32(le.Uint32(out.got(4*t, 4)))); got != want {
				ses.failf("out: row %d: got %d, want %d", t, got, want)
			}
		}
	})
	ses.run(in)
}

// argmax is the first index of the largest of x that is a number.
func argmax(x []float64) int {
	top := math.Inf(-1)
	for _, v := range x {
		if v > top { // never NaN
			top = v
		}
	}
	return max(0, slices.Index(x, top))
}

// Argmax computes the call.
func (r *Reference) Argmax(c *attn.ArgmaxCall) error {
	x, width := rows(&c.X), c.X.Shape[1]
	for t := range c.X.Shape[0] {
		le.PutUint32(bytesAt(&c.Out, t, 1), uint32(r.at("argmax", argmax(x[t*width:(t+1)*width]), c)))
	}
	return nil
}
