package ops

import (
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/gaze-ml/gaze/internal/attn"
)

// SiLUMul is gate·sigmoid(gate)·up, all [T,I] of one dtype, float32, Float16 or BFloat16: the gate of Llama's MLP. Shazeer, "GLU
// Variants Improve Transformer", 2020.
func SiLUMul(gate, up *gorgonia.Node) (*gorgonia.Node, error) {
	type C = attn.SiLUMulCall
	var b builder[C, *C]
	b.need(gate, field("gate", func(c *C) *attn.Tensor { return &c.Gate }))
	b.need(up, field("up", func(c *C) *attn.Tensor { return &c.Up }))
	b.output("out", nil, func(c *C) *attn.Tensor { return &c.Out })
	return b.build()
}

// Gate is [SiLUMul] on tensors, now. out may be gate or up.
func Gate(gate, up, out *tensor.Dense) error {
	var c attn.SiLUMulCall
	d := direct{op: c.Op()}
	d.need("gate", gate, &c.Gate)
	d.need("up", up, &c.Up)
	d.need("out", out, &c.Out)
	return d.run(&c)
}
