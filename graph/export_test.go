package graph

import "unsafe"

// Poison fills the Machine's memory with NaN (of any float dtype), as if other runs had used it.
func (m *Machine) Poison() {
	for i := range unsafe.Slice((*byte)(m.arena), m.bytes) {
		*(*byte)(unsafe.Add(m.arena, i)) = 0xff
	}
}
