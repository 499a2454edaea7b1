package ops

import (
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/gaze-ml/gaze/internal/attn"
)

// Argmax is the index of each row's largest element, [T] int32, of x [T,V], float32, Float16 or BFloat16: the greedy choice of a token.
// The first among equals wins, and NaN counts as less than everything.
func Argmax(x *gorgonia.Node) (*gorgonia.Node, error) {
	type C = attn.ArgmaxCall
	var b builder[C, *C]
	b.need(x, field("x", func(c *C) *attn.Tensor { return &c.X }))
	b.output("out", nil, func(c *C) *attn.Tensor { return &c.Out })
	return b.build()
}

// Greedy is [Argmax] on tensors, now.
func Greedy(x, out *tensor.Dense) error {
	var c attn.ArgmaxCall
	d := direct{op: c.Op()}
	d.need("x", x, &c.X)
	d.need("out", out, &c.Out)
	return d.run(&c)
}
