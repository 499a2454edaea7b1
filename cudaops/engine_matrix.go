package cudaops

import (
	"gorgonia.org/tensor"

	"github.com/gaze-ml/gaze/cudaops/internal/driver"
	"github.com/gaze-ml/gaze/internal/attn"
	"github.com/gaze-ml/gaze/ops"
)

// MatMul is out = a·b for float32 [M,K] and [K,N], views included: a transposed one (tensor.Dense.T) costs no copy.
func (e *Engine) MatMul(a, b, out tensor.Tensor) error { return e.product("matmul", a, b, out, 2) }

// MatVecMul is out = a·b for float32 [M,K] and [K].
func (e *Engine) MatVecMul(a, b, out tensor.Tensor) error {
	return e.product("matvecmul", a, b, out, 1)
}

func (e *Engine) product(op string, a, b, out tensor.Tensor, rankB int) error {
	err := e.rt.enter(op)
	defer e.rt.mu.Unlock()
	if err != nil {
		return err
	}
	x, err := e.operand(op, "a", a)
	if err != nil {
		return err
	}
	y, err := e.operand(op, "b", b)
	if err != nil {
		return err
	}
	if err := e.adopt(op, out); err != nil {
		return err
	}
	z, err := e.operand(op, "out", out)
	if err != nil {
		return err
	}
	if rankB == 1 {
		y, z = column(y), column(z)
	}
	for _, m := range []struct {
		arg        string
		t          *attn.Tensor
		rows, cols int
	}{{"a", &x, x.Shape[0], x.Shape[1]}, {"b", &y, x.Shape[1], y.Shape[1]}, {"out", &z, x.Shape[0], y.Shape[1]}} {
		if m.t.Rank != 2 || m.t.Shape[0] != m.rows || m.t.Shape[1] != m.cols {
			return attn.Errorf(attn.ErrShape, op, m.arg, "matrices [M,K], [K,N] and [M,N]", "%v", m.t.String())
		}
	}
	if z.Stride[1] != 1 && z.Shape[1] > 1 {
		return attn.Errorf(attn.ErrShape, op, "out", "stride 1 in the last dimension", "strides %v", z.Stride[:2])
	}
	k := e.rt.choices.of(key{Op: opMatMul, A: attn.F32})
	if k == nil {
		return e.unsupported(op, "a matmul kernel", "a build without one")
	}
	if z.Len() == 0 {
		return nil
	}
	p := &e.rt.frame.matmul
	*p = matMulParams{
		B: driver.Of(y.Ptr), ARow: int64(x.Stride[0]), ACol: int64(x.Stride[1]), BRow: int64(y.Stride[0]), BCol: int64(y.Stride[1]),
		CRow: int64(z.Stride[0]), N: int64(y.Shape[1]), K: int64(x.Shape[1]),
	}
	const tile = 64
	return slabs(x.Shape[0], tile, func(first, n int) error {
		p.A, p.C, p.M = driver.Of(x.At(first*x.Stride[0])), driver.Of(z.At(first*z.Stride[0])), int64(n)
		return launch(e.rt, k, nil, ceil(y.Shape[1], tile), ceil(n, tile), true, p)
	})
}

// column is a vector as a matrix of one column.
func column(v attn.Tensor) attn.Tensor {
	if v.Rank == 1 {
		v.Rank, v.Shape[1], v.Stride[1] = 2, 1, 1
	}
	return v
}

// Transpose moves the elements of t, whose shape and strides are the transposed ones already, to where strides of a contiguous tensor
// look for them. Package tensor drops the error, so it also shows at the next call that waits.
func (e *Engine) Transpose(t tensor.Tensor, _ []int) error {
	err := e.rt.enter("transpose")
	defer e.rt.mu.Unlock()
	if err == nil {
		err = e.transpose(t)
	}
	e.rt.later(err)
	return err
}

func (e *Engine) transpose(t tensor.Tensor) error {
	const op = "transpose"
	rt := e.rt
	d, ok := t.(*tensor.Dense)
	if !ok {
		return attn.Errorf(attn.ErrArgument, op, "t", "a *tensor.Dense", "%T", t)
	}
	x, err := ops.View(op, "t", d)
	if err != nil {
		return err
	}
	n, err := span(op, "t", &x)
	if err != nil {
		return err
	}
	if err := rt.own(op, "t", driver.Of(x.Ptr), n); err != nil || n == 0 {
		return err
	}
	size := x.DType.Size()
	k := rt.choices.of(key{Op: opCopy, Size: size})
	if k == nil {
		return e.unsupported(op, "elements of 1, 2, 4 or 8 bytes, in a build with a copy kernel", "%v", x.DType)
	}
	packed := attn.Of(x.DType, x.Shape[:x.Rank]...)
	to, err := e.scratch(packed.Bytes())
	if err != nil {
		return err
	}
	p := &rt.frame.copy
	*p = copyParams{X: driver.Of(x.Ptr), Out: to}
	if !collapse(&p.Shape, []*attn.Tensor{&x, &packed}, []*[4]int64{&p.XStride, &p.OutStride}) {
		return e.unsupported(op, "views of at most 4 dimensions that don't join", "%v", x.String())
	}
	if err := launch(rt, k, nil, rt.blocks(x.Len(), elementsPerBlock), 1, true, p); err != nil {
		return err
	}
	return rt.fail(op, rt.ctx.OnDevice(driver.Of(x.Ptr), to, packed.Bytes()))
}
