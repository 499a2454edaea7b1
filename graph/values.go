package graph

import (
	"fmt"
	"slices"
	"unsafe"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/gaze-ml/gaze/internal/attn"
	"github.com/gaze-ml/gaze/ops"
)

// Let gives an input node its value for all later runs: a *tensor.Dense, views included, or for a scalar node one of Gorgonia's
// scalars such as *gorgonia.F32. The memory is used as it is, neither copied nor kept in step with a value bound to the node.
// Dtype and shape must be the node's: ErrDType, ErrShape, ErrArgument otherwise.
func (m *Machine) Let(n *gorgonia.Node, v gorgonia.Value) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	s, err := m.slotOf(n)
	if err != nil {
		return err
	}
	if n.Op() != nil {
		return attn.Errorf(ops.ErrArgument, "machine", nodeName(n), "an input node", "%s", describe(n))
	}
	if err := m.check(s, v, true); err != nil {
		return err
	}
	m.let[s] = v
	return nil
}

func (m *Machine) slotOf(n *gorgonia.Node) (int, error) {
	if m.closed {
		return none, errClosed()
	}
	if n == nil {
		return none, attn.Errorf(ops.ErrArgument, "machine", "node", "a node of the graph", "nil")
	}
	s, ok := m.nodes[n]
	if !ok {
		return none, attn.Errorf(ops.ErrArgument, "machine", nodeName(n), "a node that the machine runs or reads", "one that is not in the graph or that nothing needs")
	}
	return s, nil
}

// bindInputs looks at the value of every input.
func (m *Machine) bindInputs() error {
	for _, s := range m.inputs {
		v := m.let[s]
		if v == nil {
			v = m.slots[s].node.Value()
		}
		if d, ok := v.(*tensor.Dense); ok && d != nil && m.slots[s].value == v && lies(d, &m.slots[s].view) {
			continue
		}
		if err := m.accept(s, v); err != nil {
			return err
		}
	}
	return nil
}

// lies tells whether d still is what t says: a header can be changed by who has it.
func lies(d *tensor.Dense, t *attn.Tensor) bool {
	return d.Uintptr() == uintptr(t.Ptr) && slices.Equal(d.Shape(), t.Shape[:t.Rank]) && slices.Equal(d.Strides(), t.Stride[:t.Rank]) &&
		d.Dtype() == ops.Dtype(t.DType)
}

// accept takes v as the value of slot s.
func (m *Machine) accept(s int, v gorgonia.Value) error {
	sl := &m.slots[s]
	if err := m.check(s, v, sl.viewed || sl.node.Op() == nil); err != nil {
		return err
	}
	if !sl.viewed {
		sl.value = v
		return nil
	}
	t, err := ops.View("machine", sl.name, v)
	if err != nil {
		return err
	}
	m.place(s, t, v)
	return nil
}

// check compares a value with what its node says; strict is false for what passes between Gorgonia's own ops, which take (n, 1)
// for (n). It never prints the value.
func (m *Machine) check(s int, v gorgonia.Value, strict bool) error {
	sl := &m.slots[s]
	d, isDense := v.(*tensor.Dense)
	switch {
	case v == nil, isDense && d == nil:
		return attn.Errorf(ops.ErrArgument, "machine", sl.name, "a value, by Let or bound to the node", "none")
	case !isDense && len(sl.shape) > 0:
		return attn.Errorf(ops.ErrArgument, "machine", sl.name, "a *tensor.Dense", "a %T", v)
	case isDense && !d.IsNativelyAccessible():
		return attn.Errorf(ops.ErrDevice, "machine", sl.name, "memory of the "+m.dev.Name(), "memory of another device")
	case v.Dtype() != sl.dtype:
		return attn.Errorf(ops.ErrDType, "machine", sl.name, sl.dtype.String(), "%v", v.Dtype())
	case !slices.Equal(v.Shape(), sl.shape) && (strict || !v.Shape().Eq(sl.shape)):
		return attn.Errorf(ops.ErrShape, "machine", sl.name, fmt.Sprint(sl.shape), "%v", v.Shape())
	}
	return nil
}

// Value is a node's value after a run, without a copy: an input's as it was given, else a tensor over the Machine's memory, which
// the next run overwrites. A result must have been kept (see [Keep]).
func (m *Machine) Value(n *gorgonia.Node) (gorgonia.Value, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s, err := m.readable(n)
	if err != nil {
		return nil, err
	}
	return m.header(s), nil
}

// Host is a contiguous copy of a node's value after a run, in the host's memory.
func (m *Machine) Host(n *gorgonia.Node) (*tensor.Dense, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s, err := m.readable(n)
	if err != nil {
		return nil, err
	}
	v := m.header(s)
	t, err := ops.View("machine", nodeName(n), v)
	if err != nil || ops.Dtype(t.DType).Type == nil {
		return clone(n, v)
	}
	d := ops.Alloc(t)
	dst, err := ops.View("machine", nodeName(n), d)
	if err != nil {
		return nil, err
	}
	copyRows(dst.Ptr, &t, 0, 0)
	return d, nil
}

// readable is the slot of a node whose value can be looked at.
func (m *Machine) readable(n *gorgonia.Node) (int, error) {
	s, err := m.slotOf(n)
	if err != nil {
		return none, err
	}
	if !m.valid {
		return none, attn.Errorf(ops.ErrArgument, "machine", nodeName(n), "a run that succeeded", "none before")
	}
	if !m.slots[s].kept && !m.lasting(s) {
		return none, attn.Errorf(ops.ErrArgument, "machine", nodeName(n), "a node without consumers, or one in Keep or Outputs", "a result whose memory is reused")
	}
	return s, nil
}

// lasting tells whether no planned buffer is under slot s.
func (m *Machine) lasting(s int) bool { return len(m.slots[s].buffers) == 0 }

// clone copies a value of a dtype that is not gaze's.
func clone(n *gorgonia.Node, v gorgonia.Value) (*tensor.Dense, error) {
	if d, ok := v.(*tensor.Dense); ok {
		return d.Materialize().Clone().(*tensor.Dense), nil
	}
	if n.IsScalar() {
		return tensor.New(tensor.FromScalar(v.Data())), nil
	}
	return nil, attn.Errorf(ops.ErrUnsupported, "machine", nodeName(n), "a tensor or a scalar", "a %T", v)
}

// copyRows packs t, from dimension dim and element offset on, into dst and returns how many bytes it wrote.
func copyRows(dst unsafe.Pointer, t *attn.Tensor, dim, offset int) int {
	size := t.DType.Size()
	if dim == t.Rank {
		copy(unsafe.Slice((*byte)(dst), size), unsafe.Slice((*byte)(t.At(offset)), size))
		return size
	}
	if dim == t.Rank-1 && t.Stride[dim] == 1 {
		size *= t.Shape[dim]
		copy(unsafe.Slice((*byte)(dst), size), unsafe.Slice((*byte)(t.At(offset)), size))
		return size
	}
	n := 0
	for i := range t.Shape[dim] {
		n += copyRows(unsafe.Add(dst, n), t, dim+1, offset+i*t.Stride[dim])
	}
	return n
}
