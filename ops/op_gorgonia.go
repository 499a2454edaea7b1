package ops

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"hash/fnv"
	"runtime/debug"
	"slices"
	"sync/atomic"

	"github.com/chewxy/hm"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/gaze-ml/gaze/internal/attn"
)

var (
	_ gorgonia.SDOp = (*op[attn.DecodeCall, *attn.DecodeCall])(nil)
	_ Planned       = (*op[attn.DecodeCall, *attn.DecodeCall])(nil)
)

/* building */

// Arity is the number of operands.
func (o *op[C, P]) Arity() int { return len(o.in) }

// Type is made afresh on each call: Gorgonia gives function types back to a pool.
func (o *op[C, P]) Type() hm.Type { return fnType(o.desc, o.plan[0].Tensor) }

func fnType(in []attn.Tensor, out attn.Tensor) hm.Type {
	ts := make([]hm.Type, 0, len(in)+1)
	for _, t := range append(append([]attn.Tensor{}, in...), out) {
		if t.Rank == 0 {
			ts = append(ts, Dtype(t.DType))
		} else {
			ts = append(ts, gorgonia.TensorType{Dims: t.Rank, Of: Dtype(t.DType)})
		}
	}
	return hm.NewFnType(ts...)
}

// InferShape checks the op for operands of these shapes.
func (o *op[C, P]) InferShape(ds ...gorgonia.DimSizer) (tensor.Shape, error) {
	in, err := reshaped(o.String(), o.desc, ds)
	if err != nil {
		return nil, err
	}
	rs, err := o.Plan(in)
	if err != nil {
		return nil, err
	}
	return tensor.Shape(rs[0].Shape[:rs[0].Rank]).Clone(), nil
}

// reshaped gives the operands' descriptions other shapes.
func reshaped(name string, desc []attn.Tensor, ds []gorgonia.DimSizer) ([]attn.Tensor, error) {
	if len(ds) != len(desc) {
		return nil, attn.Errorf(ErrArgument, name, "operands", fmt.Sprint(len(desc)), "%d", len(ds))
	}
	in := make([]attn.Tensor, len(ds))
	for i, d := range ds {
		s, ok := d.(tensor.Shape)
		if !ok {
			return nil, attn.Errorf(ErrShape, name, "operands", "a shape", "%T", d)
		}
		in[i] = attn.Of(desc[i].DType, s...)
	}
	return in, nil
}

// graphOf gives the one graph of all nodes. Gorgonia's constants have none until an op takes them.
func graphOf(name string, args []string, nodes []*gorgonia.Node) (*gorgonia.ExprGraph, error) {
	var g *gorgonia.ExprGraph
	var errs []error
	for i, n := range nodes {
		switch {
		case n == nil || n == missing:
			errs = append(errs, attn.Errorf(ErrArgument, name, args[i], "a node", "nil"))
		case n.Graph() == nil && isConstant(n):
		case n.Graph() == nil:
			errs = append(errs, attn.Errorf(ErrArgument, name, args[i], "a node of a graph", "a node without a graph"))
		case g == nil:
			g = n.Graph()
		case n.Graph() != g:
			errs = append(errs, attn.Errorf(ErrArgument, name, args[i], "a node of the first argument's graph", "a node of another graph"))
		}
	}
	if g == nil && len(errs) == 0 {
		errs = append(errs, attn.Errorf(ErrArgument, name, args[0], "a node of a graph", "constants alone"))
	}
	return g, errors.Join(errs...)
}

// isConstant tells Gorgonia's constants from other ops: only they have a value.
func isConstant(n *gorgonia.Node) bool {
	_, ok := n.Op().(interface{ Value() gorgonia.Value })
	return ok
}

var serials atomic.Uint64

// addUnique puts o into g with a serial number that makes the node's hash new there: Gorgonia takes nodes with one 32-bit
// hash for the same node, while building and again while compiling.
func addUnique(g *gorgonia.ExprGraph, o gorgonia.Op, serial *uint64, nodes []*gorgonia.Node) (*gorgonia.Node, error) {
	ds := make([]gorgonia.DimSizer, len(nodes))
	for i, n := range nodes {
		ds[i] = n.Shape()
	}
	shape, err := o.InferShape(ds...)
	if err != nil {
		return nil, err
	}
	for {
		*serial = serials.Add(1)
		hash := nodeHash(o, shape, nodes)
		if !slices.ContainsFunc(g.AllNodes(), func(n *gorgonia.Node) bool { return n.Hashcode() == hash }) {
			return gorgonia.ApplyOp(o, nodes...)
		}
	}
}

// nodeHash is what gorgonia.Node.Hashcode will be for a node of o, which can't be asked before it is in a graph.
func nodeHash(o gorgonia.Op, shape tensor.Shape, children []*gorgonia.Node) uint32 {
	h := fnv.New32a()
	fmt.Fprintf(h, "%v%v", o.Type().(*hm.FunctionType).Ret(true), shape)
	o.WriteHash(h)
	h.Write([]byte{byte(len(children))})
	for _, c := range children {
		h.Write(binary.LittleEndian.AppendUint32(nil, c.Hashcode()))
	}
	return h.Sum32()
}

