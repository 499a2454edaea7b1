package ops

import (
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/gaze-ml/gaze/internal/attn"
)

// MergeLSE joins attention over two disjoint sets of keys: outA and outB [T,H,D], float32, Float16 or BFloat16, with
// natural lseA and lseB [T,H] float32.
//
//	lse = ln(exp(lseA) + exp(lseB)),  out = outA·exp(lseA-lse) + outB·exp(lseB-lse)
//
// A sink must have entered one of the two only. Ye et al., "FlashInfer", 2025.
func MergeLSE(outA, lseA, outB, lseB *gorgonia.Node) (out, lse *gorgonia.Node, err error) {
	type C = attn.MergeLSECall
	var b builder[C, *C]
	b.need(outA, field("out_a", func(c *C) *attn.Tensor { return &c.OutA }))
	b.need(lseA, field("lse_a", func(c *C) *attn.Tensor { return &c.LSEA }))
	b.need(outB, field("out_b", func(c *C) *attn.Tensor { return &c.OutB }))
	b.need(lseB, field("lse_b", func(c *C) *attn.Tensor { return &c.LSEB }))
	b.output("out", nil, func(c *C) *attn.Tensor { return &c.Out })
	b.output("lse", nil, func(c *C) *attn.Tensor { return &c.LSE })
	if out, err = b.build(); err != nil {
		return nil, nil, err
	}
	lse, err = project("lse", out, 1)
	return out, lse, err
}

// MergeArgs holds the tensors of a direct call of [Merge], shaped as for [MergeLSE].
type MergeArgs struct {
	OutA, LSEA, OutB, LSEB *tensor.Dense
	Out, LSE               *tensor.Dense // required
}

// Merge is [MergeLSE] on tensors, now.
func Merge(a MergeArgs) error {
	var c attn.MergeLSECall
	d := direct{op: c.Op()}
	d.need("out_a", a.OutA, &c.OutA)
	d.need("lse_a", a.LSEA, &c.LSEA)
	d.need("out_b", a.OutB, &c.OutB)
	d.need("lse_b", a.LSEB, &c.LSEB)
	d.need("out", a.Out, &c.Out)
	d.need("lse", a.LSE, &c.LSE)
	return d.run(&c)
}
