package cudaops

import "github.com/gaze-ml/gaze/internal/attn"

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
	return launch(rt, k, c, ceil(c.Weight.Shape[0], tileOut), ceil(c.X.Shape[0], tileRows), true, p)
}

func ceil(n, by int) int { return (n + by - 1) / by }

// Argmax writes the index of the largest element of each row, the first among equals; NaN counts as less than everything.
//
//	x    [T,V] float32, float16 or bfloat16, rows contiguous, V ≥ 1
//	out  [T] int32
func (b *Backend) Argmax(x, out attn.Tensor) error {
	const op = "argmax"
	rt := b.rt
	err := rt.enter(op)
	defer rt.mu.Unlock()
	if err != nil {
		return err
	}
	if x.Rank != 2 || x.Shape[1] < 1 || x.Stride[1] != 1 && x.Shape[1] > 1 {
		return attn.Errorf(attn.ErrShape, op, "x", "[T, V] with V of 1 or more and stride 1", "%v", x.String())
	}
	if out.DType != attn.I32 || out.Rank != 1 || out.Shape[0] != x.Shape[0] || !out.Packed() {
		return attn.Errorf(attn.ErrShape, op, "out", "a contiguous int32[T] with T of x", "%v", out.String())
	}
	k := rt.choices.best[key{Op: op, A: x.DType}]
	if k == nil {
		return attn.Errorf(attn.ErrUnsupported, op, "x", "float32, float16 or bfloat16", "%v", x.DType)
	}
	at := binding{rt: rt, op: op}
	p := &rt.frame.argmax
	*p = argmaxParams{X: at.need("x", &x), Out: at.need("out", &out), XRow: int64(x.Stride[0]), Rows: int64(x.Shape[0]), Columns: int64(x.Shape[1])}
	if at.err != nil || x.Shape[0] == 0 {
		return at.err
	}
	return launch(rt, k, nil, rt.blocks(x.Shape[0], 1), 1, true, p)
}
