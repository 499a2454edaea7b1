package graph

import (
	"bytes"

	"github.com/gaze-ml/gaze/internal/attn"
	"github.com/gaze-ml/gaze/ops"
)

// Poison fills the Machine's memory with NaN (of any float dtype), as if other runs had used it.
func (m *Machine) Poison() {
	for pl, d := range m.devs {
		if d != nil {
			if err := d.Write(m.arenas[pl], bytes.Repeat([]byte{0xff}, m.bytes[pl])); err != nil {
				panic(err)
			}
		}
	}
}

// Loop runs the Machine's calls, bound as they are, without the Machine: what a run costs at least.
func (m *Machine) Loop() error {
	for i := range m.steps {
		if c := m.steps[i].call; c != nil {
			if err := c.Run(m.steps[i].backend); err != nil {
				return err
			}
		}
	}
	return nil
}

// Steps is the number of ops of a run.
func (m *Machine) Steps() int { return len(m.steps) }

// CountBinds counts from now on how often a call is told where its operands lie.
func (m *Machine) CountBinds() *int {
	n := new(int)
	for i := range m.steps {
		if st := &m.steps[i]; st.call != nil {
			st.call = counted{st.call, n}
		}
	}
	return n
}

type counted struct {
	ops.Call
	n *int
}

func (c counted) Bind(in, out []attn.Tensor) error {
	*c.n++
	return c.Call.Bind(in, out)
}
