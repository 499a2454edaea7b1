package graph

import (
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/gaze-ml/gaze/internal/attn"
	"github.com/gaze-ml/gaze/ops"
)

// Value is a node's value after a run, without a copy: an input's as it was given, else a tensor over the Machine's memory, which
// the next run overwrites, on the device where the node runs. A result must have been kept (see [Keep]).
func (m *Machine) Value(n *gorgonia.Node) (gorgonia.Value, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s, err := m.readable(n)
	if err != nil {
		return nil, err
	}
	if in := m.slots[s].input; in != none {
		return m.inputs[in].value, nil
	}
	return m.header(s), nil
}

// Host is a contiguous copy of a node's value after a run, in the host's memory. On a device it waits for the run; its error may be
// that of an op.
func (m *Machine) Host(n *gorgonia.Node) (*tensor.Dense, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s, err := m.readable(n)
	if err != nil {
		return nil, err
	}
	v, pl := gorgonia.Value(nil), m.slots[s].place
	if in := m.slots[s].input; in != none {
		v, pl = m.inputs[in].value, m.inputs[in].place
	} else {
		v = m.header(s)
	}
	t, err := ops.View("machine", nodeName(n), v)
	if err != nil || ops.Dtype(t.DType).Type == nil {
		return clone(n, v)
	}
	d := ops.Alloc(t)
	dst, err := ops.View("machine", nodeName(n), d)
	if err != nil {
		return nil, err
	}
	if pl == onDevice {
		return d, m.carrier.download(m.devs[pl], dst.Ptr, &t)
	}
	copyRows(dst.Ptr, &t, 0, 0)
	return d, nil
}

// readable is a slot of a node's value, if that can be looked at.
func (m *Machine) readable(n *gorgonia.Node) (int, error) {
	s, err := m.slotOf(n)
	if err != nil {
		return none, err
	}
	if !m.valid {
		return none, attn.Errorf(ops.ErrArgument, "machine", nodeName(n), "a run that succeeded", "none before")
	}
	if sl := &m.slots[s]; sl.rename != nil && sl.alias == none { // a name that is made where it is read
		if s = sl.in[onDevice]; s == none {
			s = sl.in[host]
		}
	}
	if s == none || !m.slots[s].kept && !m.lasting(s) {
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
