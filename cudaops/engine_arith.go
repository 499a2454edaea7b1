package cudaops

import (
	"encoding/binary"
	"math"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/gaze-ml/gaze/cudaops/internal/driver"
	"github.com/gaze-ml/gaze/internal/attn"
	"github.com/gaze-ml/gaze/ops"
)

// binaryParams.Op, enum BinaryOp of params.h.
const (
	binaryAdd = iota
	binarySub
	binaryMul
	binaryDiv
)

// Add is a + b, elementwise. Options: WithReuse, UseUnsafe (into a).
func (e *Engine) Add(a, b tensor.Tensor, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
	return e.elementwise("add", binaryAdd, a, b, opts)
}

// Sub is a - b.
func (e *Engine) Sub(a, b tensor.Tensor, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
	return e.elementwise("sub", binarySub, a, b, opts)
}

// Mul is a · b, elementwise.
func (e *Engine) Mul(a, b tensor.Tensor, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
	return e.elementwise("mul", binaryMul, a, b, opts)
}

// Div is a / b.
func (e *Engine) Div(a, b tensor.Tensor, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
	return e.elementwise("div", binaryDiv, a, b, opts)
}

// AddScalar is t + s with s a float32, one of Gorgonia's scalars, or a tensor of one element on the device or the host.
func (e *Engine) AddScalar(t tensor.Tensor, s any, left bool, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
	return e.withScalar("add", binaryAdd, t, s, left, opts)
}

// SubScalar is t - s, or s - t where left is false.
func (e *Engine) SubScalar(t tensor.Tensor, s any, left bool, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
	return e.withScalar("sub", binarySub, t, s, left, opts)
}

// MulScalar is t · s.
func (e *Engine) MulScalar(t tensor.Tensor, s any, left bool, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
	return e.withScalar("mul", binaryMul, t, s, left, opts)
}

// DivScalar is t / s, or s / t where left is false.
func (e *Engine) DivScalar(t tensor.Tensor, s any, left bool, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
	return e.withScalar("div", binaryDiv, t, s, left, opts)
}

func (e *Engine) elementwise(op string, which int32, a, b tensor.Tensor, opts []tensor.FuncOpt) (tensor.Tensor, error) {
	err := e.rt.enter(op)
	defer e.rt.mu.Unlock()
	if err != nil {
		return nil, err
	}
	x, err := e.operand(op, "a", a)
	if err != nil {
		return nil, err
	}
	y, err := e.operand(op, "b", b)
	if err != nil {
		return nil, err
	}
	if x.Rank != y.Rank || x.Shape != y.Shape {
		return nil, attn.Errorf(attn.ErrShape, op, "b", x.String()+" as a is", "%v", y.String())
	}
	return e.binary(op, which, a.(*tensor.Dense), &x, &y, &x, opts)
}

func (e *Engine) withScalar(op string, which int32, t tensor.Tensor, s any, left bool, opts []tensor.FuncOpt) (tensor.Tensor, error) {
	err := e.rt.enter(op)
	defer e.rt.mu.Unlock()
	if err != nil {
		return nil, err
	}
	x, err := e.operand(op, "t", t)
	if err != nil {
		return nil, err
	}
	at, err := e.scalar(op, s)
	if err != nil {
		return nil, err
	}
	y := x
	y.Ptr, y.Stride = at.Pointer(), [attn.MaxRank]int{}
	if left {
		return e.binary(op, which, t.(*tensor.Dense), &x, &y, &x, opts)
	}
	return e.binary(op, which, t.(*tensor.Dense), &y, &x, &x, opts)
}

// scalar is the address of one float32: where a device tensor has it, or scratch with the value.
func (e *Engine) scalar(op string, s any) (driver.Addr, error) {
	v, ok := s.(float32)
	if !ok {
		value, ok := s.(gorgonia.Value)
		if !ok {
			return 0, attn.Errorf(attn.ErrDType, op, "scalar", "float32", "%T", s)
		}
		t, err := ops.View(op, "scalar", value)
		switch {
		case err != nil:
			return 0, err
		case t.DType != attn.F32:
			return 0, attn.Errorf(attn.ErrDType, op, "scalar", "float32", "%v", t.DType)
		case t.Len() != 1:
			return 0, attn.Errorf(attn.ErrShape, op, "scalar", "one element", "%v", t.String())
		case !e.rt.ctx.OnHost(t.Ptr):
			return driver.Of(t.Ptr), e.rt.own(op, "scalar", driver.Of(t.Ptr), 4)
		}
		v = math.Float32frombits(binary.LittleEndian.Uint32(driver.Host(t.Ptr, 4)))
	}
	a, err := e.scratch(4)
	if err != nil {
		return 0, err
	}
	return a, e.rt.fillWords(op, a, 1, math.Float32bits(v))
}

