package fakedevice

import (
	"unsafe"

	"gorgonia.org/tensor"

	"github.com/gaze-ml/gaze/internal/attn"
	"github.com/gaze-ml/gaze/ops"
)

// engine runs Gorgonia's own ops of float32 by package tensor's engine, on the opened arena: the same bits as on the host. Results
// must be given.
type engine struct{ dev *Device }

var (
	_ tensor.Adder       = (*engine)(nil)
	_ tensor.Suber       = (*engine)(nil)
	_ tensor.Muler       = (*engine)(nil)
	_ tensor.Diver       = (*engine)(nil)
	_ tensor.MatMuler    = (*engine)(nil)
	_ tensor.MatVecMuler = (*engine)(nil)
	_ tensor.Transposer  = (*engine)(nil)
)

func (e *engine) AllocAccessible() bool           { return false }
func (e *engine) WorksWith(tensor.DataOrder) bool { return true }

func (e *engine) Alloc(int64) (tensor.Memory, error) { return nil, e.unsupported("alloc") }
func (e *engine) Free(tensor.Memory, int64) error    { return nil }
func (e *engine) Memset(tensor.Memory, any) error    { return e.unsupported("memset") }
func (e *engine) Memclr(tensor.Memory)               {}
func (e *engine) Memcpy(_, _ tensor.Memory) error    { return e.unsupported("memcpy") }

func (e *engine) Accessible(tensor.Memory) (tensor.Memory, error) {
	return nil, e.unsupported("accessible")
}

func (e *engine) unsupported(op string) error {
	return attn.Errorf(ops.ErrUnsupported, op, "", "an op of this engine", "%s", e.dev.name)
}

// run calls f with headers of the arena's memory that Go code may follow while it is open.
func (e *engine) run(op string, f func(ts []*tensor.Dense) error, operands ...tensor.Tensor) error {
	d := e.dev
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.enter("launch"); err != nil {
		return err
	}
	ts := make([]*tensor.Dense, len(operands))
	for i, o := range operands {
		v, err := ops.View(op, "operand", o.(*tensor.Dense))
		if err != nil {
			return err
		}
		if v.DType != attn.F32 || !v.Packed() && op != "transpose" {
			return e.unsupported(op)
		}
		if !d.owns(v.Ptr, ops.Span(&v)) {
			return d.foreign(op, "operand")
		}
		ts[i] = tensor.New(tensor.WithShape(v.Shape[:v.Rank]...), tensor.WithBacking(unsafe.Slice((*float32)(v.Ptr), v.Len())))
	}
	work := func() error {
		d.counts.EngineOps++
		return f(ts)
	}
	if d.record != nil {
		d.record.note(work)
		return nil
	}
	defer d.open()()
	return work()
}

type binary func(a, b any, opts ...tensor.FuncOpt) (tensor.Tensor, error)

func (e *engine) binary(op string, f binary, a, b tensor.Tensor, opts []tensor.FuncOpt) (tensor.Tensor, error) {
	out := tensor.ParseFuncOpts(opts...).Reuse()
	return out, e.run(op, func(ts []*tensor.Dense) error {
		_, err := f(ts[0], ts[1], tensor.WithReuse(ts[2]))
		return err
	}, a, b, out)
}

// scalar is an op with one tensor of one element on the device.
func (e *engine) scalar(op string, f binary, t tensor.Tensor, s any, left bool, opts []tensor.FuncOpt) (tensor.Tensor, error) {
	out := tensor.ParseFuncOpts(opts...).Reuse()
	return out, e.run(op, func(ts []*tensor.Dense) error {
		x := ts[1].Data()
		if v, ok := x.([]float32); ok {
			x = v[0]
		}
		a, b := any(ts[0]), x
		if !left {
			a, b = b, a
		}
		_, err := f(a, b, tensor.WithReuse(ts[2]))
		return err
	}, t, s.(tensor.Tensor), out)
}

func (e *engine) Add(a, b tensor.Tensor, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
	return e.binary("add", tensor.Add, a, b, opts)
}

func (e *engine) AddScalar(t tensor.Tensor, s any, left bool, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
	return e.scalar("add", tensor.Add, t, s, left, opts)
}

func (e *engine) Sub(a, b tensor.Tensor, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
	return e.binary("sub", tensor.Sub, a, b, opts)
}

func (e *engine) SubScalar(t tensor.Tensor, s any, left bool, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
	return e.scalar("sub", tensor.Sub, t, s, left, opts)
}

func (e *engine) Mul(a, b tensor.Tensor, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
	return e.binary("mul", tensor.Mul, a, b, opts)
}

func (e *engine) MulScalar(t tensor.Tensor, s any, left bool, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
	return e.scalar("mul", tensor.Mul, t, s, left, opts)
}

func (e *engine) Div(a, b tensor.Tensor, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
	return e.binary("div", tensor.Div, a, b, opts)
}

func (e *engine) DivScalar(t tensor.Tensor, s any, left bool, opts ...tensor.FuncOpt) (tensor.Tensor, error) {
	return e.scalar("div", tensor.Div, t, s, left, opts)
}

func (e *engine) MatMul(a, b, out tensor.Tensor) error {
	return e.run("matmul", func(ts []*tensor.Dense) error {
		return tensor.StdEng{}.MatMul(ts[0], ts[1], ts[2])
	}, a, b, out)
}

func (e *engine) MatVecMul(a, b, out tensor.Tensor) error {
	return e.run("matvecmul", func(ts []*tensor.Dense) error {
		return tensor.StdEng{}.MatVecMul(ts[0], ts[1], ts[2])
	}, a, b, out)
}

// Transpose packs t, whose shape and strides are the transposed ones already.
func (e *engine) Transpose(t tensor.Tensor, _ []int) error {
	v, err := ops.View("transpose", "t", t.(*tensor.Dense))
	if err != nil {
		return err
	}
	return e.run("transpose", func(ts []*tensor.Dense) error {
		moved := make([]float32, 0, v.Len())
		var walk func(dim, at int)
		walk = func(dim, at int) {
			if dim == v.Rank {
				moved = append(moved, *(*float32)(v.At(at)))
				return
			}
			for i := range v.Shape[dim] {
				walk(dim+1, at+i*v.Stride[dim])
			}
		}
		walk(0, 0)
		copy(ts[0].Data().([]float32), moved)
		return nil
	}, t)
}
