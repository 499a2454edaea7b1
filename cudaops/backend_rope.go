package cudaops

import (
	"math"

	"github.com/gaze-ml/gaze/internal/attn"
)

// RoPE turns pairs of elements.
func (b *Backend) RoPE(c *attn.RoPECall) error {
	rt := b.rt
	k, err := rt.start(c)
	defer rt.mu.Unlock()
	if err != nil {
		return err
	}
	at := binding{rt: rt, op: c.Op()}
	p := &rt.frame.rope
	p.X, p.Positions, p.Factors = at.need("x", &c.X), at.table("positions", &c.Positions, false), at.may("factors", &c.Factors)
	p.Out, p.Fault, p.Op = at.need("out", &c.Out), rt.faults, opRoPE
	p.XToken, p.XHead, p.Tokens = int64(c.X.Stride[0]), int64(c.X.Stride[1]), int64(c.X.Shape[0])
	p.Heads, p.HeadDim, p.Rotary = int32(c.X.Shape[1]), int32(c.X.Shape[2]), int32(c.Rotary())
	p.Adjacent = int32(c.Pairing)
	if at.err != nil || c.X.Len() == 0 {
		return at.err
	}
	if c.CheckValues {
		if err := rt.checkRoPE(c); err != nil {
			return err
		}
	}
	rt.turns.fill(&p.Turns, c)
	return launch(rt, k, c, rt.blocks(c.X.Len()/2, 256), 1, true, p)
}

// turns remembers the frequencies of the last RoPE, which is nearly always the next one's.
type turns struct {
	rotary  int
	base    float64
	scaling attn.RoPEScaling
	of      [256]float64
}

// fill sets dst to the turns (angle/2π) a position of every pair of the call.
func (t *turns) fill(dst *[256]float64, c *attn.RoPECall) {
	if r := c.Rotary(); t.rotary != r || t.base != c.Base || t.scaling != c.Scaling {
		t.rotary, t.base, t.scaling = r, c.Base, c.Scaling
		for i := range min(r/2, len(t.of)) {
			t.of[i] = frequency(c, i) / (2 * math.Pi)
		}
	}
	copy(dst[:], t.of[:min(t.rotary/2, len(t.of))])
}

// frequency is base^(-2i/R) in radians a token, stretched as RoPEScaling says: Llama 3's rule leaves wavelengths below
// original/high_freq_factor, multiplies those above original/low_freq_factor by factor, and blends between the two.
func frequency(c *attn.RoPECall, i int) float64 {
	f := math.Pow(c.Base, -2*float64(i)/float64(c.Rotary()))
	s := c.Scaling
	switch {
	case s == (attn.RoPEScaling{}):
		return f
	case s.LowFreqFactor == 0:
		return f / s.Factor
	}
	turnsInContext := float64(s.OriginalContext) * f / (2 * math.Pi)
	blend := (turnsInContext - s.LowFreqFactor) / (s.HighFreqFactor - s.LowFreqFactor)
	blend = min(max(blend, 0), 1)
	return f * (blend + (1-blend)/s.Factor)
}
