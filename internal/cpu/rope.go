package cpu

import (
	"math"
	"slices"
	"unsafe"

	"github.com/gaze-ml/gaze/internal/attn"
	"github.com/gaze-ml/gaze/internal/simd"
)

// ropeTask rotates heads, a share of the tokens an item. The sines and cosines are kept: all layers of a model ask for the same.
type ropeTask struct {
	c     *attn.RoPECall
	items int
	turns turns
}

// turns is a table of sines and cosines, and what it was made for.
type turns struct {
	base      float64
	rotary    int
	scaling   attn.RoPEScaling
	factors   []float32 // [R/2], or none
	positions []int32   // [T]

	freqs    []float64 // [R/2] radians a token
	cos, sin []float32 // [T, R/2]
	items    int
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
	if r.turns.prepare(c) {
		cost := 64 * c.Rotary() / 2
		r.turns.items = b.pieces(t, cost)
		if err := b.loop(c.Op(), &r.turns, r.turns.items, t*cost, &f.scratch); err != nil {
			r.turns.positions = r.turns.positions[:0]
			return err
		}
	}
	cost := 4 * c.X.Shape[1] * c.X.Shape[2]
	r.c, r.items = c, b.pieces(t, cost)
	defer func() { r.c = nil }()
	return b.loop(c.Op(), r, r.items, t*cost, &f.scratch)
}

// prepare makes room for a call's table and tells whether its rows have to be computed.
func (r *turns) prepare(c *attn.RoPECall) bool {
	n, positions := c.Rotary()/2, slice[int32](c.Positions.Ptr, c.X.Shape[0])
	var factors []float32
	if c.Factors.Valid() {
		factors = f32(&c.Factors, 0, n)
	}
	if c.Base == r.base && c.Rotary() == r.rotary && c.Scaling == r.scaling && slices.Equal(factors, r.factors) {
		if slices.Equal(positions, r.positions) {
			return false
		}
	} else {
		r.base, r.rotary, r.scaling = c.Base, c.Rotary(), c.Scaling
		r.factors = append(r.factors[:0], factors...)
		r.freqs = ropeFreqs(r.freqs, c, factors)
	}
	r.positions = append(r.positions[:0], positions...)
	r.cos, r.sin = resize(r.cos, len(positions)*n), resize(r.sin, len(positions)*n)
	return true
}

func (r *turns) run(_ *scratch, item int) {
	n := len(r.freqs)
	from, to := share(len(r.positions), r.items, item)
	for t := from; t < to; t++ {
		cos, sin := r.cos[t*n:][:n], r.sin[t*n:][:n]
		for i, f := range r.freqs {
			y, x := math.Sincos(float64(r.positions[t]) * f)
			sin[i], cos[i] = float32(y), float32(x)
		}
	}
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
func ropeFreqs(freqs []float64, c *attn.RoPECall, factors []float32) []float64 {
	freqs = resize(freqs, c.Rotary()/2)
	for i := range freqs {
		f := math.Pow(c.Base, -2*float64(i)/float64(c.Rotary()))
		switch s := c.Scaling; {
		case s.LowFreqFactor != 0:
			turns := float64(s.OriginalContext) * f / (2 * math.Pi) // in the original context
			keep := min(max((turns-s.LowFreqFactor)/(s.HighFreqFactor-s.LowFreqFactor), 0), 1)
			f = (1-keep)*f/s.Factor + keep*f
		case s.Factor != 0:
			f /= s.Factor
		}
		if len(factors) != 0 {
			f /= float64(factors[i])
		}
		freqs[i] = f
	}
	return freqs
}

func (r *ropeTask) run(s *scratch, item int) {
	c := r.c
	from, to := share(c.X.Shape[0], r.items, item)
	heads, d := c.X.Shape[1], c.X.Shape[2]
	n := len(r.turns.freqs)
	s.reset()
	buf := s.floats(d)
	for t := from; t < to; t++ {
		pos := r.turns.positions[t]
		cos, sin := r.turns.cos[t*n:][:n], r.turns.sin[t*n:][:n]
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
	if pairing == attn.Adjacent {
		simd.RotateAdjacent(out, x, cos, sin)
	} else {
		simd.RotateHalves(out, x, cos, sin)
	}
	copy(out[2*len(cos):], x[2*len(cos):])
}