// binary launches one elementwise kernel: a op b into a tensor like the operand of which t is the header.
func (e *Engine) binary(op string, which int32, t *tensor.Dense, a, b, like *attn.Tensor, opts []tensor.FuncOpt) (tensor.Tensor, error) {
	out, err := e.result(op, t, like, opts)
	if err != nil {
		return nil, err
	}
	o, err := ops.View(op, "out", out)
	if err != nil {
		return nil, err
	}
	k := e.rt.choices.of(key{Op: opBinary, A: attn.F32})
	if k == nil {
		return nil, e.unsupported(op, "an elementwise kernel", "a build without one")
	}
	p := &e.rt.frame.binary
	*p = binaryParams{A: driver.Of(a.Ptr), B: driver.Of(b.Ptr), Out: driver.Of(o.Ptr), Op: which}
	if a.Packed() && b.Packed() && o.Packed() {
		p.Contiguous = 1
	}
	if !collapse(&p.Shape, []*attn.Tensor{a, b, &o}, []*[4]int64{&p.AStride, &p.BStride, &p.OutStride}) {
		return nil, e.unsupported(op, "views of at most 4 dimensions that don't join", "%v", a.String())
	}
	if o.Len() == 0 {
		return out, nil
	}
	return out, launch(e.rt, k, nil, e.rt.blocks(o.Len(), elementsPerBlock), 1, true, p)
}

// result is where an elementwise op writes: the reused tensor, the first operand, or a new one.
func (e *Engine) result(op string, t *tensor.Dense, like *attn.Tensor, opts []tensor.FuncOpt) (*tensor.Dense, error) {
	fo := tensor.ParseFuncOpts(opts...)
	switch {
	case fo.Incr() != nil:
		return nil, e.unsupported(op, "no WithIncr", "WithIncr")
	case fo.Reuse() != nil:
		r, ok := fo.Reuse().(*tensor.Dense)
		if !ok || r.Dtype() != tensor.Float32 || r.Shape().TotalSize() != like.Len() {
			return nil, attn.Errorf(attn.ErrShape, op, "reuse", like.String(), "%T", fo.Reuse())
		}
		if err := e.adopt(op, r); err != nil {
			return nil, err
		}
		if shape := tensor.Shape(like.Shape[:like.Rank]); !r.Shape().Eq(shape) {
			if err := r.Reshape(shape...); err != nil {
				return nil, attn.Errorf(attn.ErrShape, op, "reuse", like.String(), "%v", err)
			}
		}
		return r, nil
	case !fo.Safe():
		return t, nil
	}
	return e.fresh(like)
}

// fresh is a new contiguous tensor in scratch.
func (e *Engine) fresh(like *attn.Tensor) (*tensor.Dense, error) {
	a, err := e.scratch(like.Bytes())
	if err != nil {
		return nil, err
	}
	return e.dense(ops.Dtype(like.DType), tensor.Shape(like.Shape[:like.Rank]).Clone(), a, like.Bytes()), nil
}

// collapse describes tensors of one shape by at most four dimensions, joining neighbours that lie alike in all of them. It tells
// whether four are enough; leading ones that are not needed are 1.
func collapse(shape *[4]int64, ts []*attn.Tensor, strides []*[4]int64) bool {
	var dims [attn.MaxRank]int // the dimensions that stay, innermost first
	var sizes [attn.MaxRank]int
	n := 0
	for i := ts[0].Rank - 1; i >= 0; i-- {
		size := ts[0].Shape[i]
		if size == 1 {
			continue
		}
		joins := n > 0
		for _, t := range ts {
			joins = joins && t.Stride[i] == t.Stride[dims[n-1]]*sizes[n-1]
		}
		if joins {
			sizes[n-1] *= size
			continue
		}
		dims[n], sizes[n] = i, size
		n++
	}
	if n > len(shape) {
		return false
	}
	*shape = [4]int64{1, 1, 1, 1}
	for j := range n {
		shape[3-j] = int64(sizes[j])
		for k, t := range ts {
			strides[k][3-j] = int64(t.Stride[dims[j]])
		}
	}
	return true
}
