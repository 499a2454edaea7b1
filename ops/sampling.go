package ops

import (
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/gaze-ml/gaze/internal/attn"
)

// Softmax gives the probabilities [T,V] float32 of logits [T,V], float32, Float16 or BFloat16: exp(logit/temperature) over the row's sum
// of them, FlashInfer's sampling.softmax. A row of nothing but -Inf, which allows no token, gives 0 everywhere; NaN or +Inf in a row makes
// all of that row NaN.
func Softmax(logits *gorgonia.Node, opts ...Option) (*gorgonia.Node, error) {
	type C = attn.SoftmaxCall
	s, err := settle("softmax", opts)
	if err != nil {
		return nil, err
	}
	var b builder[C, *C]
	b.proto = s.softmax
	b.need(logits, field("logits", func(c *C) *attn.Tensor { return &c.Logits }))
	b.output("out", nil, func(c *C) *attn.Tensor { return &c.Out })
	return b.build()
}

// WithTemperature divides the logits: temperature, above 0, 1 by default.
func WithTemperature(x float64) Option {
	return scalar("temperature", []string{"softmax"}, func(s *settings) { s.softmax.Temperature = x })
}

// Probabilities is [Softmax] on tensors, now. out may be logits.
func Probabilities(logits, out *tensor.Dense, opts ...Option) error {
	s, err := settleDirect("softmax", opts)
	if err != nil {
		return err
	}
	c := s.softmax
	d := direct{op: c.Op()}
	d.need("logits", logits, &c.Logits)
	d.need("out", out, &c.Out)
	return d.run(&c)
}

// TopK gives the k largest logits of each row in descending order, values [T,k] float32, and their columns, indices [T,k] int32; logits
// [T,V] float32, Float16 or BFloat16, k from 1 to V: FlashInfer's top_k. Of equal ones the lower column comes first, and NaN counts as less
// than everything, as in [Argmax].
func TopK(logits *gorgonia.Node, k int) (values, indices *gorgonia.Node, err error) {
	type C = attn.TopKCall
	var b builder[C, *C]
	b.proto.K = k
	b.need(logits, field("logits", func(c *C) *attn.Tensor { return &c.Logits }))
	b.output("values", nil, func(c *C) *attn.Tensor { return &c.Values })
	b.output("indices", nil, func(c *C) *attn.Tensor { return &c.Indices })
	if values, err = b.build(); err != nil {
		return nil, nil, err
	}
	indices, err = project("indices", values, 1)
	return values, indices, err
}

// Largest is [TopK] on tensors, now; k is the number of values' columns.
func Largest(logits, values, indices *tensor.Dense) error {
	var c attn.TopKCall
	d := direct{op: c.Op()}
	d.need("logits", logits, &c.Logits)
	d.need("values", values, &c.Values)
	d.need("indices", indices, &c.Indices)
	if c.Values.Rank == 2 {
		c.K = c.Values.Shape[1]
	}
	return d.run(&c)
}
