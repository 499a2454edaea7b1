package graph

import "unsafe"

// Poison fills the Machine's memory with NaN (of any float dtype), as if other runs had used it.
func (m *Machine) Poison() {
	for i := range unsafe.Slice((*byte)(m.arena), m.bytes) {
		*(*byte)(unsafe.Add(m.arena, i)) = 0xff
	}
}

// Loop runs the Machine's calls, bound as they are, without the Machine: what a run costs at least.
func (m *Machine) Loop() error {
	for i := range m.steps {
		if c := m.steps[i].call; c != nil {
			if err := c.Run(m.backend); err != nil {
				return err
			}
		}
	}
	return nil
}

// Steps is the number of ops of a run.
func (m *Machine) Steps() int { return len(m.steps) }
