package cpu

import (
	"math"
	"unsafe"

	"github.com/gaze-ml/gaze/internal/attn"
)

// ropeTask rotates heads, a share of the tokens an item.
type ropeTask struct {
	c     *attn.RoPECall
	items int
	freqs []float64 // radians a token, one for each pair
	key   ropeKey   // what freqs was made for
}

type ropeKey struct {
	base    float64
	rotary  int
	scaling attn.RoPEScaling
}

// RoPE rotates the pairs of every head. Angles are float64 until their sines and cosines. Out may be x.
func (b *Backend) RoPE(c *attn.RoPECall) error {
	if err := checkRoPE(c); err != nil {
		return err
	}
	f := b.take()
	defer b.give(f)
	r := &f.rope
	t := c.X.Shape[0]
	cost := 4*c.X.Shape[1]*c.X.Shape[2] + 64*c.Rotary()
	r.c, r.items = c, b.pieces(t, cost)
	defer func() { r.c = nil }()
	if key := (ropeKey{c.Base, c.Rotary(), c.Scaling}); key != r.key {
		r.key, r.freqs = key, ropeFreqs(r.freqs, key)
	}
	return b.loop(c.Op(), r, r.items, t*cost, &f.scratch)
}

func checkRoPE(c *attn.RoPECall) error {
	if err := required(c.Op(), operand{"x", &c.X}, operand{"positions", &c.Positions}, operand{"out", &c.Out}); err != nil {
		return err
	}
	if err := present(c.Op(), operand{"factors", &c.Factors}); err != nil {
		return err
	}
	for t := range c.X.Shape[0] {
		if pos := integer(&c.Positions, t); pos < -1 {
			return bad(c.Op(), "positions", "-1 or more", "row %d: %d", t, pos)
		}
	}
	return nil
}

// ropeFreqs gives base^(-2i/R), stretched. Llama 3's rule keeps wavelengths below original/high_freq_factor, multiplies those above
// original/low_freq_factor by factor and goes from one to the other between them (Meta's llama-models, apply_scaling).
func ropeFreqs(freqs []float64, k ropeKey) []float64 {
	freqs = resize(freqs, k.rotary/2)
	for i := range freqs {
		f := math.Pow(k.base, -2*float64(i)/float64(k.rotary))
		switch s := k.scaling; {
		case s.LowFreqFactor != 0:
			turns := float64(s.OriginalContext) * f / (2 * math.Pi) // in the original context
			keep := min(max((turns-s.LowFreqFactor)/(s.HighFreqFactor-s.LowFreqFactor), 0), 1)
			f = (1-keep)*f/s.Factor + keep*f
		case s.Factor != 0:
			f /= s.Factor
		}
		freqs[i] = f
	}
	return freqs
}

func (r *ropeTask) run(s *scratch, item int) {
	c := r.c
	from, to := share(c.X.Shape[0], r.items, item)
	heads, d := c.X.Shape[1], c.X.Shape[2]
	n := len(r.freqs)
	s.reset()
	cos, sin, buf := s.floats(n), s.floats(n), s.floats(d)
	for t := from; t < to; t++ {
		pos := integer(&c.Positions, t)
		if pos >= 0 {
			for i, f := range r.freqs {
				if c.Factors.Valid() {
					f /= float64(*(*float32)(c.Factors.At(i)))
				}
				y, x := math.Sincos(float64(pos) * f)
				sin[i], cos[i] = float32(y), float32(x)
			}
		}
		for h := range heads {
			x := c.X.At(t*c.X.Stride[0] + h*c.X.Stride[1])
			out := c.Out.At((t*heads + h) * d)
			switch {
			case pos < 0:
				copy(slice[byte](out, d*c.X.DType.Size()), slice[byte](x, d*c.X.DType.Size()))
			case c.X.DType == attn.F32:
				rotate(slice[float32](out, d), slice[float32](x, d), cos, sin, c.Pairing)
			default:
				r.half(out, x, buf, cos, sin)
			}
		}
	}
}

func (r *ropeTask) half(out, x unsafe.Pointer, buf, cos, sin []float32) {
	dt := r.c.X.DType
	load(buf, dt, x)
	rotate(buf, buf, cos, sin, r.c.Pairing)
	store(out, dt, buf)
}

// rotate turns len(cos) pairs of x and copies the rest. out may be x.
func rotate(out, x, cos, sin []float32, pairing attn.Pairing) {
	n := len(cos)
	sin = sin[:n]
	if pairing == attn.Adjacent {
		for i, c := range cos {
			a, b := x[2*i], x[2*i+1]
			out[2*i], out[2*i+1] = a*c-b*sin[i], a*sin[i]+b*c
		}
	} else {
		lo, hi, outLo, outHi := x[:n], x[n:2*n], out[:n], out[n:2*n]
		for i, c := range cos {
			a, b := lo[i], hi[i]
			outLo[i], outHi[i] = a*c-b*sin[i], a*sin[i]+b*c
		}
	}
	copy(out[2*n:], x[2*n:])
}
