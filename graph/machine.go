package graph

import (
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
	"unsafe"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/gaze-ml/gaze/internal/attn"
	"github.com/gaze-ml/gaze/ops"
)

// Machine runs a graph: a gorgonia.VM that plans every buffer beforehand and then allocates nothing per run.
//
// Nodes run in the order of their creation, as under the TapeMachine, one after the other on the caller's thread, which is
// locked meanwhile. Ops of gaze write into buffers that the Machine owns and reuses for results that are not in use at the same
// time. Gorgonia's own ops run through their Do and own what they return.
//
// On a device that isn't the CPU, every node is placed: on the device if that runs it, else on the CPU; what writes in place never on
// the CPU. Values are copied between the two by steps of their own, each once, and [Machine.Placement] lists all that.
//
// An input has the value given by [Machine.Let], or else the one bound to its node. The Machine reads values bound to nodes and
// never binds one, so several Machines may run one graph at once; what ops write in place (caches, [ops.WithOut]) is the
// caller's memory, which Machines that run at once must not share. Nodes must not be added to the graph meanwhile.
//
// Methods may be called from several goroutines; they wait for each other.
type Machine struct {
	mu sync.Mutex
	plan
	arenas  [places]unsafe.Pointer
	bytes   [places]int
	carrier carrier

	captures []*Capture

	at     int  // the step that runs, for errors
	valid  bool // the last run succeeded
	closed bool
}

var _ gorgonia.VM = (*Machine)(nil)

// Option sets how a [Machine] is made.
type Option func(*options)

type options struct {
	dev      Device
	keep     []*gorgonia.Node
	outputs  []*gorgonia.Node
	resident []*gorgonia.Node
}

// On chooses the device, [CPU] by default.
func On(d Device) Option { return func(o *options) { o.dev = d } }

// Keep makes results outlive the run, so that [Machine.Value] and [Machine.Host] can read them. Results that no node takes as an
// operand are kept anyway; others share memory with later results.
func Keep(nodes ...*gorgonia.Node) Option {
	return func(o *options) { o.keep = append(o.keep, nodes...) }
}

// Outputs makes the Machine run only what these nodes, and those of [Keep], need. They are kept.
func Outputs(nodes ...*gorgonia.Node) Option {
	return func(o *options) { o.outputs = append(o.outputs, nodes...) }
}

// Resident makes host tensors of these input nodes go to the device once, instead of before every run: for weights. A value that is
// given by [Machine.Let], the same tensor too, or that is another tensor than before, goes there again; memory that changes under a
// tensor doesn't. On the CPU it changes nothing.
func Resident(nodes ...*gorgonia.Node) Option {
	return func(o *options) { o.resident = append(o.resident, nodes...) }
}

// NewMachine plans the runs of a graph. It refuses, with reasons, graphs that it could not run as the TapeMachine does: two
// nodes with one hash, statements such as gorgonia.Read, ops that write a constant in place; and ops that write in place and that the
// device can't run, ErrUnsupported with every reason.
func NewMachine(g *gorgonia.ExprGraph, opts ...Option) (*Machine, error) {
	o := options{dev: CPU}
	for _, opt := range opts {
		if opt == nil {
			return nil, attn.Errorf(ops.ErrArgument, "machine", "options", "options of this package", "nil")
		}
		opt(&o)
	}
	if g == nil {
		return nil, attn.Errorf(ops.ErrArgument, "machine", "graph", "a graph", "nil")
	}
	if o.dev == nil {
		return nil, attn.Errorf(ops.ErrNoDevice, "machine", "device", "a device", "nil")
	}
	p, err := newPlan(g, &o)
	if err != nil {
		return nil, err
	}
	m := &Machine{plan: *p}
	for pl, d := range m.devs {
		if d == nil {
			continue
		}
		m.bytes[pl] = arrange(m.buffers, place(pl))
		if m.arenas[pl], err = d.Alloc(m.bytes[pl]); err != nil {
			return nil, errors.Join(err, m.Close())
		}
	}
	for i, b := range m.buffers {
		m.slots[m.owner[i]].view.Ptr = unsafe.Add(m.arenas[b.place], b.offset)
	}
	for i := range m.steps {
		st := &m.steps[i]
		for j, r := range st.results {
			if st.planned != nil && r != none && m.slots[r].alias == none {
				st.out[j] = m.slots[r].view
			}
		}
	}
	return m, nil
}

// Memory is the number of bytes that the Machine's buffers take, on the device and on the host: not inputs and their copies, nor
// results of Gorgonia's own ops on the CPU.
func (m *Machine) Memory() int { return m.bytes[host] + m.bytes[onDevice] }

