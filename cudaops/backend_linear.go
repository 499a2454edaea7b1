package cudaops

import (
	"github.com/gaze-ml/gaze/cudaops/internal/driver"
	"github.com/gaze-ml/gaze/internal/attn"
)

// Linear is x·Wᵀ + bias, through cuBLASLt where that is installed and takes the call, else by a plain kernel.
func (b *Backend) Linear(c *attn.LinearCall) error {
	rt := b.rt
	k, err := rt.start(c)
	defer rt.mu.Unlock()
	if err != nil {
		return err
	}
	at := binding{rt: rt, op: c.Op()}
	p := &rt.frame.linear
	*p = linearParams{
		X: at.need("x", &c.X), Weight: at.need("weight", &c.Weight), Bias: at.may("bias", &c.Bias), Out: at.need("out", &c.Out),
		XRow: int64(c.X.Stride[0]), WeightRow: int64(c.Weight.Stride[0]), Rows: int64(c.X.Shape[0]), In: int32(c.X.Shape[1]),
		OutDim: int32(c.Weight.Shape[0]),
	}
	if c.Bias.DType == attn.F32 && c.X.DType != attn.F32 {
		p.BiasF32 = 1
	}
	if at.err != nil || c.Out.Len() == 0 {
		return at.err
	}
	if done, err := rt.product(c, p); done || err != nil {
		return err
	}
	if k.Variant == small {
		const rowsOfWeight = 8
		return launch(rt, k, c, ceil(c.Weight.Shape[0], rowsOfWeight), 1, true, p)
	}
	const tileOut, tileRows = 128, 64
	x, out, size := p.X, p.Out, c.X.DType.Size()
	return slabs(c.X.Shape[0], tileRows, func(first, n int) error {
		p.X, p.Out, p.Rows = x+driver.Addr(first*c.X.Stride[0]*size), out+driver.Addr(first*c.Out.Stride[0]*size), int64(n)
		return launch(rt, k, c, ceil(c.Weight.Shape[0], tileOut), ceil(n, tileRows), true, p)
	})
}

func ceil(n, by int) int { return (n + by - 1) / by }

// Argmax gives the index of the largest element of each row.
func (b *Backend) Argmax(c *attn.ArgmaxCall) error {
	rt := b.rt
	k, err := rt.start(c)
	defer rt.mu.Unlock()
	if err != nil {
		return err
	}
	at := binding{rt: rt, op: c.Op()}
	p := &rt.frame.argmax
	*p = argmaxParams{X: at.need("x", &c.X), Out: at.need("out", &c.Out), XRow: int64(c.X.Stride[0]), Rows: int64(c.X.Shape[0]), Columns: int64(c.X.Shape[1])}
	if at.err != nil || c.X.Shape[0] == 0 {
		return at.err
	}
	return launch(rt, k, c, rt.blocks(c.X.Shape[0], 1), 1, true, p)
}
