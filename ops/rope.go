package ops

import (
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/gaze-ml/gaze/internal/attn"
)

// Pairing says which elements of a head [RoPE] turns together.
type Pairing = attn.Pairing

// The pairings.
const (
	HalfSplit = attn.HalfSplit // i with i+R/2: GPT-NeoX, Hugging Face's Llama weights
	Adjacent  = attn.Adjacent  // 2i with 2i+1: the paper, GGUF files of architecture llama
)

// RoPEScaling stretches RoPE for longer contexts. Its fields are the float64s Factor, LowFreqFactor and HighFreqFactor and the
// int OriginalContext, in tokens. With Factor alone every frequency is divided by it; with LowFreqFactor set it is Llama 3's
// rule. The zero value does nothing.
type RoPEScaling = attn.RoPEScaling

var onRoPE = []string{"rope", "append_kv"}

// WithPairing chooses the pairs, HalfSplit by default.
func WithPairing(p Pairing) Option {
	return scalar("pairing", onRoPE, func(s *settings) { s.rope.Pairing = p })
}

// WithRoPEScaling stretches the wavelengths, linearly or as Llama 3 does: see [RoPEScaling]. None by default.
func WithRoPEScaling(sc RoPEScaling) Option {
	return scalar("scaling", onRoPE, func(s *settings) { s.rope.Scaling = sc })
}

// WithRotaryDim turns only the first r elements of a head; all by default.
func WithRotaryDim(r int) Option {
	return scalar("rotary_dim", onRoPE, func(s *settings) {
		if s.rope.RotaryDim = r; r == 0 { // the call reads 0 as not given
			s.refuse("rotary_dim", "2 or more", "0")
		}
	})
}

// WithRoPEFactors divides frequency i by factors[i], [R/2] float32, GGUF's rope_freqs.weight.
func WithRoPEFactors(n *gorgonia.Node) Option {
	return node("factors", n, onRoPE, func(s *settings) **gorgonia.Node { return &s.factors })
}

// RoPE rotates the pairs of every head of x [T,H,D], float32, Float16 or BFloat16, by positions[t]·base^(-2i/R), R = D or
// [WithRotaryDim]'s; positions [T] int32, where -1 leaves the row as it is and less is an error, found as for [BatchDecode]. Su et al.,
// "RoFormer", 2021.
func RoPE(x, positions *gorgonia.Node, base float64, opts ...Option) (*gorgonia.Node, error) {
	type C = attn.RoPECall
	s, err := settle("rope", opts)
	if err != nil {
		return nil, err
	}
	var b builder[C, *C]
	b.proto = s.rope
	b.proto.Base = base
	b.need(x, field("x", func(c *C) *attn.Tensor { return &c.X }))
	b.need(positions, field("positions", func(c *C) *attn.Tensor { return &c.Positions }))
	b.may(s.factors, field("factors", func(c *C) *attn.Tensor { return &c.Factors }))
	b.output("out", nil, func(c *C) *attn.Tensor { return &c.Out })
	return b.build()
}

// RoPEArgs holds the tensors of a direct call of [Rotate], shaped as for [RoPE].
type RoPEArgs struct {
	X, Positions *tensor.Dense
	Factors      *tensor.Dense // optional
	Base         float64
	Out          *tensor.Dense // required; may be X
}

// Rotate is [RoPE] on tensors, now.
func Rotate(a RoPEArgs, opts ...Option) error {
	s, err := settleDirect("rope", opts)
	if err != nil {
		return err
	}
	c := s.rope
	c.Base = a.Base
	d := direct{op: c.Op()}
	d.need("x", a.X, &c.X)
	d.need("positions", a.Positions, &c.Positions)
	d.may("factors", a.Factors, &c.Factors)
	d.need("out", a.Out, &c.Out)
	return d.run(&c)
}