// RunAll runs every node once. It may be called again and again, without Reset: inputs may have got new values, or their
// memory new contents. After the first run it allocates nothing, unless Gorgonia's own ops do.
//
// An error names the node; errors.Is and errors.As see the op's own. A panic inside an op is an error too. After an error,
// results are not readable, and the next run starts afresh; what ops wrote in place stays.
func (m *Machine) RunAll() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return errClosed()
	}
	return m.runOnce()
}

// runOnce is RunAll of an open Machine with the lock held.
func (m *Machine) runOnce() error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	m.valid = false
	if err := m.bindInputs(); err != nil {
		return err
	}
	if err := m.runSteps(); err != nil {
		return fmt.Errorf("gaze: machine: %s: %w", describe(m.steps[m.at].node), err)
	}
	m.valid = true
	return nil
}

func (m *Machine) runSteps() (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = attn.Panicked(fmt.Sprint(m.steps[m.at].node.Op()), r, debug.Stack())
		}
	}()
	for m.at = range m.steps {
		st := &m.steps[m.at]
		switch {
		case st.planned != nil:
			if !st.bound {
				err = m.bind(st)
			}
			if st.call != nil && err == nil {
				err = st.call.Run(st.backend)
			}
		case st.move:
			err = m.move(st)
		default:
			err = m.do(st)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// bind tells a step where its operands and results lie. It is needed only when that has changed.
func (m *Machine) bind(st *step) error {
	for i, a := range st.args {
		st.in[i] = m.slots[a].view
	}
	if st.call != nil {
		if err := st.call.Bind(st.in, st.out); err != nil {
			return err
		}
	} else if !st.in[0].Packed() { // a new shape for memory that isn't what the plan took it to be
		if _, err := st.planned.Plan(st.in); err != nil {
			return err
		}
	}
	for _, r := range st.results {
		if r != none && m.slots[r].alias != none {
			m.place(r, renamed(&m.slots[m.slots[r].alias].view, &m.slots[r].view), nil)
		}
	}
	st.bound = true
	return nil
}

// renamed is the memory of t under the shape of name.
func renamed(t, name *attn.Tensor) attn.Tensor {
	if t.Rank == name.Rank && t.Shape == name.Shape {
		return *t
	}
	r := attn.Of(name.DType, name.Shape[:name.Rank]...)
	r.Ptr = t.Ptr
	return r
}

// move copies a value to the other place.
func (m *Machine) move(st *step) error {
	from, to := &m.slots[st.args[0]].view, &m.slots[st.results[0]].view
	if st.place == onDevice {
		return m.carrier.upload(m.devs[onDevice], to.Ptr, from)
	}
	return m.carrier.download(m.devs[onDevice], to.Ptr, from)
}

// do runs one of Gorgonia's own ops.
func (m *Machine) do(st *step) error {
	for i, a := range st.args {
		st.vals[i] = m.header(a)
	}
	if st.engine != nil {
		return st.engine(m.devs[onDevice], m.header(st.results[0]).(*tensor.Dense), st.vals)
	}
	v, err := st.node.Op().Do(st.vals...)
	if err != nil {
		return err
	}
	return m.accept(st.results[0], v)
}

// place records where a slot lies. Steps that read it are bound anew if that is somewhere else than before.
func (m *Machine) place(s int, t attn.Tensor, v gorgonia.Value) {
	sl := &m.slots[s]
	if sl.view != t {
		sl.view, sl.value = t, nil
		for _, r := range sl.readers {
			m.steps[r].bound = false
		}
	}
	if v != nil {
		sl.value = v
	}
}

// header is a slot's value as others than gaze's ops see it.
func (m *Machine) header(s int) gorgonia.Value {
	sl := &m.slots[s]
	if sl.alias != none {
		if t := &m.slots[sl.alias].view; t.Rank == sl.view.Rank && t.Shape == sl.view.Shape {
			return m.header(sl.alias)
		}
	}
	if sl.value == nil {
		sl.value = headerOf(m.devs[sl.place], &sl.view)
	}
	return sl.value
}

// Reset does nothing: every RunAll starts at the first node. It is there for gorgonia.VM.
func (m *Machine) Reset() {}

// Close gives back the Machine's memory. Closing twice is fine; every other use afterwards is ErrArgument. Tensors that Value
// returned are not valid any more, unless they are the host's.
func (m *Machine) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil
	}
	m.closed = true
	var errs []error
	for _, c := range m.captures {
		errs = append(errs, c.close())
	}
	for pl, d := range m.devs {
		if m.arenas[pl] != nil {
			errs = append(errs, d.Free(m.arenas[pl]))
		}
		for i := range m.inputs {
			if p := m.inputs[i].mem[pl]; p != nil {
				errs = append(errs, d.Free(p))
			}
		}
	}
	m.plan, m.arenas, m.carrier, m.captures = plan{}, [places]unsafe.Pointer{}, carrier{}, nil
	return errors.Join(errs...)
}

func errClosed() error {
	return attn.Errorf(ops.ErrArgument, "machine", "machine", "an open machine", "a closed one")
}
