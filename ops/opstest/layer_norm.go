package opstest

import (
	"math"

	"github.com/gaze-ml/gaze/internal/attn"
)

// normSpec is an RMSNorm as data.
type normSpec struct {
	tokens, hidden int
	dt, weightDT   attn.DType
	residual       bool
	eps            float64
	gap            int
	fill           func(row, d int) float64
}

func (s normSpec) check(ses *session) {
	call := &attn.RMSNormCall{Eps: s.eps}
	in := &instance{call: call}
	x := placeMatrix(in, ses.rng, "x", &call.X, s.dt, s.gap, s.fill, s.tokens, s.hidden)
	w := placeMatrix(in, ses.rng, "weight", &call.Weight, s.weightDT, 0, nil, s.hidden)
	var res matrix
	if s.residual {
		res = placeMatrix(in, ses.rng, "residual", &call.Residual, s.dt, 2*s.gap, nil, s.tokens, s.hidden)
	}
	if err := call.Infer(); err != nil {
		ses.fail(err)
		return
	}
	out := in.output("out", &call.Out)
	var sum *operand
	if s.residual {
		sum = in.output("sum", &call.Sum)
	}
	in.checks = append(in.checks, func(ses *session) {
		r := x.values
		if s.residual {
			r = make([]float64, len(x.values))
			for i := range r {
				r[i] = x.values[i] + res.values[i]
			}
			ses.checkLayer(sum, r, nil)
		}
		want := rmsNorm(r, w.values, s.eps)
		// A backend may normalise the residual sum as it stores it, rounded: half a step of r, carried through the row's factor.
		ses.checkLayer(out, want, func(i int) float64 {
			if !s.residual || s.dt == attn.F32 || r[i] == 0 || math.IsNaN(want[i]) {
				return 0
			}
			return formats[s.dt].step(r[i]) / 2 * math.Abs(want[i]/r[i])
		})
	})
	ses.run(in)
}

// rmsNorm is r / sqrt(mean(r²) + eps) · weight, row by row.
func rmsNorm(r, weight []float64, eps float64) []float64 {
	n := len(weight)
	out := make([]float64, len(r))
	for t := 0; t < len(r); t += n {
		f := 1 / math.Sqrt(dot(r[t:t+n], r[t:t+n])/float64(n)+eps)
		for d, w := range weight {
			out[t+d] = r[t+d] * f * w
		}
	}
	return out
}
