package graph

import (
	"fmt"
	"strings"

	"gorgonia.org/gorgonia"
)

// Placement says where a [Machine] runs what, and what it copies from one place to the other.
type Placement struct {
	Nodes []NodePlacement // of all ops, in the order in which they run
	Moves []Move
}

// NodePlacement is where one node runs, or lies if it only names memory.
type NodePlacement struct {
	Node    *gorgonia.Node
	Device  string
	Reasons []error // why it isn't the device that the Machine was asked to use, every one; nil if it is
}

// Move is a copy of one value to the other place, where all later readers take it.
type Move struct {
	Node     *gorgonia.Node
	From, To string
	Bytes    int
	When     When
}

// When tells how often a [Move] is made.
type When uint8

// Every run, as a step between two ops; or, for an input whose value lies at From, before each run or once for each value.
const (
	EveryRun   When = iota
	InputEvery      // an input that is not Resident
	InputOnce       // a Resident input, or a constant
)

// String is words for people.
func (w When) String() string {
	switch w {
	case InputEvery:
		return "before every run, where it is given there"
	case InputOnce:
		return "once for each value, where it is given there"
	}
	return "in every run"
}

// Placement is what NewMachine has decided.
func (m *Machine) Placement() Placement {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := Placement{Nodes: append([]NodePlacement(nil), m.decisions...)}
	for i := range m.inputs {
		in := &m.inputs[i]
		if !in.needed || !m.separate {
			continue
		}
		v := m.slots[in.slot].view
		if in.twin != none && !in.written {
			when := InputEvery
			if in.resident {
				when = InputOnce
			}
			p.Moves = append(p.Moves, Move{in.node, m.devs[host].Name(), m.devs[onDevice].Name(), v.Bytes(), when})
		}
		if in.onHost && !isConstant(in.node) {
			p.Moves = append(p.Moves, Move{in.node, m.devs[onDevice].Name(), m.devs[host].Name(), v.Bytes(), InputEvery})
		}
	}
	for i := range m.steps {
		if st := &m.steps[i]; st.move {
			p.Moves = append(p.Moves, Move{st.node, m.devs[1-st.place].Name(), m.devs[st.place].Name(), m.slots[st.results[0]].view.Bytes(), EveryRun})
		}
	}
	return p
}

// String is a line for each node and each move.
func (p Placement) String() string {
	var s strings.Builder
	for _, n := range p.Nodes {
		fmt.Fprintf(&s, "%s: %s\n", describe(n.Node), n.Device)
		for _, r := range n.Reasons {
			fmt.Fprintf(&s, "\t%v\n", r)
		}
	}
	for _, v := range p.Moves {
		fmt.Fprintf(&s, "%s: %s to %s, %d bytes, %v\n", describe(v.Node), v.From, v.To, v.Bytes, v.When)
	}
	return s.String()
}
