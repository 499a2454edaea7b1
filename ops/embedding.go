package ops

import (
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/gaze-ml/gaze/internal/attn"
)

// Embedding gathers the rows ids [T] int32 of w [V,H], or of blocks [V,H/32] or [V,H/256]: [T,H] in w's dtype, float32 for
// blocks, or what [WithOutDType] says. An id outside [0,V) is refused when it runs.
func Embedding(ids, w *gorgonia.Node, opts ...Option) (*gorgonia.Node, error) {
	type C = attn.EmbeddingCall
	s, err := settle("embedding", opts)
	if err != nil {
		return nil, err
	}
	var b builder[C, *C]
	b.proto = s.embed
	b.need(ids, field("ids", func(c *C) *attn.Tensor { return &c.IDs }))
	b.need(w, field("weight", func(c *C) *attn.Tensor { return &c.Weight }))
	b.output("out", nil, func(c *C) *attn.Tensor { return &c.Out })
	return b.build()
}

// Embed is [Embedding] on tensors, now; out says the dtype.
func Embed(ids, w, out *tensor.Dense) error {
	var c attn.EmbeddingCall
	d := direct{op: c.Op()}
	d.need("ids", ids, &c.IDs)
	d.need("weight", w, &c.Weight)
	d.need("out", out, &c.Out)
	return d.run(&c)
}
