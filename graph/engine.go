package graph

import (
	"fmt"
	"reflect"
	"strings"
	"unsafe"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/gaze-ml/gaze/internal/attn"
	"github.com/gaze-ml/gaze/ops"
)

// engineOp is one of Gorgonia's own ops as a device's engine runs it: into a result that is given, where Gorgonia's Do would have the
// engine allocate one in every run.
type engineOp func(d Device, out *tensor.Dense, in []gorgonia.Value) error

// engineOpOf finds the engine's function for an op: Add, Sub, HadamardProd and HadamardDiv, of two tensors of one shape or a tensor
// and a scalar, Mul of a matrix with a matrix or vector, and Transpose, all of float32. Gorgonia tells its ops apart by their names
// alone. The error is the reason why not.
func engineOpOf(e tensor.Engine, op gorgonia.Op, in []attn.Tensor, out *attn.Tensor) (engineOp, error) {
	no := func(want, got string, a ...any) error {
		return attn.Errorf(ops.ErrUnsupported, fmt.Sprint(op), "", want, got, a...)
	}
	if e == nil {
		return nil, no("a device with an engine for Gorgonia's own ops", "a device without one")
	}
	for _, t := range append([]attn.Tensor{*out}, in...) {
		if t.DType != attn.F32 {
			return nil, no("operands of float32", "%v", t.DType)
		}
		if t.Len() == 0 {
			return nil, no("tensors with elements", "%v", t.String())
		}
	}
	if t := reflect.TypeOf(op); t.PkgPath() == "gorgonia.org/gorgonia" {
		var f engineOp
		switch name, _, _ := strings.Cut(fmt.Sprint(op), " "); t.Name() {
		case "elemBinOp":
			f = elementwise(e, name, in[0], in[1])
		case "linAlgBinOp":
			f = product(e, fmt.Sprint(op))
		case "transposeOp":
			f = transpose(e, op, in[0])
		}
		if f != nil {
			return f, nil
		}
	}
	return nil, no("Add, Sub, HadamardProd, HadamardDiv, Mul or Transpose, by an engine that has it", "another op")
}

type (
	binary func(a, b tensor.Tensor, opts ...tensor.FuncOpt) (tensor.Tensor, error)
	scalar func(t tensor.Tensor, s any, left bool, opts ...tensor.FuncOpt) (tensor.Tensor, error)
)

func elementwise(e tensor.Engine, name string, a, b attn.Tensor) engineOp {
	var f binary
	var g scalar
	switch name {
	case "+":
		if x, ok := e.(tensor.Adder); ok {
			f, g = x.Add, x.AddScalar
		}
	case "-":
		if x, ok := e.(tensor.Suber); ok {
			f, g = x.Sub, x.SubScalar
		}
	case "⊙":
		if x, ok := e.(tensor.Muler); ok {
			f, g = x.Mul, x.MulScalar
		}
	case "÷":
		if x, ok := e.(tensor.Diver); ok {
			f, g = x.Div, x.DivScalar
		}
	}
	switch {
	case f == nil:
		return nil
	case a.Rank == b.Rank && a.Shape == b.Shape && a.Rank > 0:
		return func(_ Device, out *tensor.Dense, in []gorgonia.Value) error {
			_, err := f(in[0].(*tensor.Dense), in[1].(*tensor.Dense), tensor.WithReuse(out))
			return err
		}
	case a.Rank > 0 && b.Rank == 0:
		return func(_ Device, out *tensor.Dense, in []gorgonia.Value) error {
			_, err := g(in[0].(*tensor.Dense), in[1], true, tensor.WithReuse(out))
			return err
		}
	case a.Rank == 0 && b.Rank > 0:
		return func(_ Device, out *tensor.Dense, in []gorgonia.Value) error {
			_, err := g(in[1].(*tensor.Dense), in[0], false, tensor.WithReuse(out))
			return err
		}
	}
	return nil
}

func product(e tensor.Engine, name string) engineOp {
	var f func(a, b, out tensor.Tensor) error
	switch name {
	case "A × B":
		if x, ok := e.(tensor.MatMuler); ok {
			f = x.MatMul
		}
	case "A × b":
		if x, ok := e.(tensor.MatVecMuler); ok {
			f = x.MatVecMul
		}
	}
	if f == nil {
		return nil
	}
	return func(_ Device, out *tensor.Dense, in []gorgonia.Value) error {
		return f(in[0].(*tensor.Dense), in[1].(*tensor.Dense), out)
	}
}

// transpose copies the operand and has the copy's elements moved.
func transpose(e tensor.Engine, op gorgonia.Op, x attn.Tensor) engineOp {
	mover, ok := e.(tensor.Transposer)
	if !ok {
		return nil
	}
	sizes := make(tensor.Shape, x.Rank) // all different, so that their order afterwards is the axes'
	for i := range sizes {
		sizes[i] = i + 2
	}
	axes, err := op.InferShape(sizes)
	if err != nil {
		return nil
	}
	for i := range axes {
		axes[i] -= 2
	}
	return func(d Device, out *tensor.Dense, in []gorgonia.Value) error {
		from, err := ops.View("transpose", "a", in[0])
		if err != nil {
			return err
		}
		if !from.Packed() {
			return attn.Errorf(ops.ErrShape, "transpose", "a", "a contiguous tensor on "+d.Name(), "strides %v", append([]int(nil), from.Stride[:from.Rank]...))
		}
		p := out.Uintptr()
		to := attn.Of(from.DType, from.Shape[:from.Rank]...)
		to.Ptr = *(*unsafe.Pointer)(unsafe.Pointer(&p)) // the device's memory
		if err := d.Copy(to.Ptr, from.Ptr, to.Bytes()); err != nil {
			return err
		}
		t := ops.DeviceTensor(d, &to)
		if err := t.T(axes...); err != nil {
			return err
		}
		return mover.Transpose(t, out.Strides())
	}
}
