package opstest

import (
	"math"

	"github.com/gaze-ml/gaze/internal/attn"
)

// ropeSpec is a rotary embedding as data.
type ropeSpec struct {
	positions []int
	heads, d  int
	rotary    int // 0: d
	dt        attn.DType
	pairing   attn.Pairing
	base      float64
	scaling   attn.RoPEScaling
	factors   bool
	gap       int
	fill      func(row, d int) float64
	bad       *badValue
}

func (s ropeSpec) check(ses *session) {
	call := &attn.RoPECall{RoPEConfig: attn.RoPEConfig{Pairing: s.pairing, Base: s.base, RotaryDim: s.rotary, Scaling: s.scaling}, CheckValues: s.bad != nil}
	in := &instance{call: call}
	x := placeMatrix(in, ses.rng, "x", &call.X, s.dt, s.gap, s.fill, len(s.positions), s.heads, s.d)
	in.ints("positions", &call.Positions, s.positions)
	var factors []float64
	if s.factors {
		factors = placeMatrix(in, ses.rng, "factors", &call.Factors, attn.F32, 0,
			func(_, i int) float64 { return 1 + 0.75*float64(i%5) }, call.Rotary(s.d)/2).values
	}
	if err := call.Infer(); err != nil {
		ses.fail(err)
		return
	}
	out := in.output("out", &call.Out)
	in.checks = append(in.checks, func(ses *session) {
		want := make([]float64, len(x.values))
		for t, pos := range s.positions {
			for h := range s.heads {
				at := (t*s.heads + h) * s.d
				rope(want[at:at+s.d], x.values[at:at+s.d], &call.RoPEConfig, factors, pos)
			}
		}
		// A turned element's error is relative to its pair.
		ses.checkLayer(out, want, func(i int) float64 {
			if s.dt != attn.F32 {
				return 0
			}
			return 1e-5 * (1 + math.Abs(x.values[i]))
		})
	})
	if s.bad != nil {
		in.operand(s.bad.arg).setInts(s.bad.index, s.bad.value)
		in.refuse = &s.bad.want
	}
	ses.run(in)
}

// ropeFrequency is the angle per position of pair i of a head of size d, after scaling.
func ropeFrequency(c *attn.RoPEConfig, factors []float64, i, d int) float64 {
	f := math.Pow(c.Base, -2*float64(i)/float64(c.Rotary(d)))
	if factors != nil {
		f /= factors[i]
	}
	s := c.Scaling
	switch {
	case s == (attn.RoPEScaling{}):
	case s.LowFreqFactor == 0:
		f /= s.Factor
	default:
		// Llama 3: waves longer than context/low are stretched by the factor, those shorter than context/high stay, a straight
		// line between them in context/wavelength.
		turns := float64(s.OriginalContext) * f / (2 * math.Pi)
		keep := math.Min(1, math.Max(0, (turns-s.LowFreqFactor)/(s.HighFreqFactor-s.LowFreqFactor)))
		f = keep*f + (1-keep)*f/s.Factor
	}
	return f
}

// rope turns one head.
func rope(dst, x []float64, c *attn.RoPEConfig, factors []float64, pos int) {
	copy(dst, x)
	if pos < 0 {
		return
	}
	eachPair(c, len(x), func(i, a, b int) {
		sin, cos := math.Sincos(float64(pos) * ropeFrequency(c, factors, i, len(x)))
		dst[a], dst[b] = x[a]*cos-x[b]*sin, x[a]*sin+x[b]*cos
	})
}

// eachPair visits the pairs of a head of size d that turn.
func eachPair(c *attn.RoPEConfig, d int, visit func(i, a, b int)) {
	r := c.Rotary(d)
	for i := range r / 2 {
		if c.Pairing == attn.Adjacent {
			visit(i, 2*i, 2*i+1)
		} else {
			visit(i, i, i+r/2)
		}
	}
}
