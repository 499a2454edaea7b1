package cpu

import (
	"math"
	"slices"
	"unsafe"

	"github.com/gaze-ml/gaze/internal/attn"
	"github.com/gaze-ml/gaze/internal/simd"
)

// ropeTask rotates heads, a share of the tokens an item.
type ropeTask struct {
	c     *attn.RoPECall
	items int
	turns turns
}

// turns is a table of sines and cosines, and what it was made for. It is kept: all layers of a model ask for the same.
type turns struct {
	config    attn.RoPEConfig
	rotary    int
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
	t, d := c.X.Shape[0], c.X.Shape[2]
	if err := r.turns.prepare(b, c.Op(), &c.RoPEConfig, d, &c.Factors, slice[int32](c.Positions.Ptr, t), &f.scratch); err != nil {
		return err
	}
	cost := 4 * c.X.Shape[1] * d
	r.c, r.items = c, b.pieces(t, cost)
	defer func() { r.c = nil }()
	return b.loop(c.Op(), r, r.items, t*cost, &f.scratch)
}

// prepare makes the table for rows at these positions of heads of size d, unless it is that already.
func (r *turns) prepare(b *Backend, op string, c *attn.RoPEConfig, d int, factors *attn.Tensor, positions []int32, s *scratch) error {
	n := c.Rotary(d) / 2
	var over []float32
	if factors.Valid() {
		over = f32(factors, 0, n)
	}
	if *c == r.config && 2*n == r.rotary && slices.Equal(over, r.factors) {
		if slices.Equal(positions, r.positions) {
			return nil
		}
	} else {
		r.config, r.rotary = *c, 2*n
		r.factors = append(r.factors[:0], over...)
		r.freqs = resize(r.freqs, n)
		for i := range r.freqs {
			r.freqs[i] = c.Frequency(i, d)
			if len(over) > 0 {
				r.freqs[i] /= float64(over[i])
			}
		}
	}
	r.positions = append(r.positions[:0], positions...)
	r.cos, r.sin = resize(r.cos, len(positions)*n), resize(r.sin, len(positions)*n)
	cost := 64 * n
	r.items = b.pieces(len(positions), cost)
	err := b.loop(op, r, r.items, len(positions)*cost, s)
	if err != nil {
		r.positions = r.positions[:0]
	}
	return err
}

// of gives the cosines and sines of row t.
func (r *turns) of(t int) (cos, sin []float32) {
	n := len(r.freqs)
	return r.cos[t*n:][:n], r.sin[t*n:][:n]
}

func (r *turns) run(_ *scratch, item int) {
	from, to := share(len(r.positions), r.items, item)
	for t := from; t < to; t++ {
		cos, sin := r.of(t)
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

func (r *ropeTask) run(s *scratch, item int) {
	c := r.c
	from, to := share(c.X.Shape[0], r.items, item)
	heads, d := c.X.Shape[1], c.X.Shape[2]
	s.reset()
	buf := s.floats(d)
	for t := from; t < to; t++ {
		pos := r.turns.positions[t]
		cos, sin := r.turns.of(t)
		for h := range heads {
			x := c.X.At(t*c.X.Stride[0] + h*c.X.Stride[1])
			out := c.Out.At((t*heads + h) * d)
			if pos < 0 {
				copy(slice[byte](out, d*c.X.DType.Size()), slice[byte](x, d*c.X.DType.Size()))
			} else {
				turnRow(out, x, c.X.DType, buf, cos, sin, c.Pairing)
			}
		}
	}
}

// turnRow turns one head of a float dtype; buf has room for it.
func turnRow(out, x unsafe.Pointer, dt attn.DType, buf, cos, sin []float32, pairing attn.Pairing) {
	if dt == attn.F32 {
		rotate(slice[float32](out, len(buf)), slice[float32](x, len(buf)), cos, sin, pairing)
		return
	}
	load(buf, dt, x)
	rotate(buf, buf, cos, sin, pairing)
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
