package graph

import (
	"errors"
	"fmt"
	"runtime"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/gaze-ml/gaze/internal/attn"
	"github.com/gaze-ml/gaze/ops"
)

// Capture is the runs of a [Machine] as one recording of its device, such as a CUDA graph: launched at once, where RunAll launches each
// op. What the inputs' tensors hold is new in every run; which tensors they are, with their addresses and shapes, is not.
type Capture struct {
	m      *Machine
	rec    ops.Recording // nil on a device without memory of its own, and after Close
	froze  []frozen
	closed bool
}

// frozen is an input as the capture has it.
type frozen struct {
	input int
	value gorgonia.Value
	view  attn.Tensor
}

// Capture runs the graph once, so that everything is where it will be, and records a second run without doing it. On the CPU there is
// nothing to record: the Capture's Run is RunAll.
//
// A device that can't record (see [ops.Recorder]), or nodes that run on the CPU, are ErrUnsupported with every reason.
func (m *Machine) Capture() (*Capture, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil, errClosed()
	}
	if err := m.capturable(); err != nil {
		return nil, err
	}
	if err := m.runOnce(); err != nil {
		return nil, err
	}
	c := &Capture{m: m}
	for i := range m.inputs {
		if in := &m.inputs[i]; in.needed && !isConstant(in.node) {
			c.froze = append(c.froze, frozen{i, in.value, in.view})
		}
	}
	if m.separate {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		var err error
		if c.rec, err = m.devs[onDevice].(ops.Recorder).Record(m.runSteps); err != nil {
			return nil, fmt.Errorf("gaze: machine: capture: %w", err)
		}
	}
	m.captures = append(m.captures, c)
	return c, nil
}

// capturable gives every reason why a recording couldn't hold the steps.
func (m *Machine) capturable() error {
	if !m.separate {
		return nil
	}
	dev := m.devs[onDevice]
	no := func(want, got string, a ...any) error {
		return attn.Errorf(ops.ErrUnsupported, "capture", "", want, got, a...)
	}
	var errs []error
	if _, ok := dev.(ops.Recorder); !ok {
		errs = append(errs, no("a device that can record", "%s", dev.Name()))
	}
	for i := range m.steps {
		st := &m.steps[i]
		if st.place == onDevice || st.move || st.planned != nil && st.call == nil { // a copy to the host has a reader there
			continue
		}
		errs = append(errs, no("every node on "+dev.Name(), "%s on the %s", describe(st.node), CPU.Name()))
		errs = append(errs, m.reasons(st.node)...)
	}
	for i := range m.steps {
		if st := &m.steps[i]; st.move && errs == nil {
			errs = append(errs, no("no copies between "+dev.Name()+" and the host", "one of %s", describe(st.node)))
		}
	}
	return errors.Join(errs...)
}

// Run does one run of the graph, as RunAll would: host tensors go to the device first, and results are read by the Machine's Value and
// Host. It allocates nothing.
//
// ErrDevice tells that memory which the capture names, such as a closed KVCache's, was given back on a device that knows.
//
// ErrArgument names an input that is another tensor, or lies elsewhere or in another shape, than when the Capture was made. With what it
// was then, Run works again.
func (c *Capture) Run() error {
	m := c.m
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.closed:
		return errClosed()
	case c.closed:
		return attn.Errorf(ops.ErrArgument, "capture", "capture", "an open Capture", "a closed one")
	}
	m.valid = false
	if err := c.same(); err != nil {
		return err
	}
	if c.rec == nil {
		return m.runOnce()
	}
	if err := m.bindInputs(); err != nil {
		return err
	}
	if err := c.rec.Run(); err != nil {
		return fmt.Errorf("gaze: machine: capture: %w", err)
	}
	m.valid = true
	return nil
}

// same refuses inputs that are not what they were.
func (c *Capture) same() error {
	for i := range c.froze {
		f := &c.froze[i]
		in := &c.m.inputs[f.input]
		if v := in.given(); v != f.value {
			return attn.Errorf(ops.ErrArgument, "capture", nodeName(in.node), "the tensor that was captured, whose contents may change", "another one")
		}
		d, ok := f.value.(*tensor.Dense)
		if !ok || !f.view.Valid() || lies(d, &f.view) { // what no op of gaze reads is looked at by Gorgonia's
			continue
		}
		now, err := ops.View("capture", nodeName(in.node), d)
		if err != nil {
			return err
		}
		return attn.Errorf(ops.ErrArgument, "capture", nodeName(in.node), "what was captured: "+laid(&f.view), "%s", laid(&now))
	}
	return nil
}

func laid(t *attn.Tensor) string {
	return fmt.Sprintf("%v with strides %v at %p", t.String(), t.Stride[:t.Rank], t.Ptr)
}

// Close gives the recording back, after the runs before. A second Close does nothing; closing the Machine closes its Captures.
func (c *Capture) Close() error {
	c.m.mu.Lock()
	defer c.m.mu.Unlock()
	return c.close()
}

// close is Close with the lock held.
func (c *Capture) close() error {
	c.closed, c.froze = true, nil
	rec := c.rec
	if c.rec = nil; rec == nil {
		return nil
	}
	return rec.Close()
}
