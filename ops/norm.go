package ops

import (
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/gaze-ml/gaze/internal/attn"
)

// RMSNorm is x / sqrt(mean(x²) + eps) · weight over the last dimension of x [T,H], float32, Float16 or BFloat16; weight [H] in
// x's dtype or float32; eps above 0. Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019.
func RMSNorm(x, weight *gorgonia.Node, eps float64) (*gorgonia.Node, error) {
	b := rmsNorm(x, weight, eps)
	b.output("out", nil, func(c *attn.RMSNormCall) *attn.Tensor { return &c.Out })
	return b.build()
}

// AddRMSNorm adds before it normalises: sum = x + residual, normed = RMSNorm(sum), all [T,H] of one dtype, as for [RMSNorm]. One pass instead
// of two.
func AddRMSNorm(x, residual, weight *gorgonia.Node, eps float64) (normed, sum *gorgonia.Node, err error) {
	b := rmsNorm(x, weight, eps)
	b.need(residual, field("residual", func(c *attn.RMSNormCall) *attn.Tensor { return &c.Residual }))
	b.output("out", nil, func(c *attn.RMSNormCall) *attn.Tensor { return &c.Out })
	b.output("sum", nil, func(c *attn.RMSNormCall) *attn.Tensor { return &c.Sum })
	if normed, err = b.build(); err != nil {
		return nil, nil, err
	}
	sum, err = project("sum", normed, 1)
	return normed, sum, err
}

func rmsNorm(x, weight *gorgonia.Node, eps float64) *builder[attn.RMSNormCall, *attn.RMSNormCall] {
	type C = attn.RMSNormCall
	var b builder[C, *C]
	b.proto.Eps = eps
	b.need(x, field("x", func(c *C) *attn.Tensor { return &c.X }))
	b.need(weight, field("weight", func(c *C) *attn.Tensor { return &c.Weight }))
	return &b
}

// RMSNormArgs holds the tensors of a direct call of [RMSNormalize], shaped as for [RMSNorm] and [AddRMSNorm].
type RMSNormArgs struct {
	X, Weight *tensor.Dense
	Residual  *tensor.Dense // optional
	Eps       float64
	Out       *tensor.Dense // required; may be X
	Sum       *tensor.Dense // required with Residual; may be Residual
}

// RMSNormalize is [RMSNorm], or [AddRMSNorm] where there is a residual, on tensors, now.
func RMSNormalize(a RMSNormArgs) error {
	c := attn.RMSNormCall{Eps: a.Eps}
	d := direct{op: c.Op()}
	d.need("x", a.X, &c.X)
	d.need("weight", a.Weight, &c.Weight)
	d.need("out", a.Out, &c.Out)
	if a.Residual != nil {
		d.need("residual", a.Residual, &c.Residual)
		d.need("sum", a.Sum, &c.Sum)
	} else if a.Sum != nil {
		d.errs = append(d.errs, attn.Errorf(ErrArgument, d.op, "sum", "a residual with it", "no residual"))
	}
	return d.run(&c)
}
