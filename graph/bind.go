package graph

import (
	"fmt"
	"reflect"
	"slices"
	"unsafe"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/gaze-ml/gaze/internal/attn"
	"github.com/gaze-ml/gaze/ops"
)

// input is a value that comes from outside: an input node's, or a constant.
type input struct {
	node     *gorgonia.Node
	slot     int  // on the host
	twin     int  // on the device; none: nobody reads it there
	needed   bool // by a step or as a result
	onHost   bool // somebody reads it there
	resident bool // uploaded once for each value
	written  bool // in place, on the device

	let   gorgonia.Value // nil: the node's own value
	value gorgonia.Value // what was bound last
	view  attn.Tensor    // of value
	place place          // of value

	uploaded bool                   // a resident's copy on the device is value's
	mem      [places]unsafe.Pointer // for copies of values from the other place, made when first needed
}

// given is the value that the next run works on.
func (in *input) given() gorgonia.Value {
	if in.let != nil {
		return in.let
	}
	if c, ok := in.node.Op().(interface{ Value() gorgonia.Value }); ok {
		return c.Value()
	}
	return in.node.Value()
}

// Let gives an input node its value for all later runs: a *tensor.Dense, views included, or for a scalar node one of Gorgonia's
// scalars such as *gorgonia.F32. The memory is used as it is, neither copied nor kept in step with a value bound to the node.
// Dtype and shape must be the node's: ErrDType, ErrShape, ErrArgument otherwise.
//
// A host tensor for an op on a device is uploaded before every run, or once if the node is [Resident]; a tensor in the device's
// memory is used there, and downloaded before every run for ops on the CPU. Memory of another device, or memory of the host for what
// is written in place on a device, is ErrDevice.
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
	in := &m.inputs[m.slots[s].input]
	if _, err := m.whose(in, v); err != nil {
		return err
	}
	in.let, in.value, in.uploaded = v, nil, false
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

// bindInputs looks at the value of every input, and copies those that are not where they are read.
func (m *Machine) bindInputs() error {
	for i := range m.inputs {
		in := &m.inputs[i]
		if !in.needed {
			continue
		}
		v := in.given()
		if d, ok := v.(*tensor.Dense); !ok || d == nil || in.value != v || !lies(d, &in.view) {
			if err := m.take(in, v); err != nil {
				return err
			}
		}
		if m.separate {
			if err := m.carry(in); err != nil {
				return fmt.Errorf("gaze: machine: %s, to where it is read: %w", describe(in.node), err)
			}
		}
	}
	return nil
}

// lies tells whether d still is what t says: a header can be changed by who has it.
func lies(d *tensor.Dense, t *attn.Tensor) bool {
	return d.Uintptr() == uintptr(t.Ptr) && slices.Equal(d.Shape(), t.Shape[:t.Rank]) && slices.Equal(d.Strides(), t.Stride[:t.Rank]) &&
		d.Dtype() == ops.Dtype(t.DType)
}

// take makes v the value of an input.
func (m *Machine) take(in *input, v gorgonia.Value) error {
	sl := &m.slots[in.slot]
	in.value, in.view, in.uploaded = nil, attn.Tensor{}, false
	if err := m.check(in.slot, v, sl.viewed || in.node.Op() == nil); err != nil {
		return err
	}
	var err error
	if in.place, err = m.whose(in, v); err != nil {
		return err
	}
	viewed := sl.viewed || m.separate && ops.Dtype(ops.DTypeOf(sl.dtype)).Type != nil
	if viewed {
		if in.view, err = ops.View("machine", sl.name, v); err != nil {
			return err
		}
	}
	switch s := [places]int{in.slot, in.twin}[in.place]; {
	case !viewed:
		sl.value = v
	case s != none:
		m.place(s, in.view, v)
	}
	in.value = v
	return nil
}