// WriteHash writes every attribute, the prototype whole, and the serial number.
func (o *op[C, P]) WriteHash(h hash.Hash) {
	fmt.Fprintf(h, "gaze.%s %v %+v %d", P(&o.proto).Op(), o.names(), o.proto, o.serial)
}

// Hashcode is WriteHash in 32 bits.
func (o *op[C, P]) Hashcode() uint32 { return hashcode(o) }

func hashcode(o gorgonia.Op) uint32 {
	h := fnv.New32a()
	o.WriteHash(h)
	return h.Sum32()
}

// String is the op's name.
func (o *op[C, P]) String() string { return P(&o.proto).Op() }

/* analysis */

// ReturnsPtr is true: outputs are not copied.
func (o *op[C, P]) ReturnsPtr() bool { return true }

// CallsExtern is false: with true the TapeMachine would allocate Go memory for the output on every run.
func (o *op[C, P]) CallsExtern() bool { return false }

// OverwritesInput is -1, also for ops that write in place: what they return is what they were given.
func (o *op[C, P]) OverwritesInput() int { return -1 }

// DiffWRT is all false: gaze is for inference.
func (o *op[C, P]) DiffWRT(inputs int) []bool { return make([]bool, inputs) }

// SymDiff refuses.
func (o *op[C, P]) SymDiff(gorgonia.Nodes, *gorgonia.Node, *gorgonia.Node) (gorgonia.Nodes, error) {
	return nil, noGradient(o.String())
}

func noGradient(name string) error {
	return attn.Errorf(ErrUnsupported, name, "", "an op with a gradient", "an inference-only op")
}

/* running */

// Do runs the op on the backend of the device where the operands lie and returns a tensor over memory that the op owns, there. It is a
// value until the op runs again, which writes the same memory and gives the same tensor, unless somebody has changed that since. On a
// device the memory stays until the operands come from another device or the device is closed: Gorgonia doesn't tell when it is done
// with a value. Clones of a graph share their ops, and so results: UnbindAllNonInputs is for one of them.
func (o *op[C, P]) Do(vals ...gorgonia.Value) (v gorgonia.Value, err error) {
	name := P(&o.proto).Op()
	defer recovered(name, &err)
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.tape == nil {
		o.tape = &tape{call: o.NewCall(), in: make([]attn.Tensor, len(o.in)), out: make([]attn.Tensor, len(o.plan)), vals: make([]*tensor.Dense, len(o.plan))}
	}
	t := o.tape
	if len(vals) != len(t.in) {
		return nil, attn.Errorf(ErrArgument, name, "operands", fmt.Sprint(len(t.in)), "%d", len(vals))
	}
	for r := range o.plan {
		if a := o.plan[r].Alias; a >= 0 {
			t.vals[r], _ = vals[a].(*tensor.Dense)
		}
	}
	if !t.again(vals) {
		if err := o.bind(name, vals); err != nil {
			return nil, err
		}
	}
	if err := t.call.Run(t.bound.backend); err != nil {
		return nil, err
	}
	return t.give(&t.given, 0), nil
}

// bind looks at the operands and binds the call to them.
func (o *op[C, P]) bind(name string, vals []gorgonia.Value) (err error) {
	t := o.tape
	t.bound.backend = nil
	registered := devices.Load()
	at := places{op: name}
	for i, v := range vals {
		if t.in[i], err = View(name, o.in[i].name, v); err != nil {
			return err
		}
		if err := at.see(o.in[i].name, v, &t.in[i]); err != nil {
			return err
		}
	}
	be, err := at.backend(P(&o.proto))
	if err != nil {
		return err
	}
	if !t.made || t.dev != at.dev {
		if err := o.makeOutputs(at.dev); err != nil {
			return err
		}
	}
	if err := t.call.Bind(t.in, t.out); err != nil {
		return err
	}
	t.remember(vals, be, registered)
	return nil
}

// makeOutputs allocates the outputs that the op owns on a device, and gives those on another one back.
func (o *op[C, P]) makeOutputs(dev Device) error {
	t := o.tape
	old, was := t.dev, t.made
	t.made = false
	for i, r := range o.plan {
		if r.Alias >= 0 || !r.Wanted {
			continue
		}
		if was && old != nil {
			_ = old.Free(t.out[i].Ptr) // a device that was closed has given it back already
		}
		d, err := allocOn(dev, r.Tensor)
		if err == nil {
			t.vals[i] = d
			t.out[i], err = View(P(&o.proto).Op(), "out", d)
		}
		if err != nil {
			return err
		}
	}
	t.dev, t.made = dev, true
	return nil
}

// last gives result i of the last Do under a header that the caller keeps at h; nil: it hasn't run.
func (o *op[C, P]) last(i int, h **header) *tensor.Dense {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.tape == nil || o.tape.vals[i] == nil {
		return nil
	}
	return o.tape.give(h, i)
}

// recovered turns a panic into an error: Gorgonia runs ops in a goroutine of its own, where a panic ends the process.
func recovered(name string, err *error) {
	if r := recover(); r != nil {
		*err = attn.Panicked(name, r, debug.Stack())
	}
}
