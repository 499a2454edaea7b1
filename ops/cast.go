package ops

import (
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/gaze-ml/gaze/internal/attn"
)

// Cast copies x, float32, Float16, BFloat16 or Float8E4M3 of any shape and contiguous, to another of these dtypes, rounded once, to
// nearest even. What is beyond Float16's range becomes infinite, what is beyond Float8E4M3's becomes ±448, and NaN stays NaN.
//
// There is no scale. For a query of x/scale, fold 1/scale into the layer before, such as a Linear's weight, and scale into
// [WithBMM1Scale] of [BatchDecode] or q of [WithScales] of [BatchPrefill].
func Cast(x *gorgonia.Node, dt tensor.Dtype) (*gorgonia.Node, error) {
	type C = attn.CastCall
	var b builder[C, *C]
	b.proto.OutDType = DTypeOf(dt)
	b.need(x, field("x", func(c *C) *attn.Tensor { return &c.X }))
	b.output("out", nil, func(c *C) *attn.Tensor { return &c.Out })
	return b.build()
}

// CastTo is [Cast] on tensors, now; out says the dtype.
func CastTo(x, out *tensor.Dense) error {
	var c attn.CastCall
	d := direct{op: c.Op()}
	d.need("x", x, &c.X)
	d.need("out", out, &c.Out)
	return d.run(&c)
}
