package ops

import (
	"fmt"
	"unsafe"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/gaze-ml/gaze/internal/attn"
)

// View describes a value's memory without copying it: a *tensor.Dense with its strides (views included), or one of
// Gorgonia's scalars. op and arg name the value in errors.
func View(op, arg string, v gorgonia.Value) (attn.Tensor, error) {
	switch v := v.(type) {
	case *tensor.Dense:
		if v == nil {
			break
		}
		return denseView(op, arg, v)
	case *gorgonia.F32:
		if v == nil {
			break
		}
		t := attn.Of(attn.F32)
		t.Ptr = unsafe.Pointer(v)
		return t, nil
	case *gorgonia.I32:
		if v == nil {
			break
		}
		t := attn.Of(attn.I32)
		t.Ptr = unsafe.Pointer(v)
		return t, nil
	case nil:
	default:
		return attn.Tensor{}, attn.Errorf(ErrArgument, op, arg, "a *tensor.Dense", "%T", v)
	}
	return attn.Tensor{}, attn.Errorf(ErrArgument, op, arg, "a *tensor.Dense", "nil")
}

func denseView(op, arg string, d *tensor.Dense) (attn.Tensor, error) {
	if d.Dtype().Type == nil {
		return attn.Tensor{}, attn.Errorf(ErrArgument, op, arg, "a tensor made by tensor.New or NewTensor", "one without a dtype")
	}
	t, err := describe(op, arg, d.Dtype(), d.Shape())
	if err != nil {
		return t, err
	}
	if n := d.MemSize(); n > 0 {
		p := d.Uintptr()
		t.Ptr = *(*unsafe.Pointer)(unsafe.Pointer(&p)) // d keeps the memory alive: Go's or a device's
	}
	if d.IsMasked() && d.MemSize() > 0 { // no elements count as masked
		return t, attn.Errorf(ErrArgument, op, arg, "a tensor without a mask", "a masked %s", t.String())
	}
	if s := d.Strides(); t.Rank > 0 {
		if len(s) != t.Rank {
			return t, attn.Errorf(ErrShape, op, arg, "one stride per dimension", "strides %v of %s", s, t.String())
		}
		copy(t.Stride[:], s)
	}
	if last := extent(&t); last > 0 && last > int(d.MemSize())/t.DType.Size() {
		return t, attn.Errorf(ErrShape, op, arg, fmt.Sprintf("%d elements of memory", last), "%d bytes for %s", d.MemSize(), t.String())
	}
	return t, nil
}

// extent is one past the largest element offset that t's shape and strides reach.
func extent(t *attn.Tensor) int {
	n := 1
	for i := range t.Rank {
		if t.Shape[i] == 0 {
			return 0
		}
		n += (t.Shape[i] - 1) * t.Stride[i]
	}
	return n
}

// describe gives a packed tensor of that dtype and shape, without memory.
func describe(op, arg string, dt tensor.Dtype, shape tensor.Shape) (attn.Tensor, error) {
	if len(shape) > attn.MaxRank {
		return attn.Tensor{}, attn.Errorf(ErrShape, op, arg, fmt.Sprintf("rank %d or less", attn.MaxRank), "%v%v", dt, shape)
	}
	return attn.Of(DTypeOf(dt), shape...), nil
}

// describeNode is describe for a node of a graph. A node without a dtype (a tuple, a function) is refused.
func describeNode(op, arg string, n *gorgonia.Node) (t attn.Tensor, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = attn.Errorf(ErrDType, op, arg, "a node with a tensor type", "%v", r)
		}
	}()
	return describe(op, arg, n.Dtype(), n.Shape())
}

// Alloc makes a zeroed host tensor of t's dtype and shape.
func Alloc(t attn.Tensor) *tensor.Dense {
	return tensor.New(tensor.Of(Dtype(t.DType)), tensor.WithShape(t.Shape[:t.Rank]...))
}