// whose is the place where an input's value lies. It goes by the address.
func (m *Machine) whose(in *input, v gorgonia.Value) (place, error) {
	name := m.slots[in.slot].name
	if d, ok := v.(*tensor.Dense); ok && m.separate && d.MemSize() > 0 {
		if p := d.Uintptr(); m.devs[onDevice].Owns(*(*unsafe.Pointer)(unsafe.Pointer(&p)), int(d.MemSize())) {
			if ops.Dtype(ops.DTypeOf(d.Dtype())).Type == nil {
				return onDevice, attn.Errorf(ops.ErrDType, "machine", name, "a dtype of gaze for a tensor on a device", "%v", d.Dtype())
			}
			return onDevice, nil
		}
	}
	other, err := ops.Locate("machine", name, v)
	switch {
	case err != nil:
		return host, err
	case other != nil:
		want := "memory of the host"
		if m.separate {
			want += " or of " + m.devs[onDevice].Name()
		}
		return host, attn.Errorf(ops.ErrDevice, "machine", name, want, "memory of %s", other.Name())
	case in.written:
		return host, attn.Errorf(ops.ErrDevice, "machine", name, "memory of "+m.devs[onDevice].Name()+", where it is written in place", "memory of the host")
	}
	return host, nil
}

// carry copies an input's value to where it is read and isn't.
func (m *Machine) carry(in *input) error {
	dev := m.devs[onDevice]
	switch {
	case in.place == host && in.twin != none && !in.uploaded:
		to, err := m.own(in, onDevice)
		if err != nil {
			return err
		}
		if err := m.carrier.upload(dev, to.Ptr, &in.view); err != nil {
			return err
		}
		m.place(in.twin, to, nil)
		in.uploaded = in.resident
	case in.place == onDevice && in.onHost:
		to, err := m.own(in, host)
		if err != nil {
			return err
		}
		if err := m.carrier.download(dev, to.Ptr, &in.view); err != nil {
			return err
		}
		m.place(in.slot, to, nil)
	}
	return nil
}

// own is the input's own memory in a place.
func (m *Machine) own(in *input, pl place) (attn.Tensor, error) {
	t := attn.Of(in.view.DType, in.view.Shape[:in.view.Rank]...)
	if in.mem[pl] == nil {
		var err error
		if in.mem[pl], err = m.devs[pl].Alloc(t.Bytes()); err != nil {
			return t, err
		}
	}
	t.Ptr = in.mem[pl]
	return t, nil
}

// accept takes v as the result of one of Gorgonia's own ops, on the host.
func (m *Machine) accept(s int, v gorgonia.Value) error {
	sl := &m.slots[s]
	if err := m.check(s, v, sl.viewed); err != nil {
		return err
	}
	if on, err := ops.Locate("machine", sl.name, v); err != nil {
		return err
	} else if on != nil {
		return attn.Errorf(ops.ErrDevice, "machine", sl.name, "a result in memory of the host", "memory of %s", on.Name())
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
	_, isDense := v.(*tensor.Dense)
	switch {
	case v == nil, isNil(v):
		return attn.Errorf(ops.ErrArgument, "machine", sl.name, "a value, by Let or bound to the node", "none")
	case v.Dtype().Type == nil:
		return attn.Errorf(ops.ErrArgument, "machine", sl.name, "a tensor made by tensor.New or NewTensor", "one without a dtype")
	case !isDense && len(sl.shape) > 0:
		return attn.Errorf(ops.ErrArgument, "machine", sl.name, "a *tensor.Dense", "a %T", v)
	case v.Dtype() != sl.dtype:
		return attn.Errorf(ops.ErrDType, "machine", sl.name, sl.dtype.String(), "%v", v.Dtype())
	case !slices.Equal(v.Shape(), sl.shape) && (strict || !v.Shape().Eq(sl.shape)):
		return attn.Errorf(ops.ErrShape, "machine", sl.name, fmt.Sprint(sl.shape), "%v", v.Shape())
	}
	return nil
}

// isNil tells a nil pointer inside a value, which is a value to Go.
func isNil(v gorgonia.Value) bool {
	p := reflect.ValueOf(v)
	return p.Kind() == reflect.Pointer && p.IsNil()
}
