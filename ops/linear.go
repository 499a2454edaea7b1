package ops

import (
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/gaze-ml/gaze/internal/attn"
)

// WithBias adds bias [out], in x's dtype or float32.
func WithBias(n *gorgonia.Node) Option {
	return node("bias", n, []string{"linear"}, func(s *settings) **gorgonia.Node { return &s.bias })
}

// Linear is x·wᵀ: x [T,in] in float32, Float16 or BFloat16, w [out,in] in those, or [out,in/32] or [out,in/256] blocks of a GGUF
// format. The output is [T,out] in x's dtype. Sums are float32 and activations are never quantised.
func Linear(x, w *gorgonia.Node, opts ...Option) (*gorgonia.Node, error) {
	type C = attn.LinearCall
	s, err := settle("linear", opts)
	if err != nil {
		return nil, err
	}
	var b builder[C, *C]
	b.need(x, field("x", func(c *C) *attn.Tensor { return &c.X }))
	b.need(w, field("weight", func(c *C) *attn.Tensor { return &c.Weight }))
	b.may(s.bias, field("bias", func(c *C) *attn.Tensor { return &c.Bias }))
	b.output("out", nil, func(c *C) *attn.Tensor { return &c.Out })
	return b.build()
}

// LinearArgs holds the tensors of a direct call of [Project], shaped as for [Linear].
type LinearArgs struct {
	X, Weight *tensor.Dense
	Bias      *tensor.Dense // optional
	Out       *tensor.Dense // required
}

// Project is [Linear] on tensors, now.
func Project(a LinearArgs) error {
	var c attn.LinearCall
	d := direct{op: c.Op()}
	d.need("x", a.X, &c.X)
	d.need("weight", a.Weight, &c.Weight)
	d.may("bias", a.Bias, &c.Bias)
	d.need("out", a.Out, &c.Out)
	return d.run(&c)
}
