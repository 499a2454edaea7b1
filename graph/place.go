package graph

import (
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/gaze-ml/gaze/internal/attn"
	"github.com/gaze-ml/gaze/ops"
)

// place is one of the two memories that a Machine works in.
type place uint8

const (
	host     place = iota
	onDevice       // never where the device's memory is the host's
	places   = 2
)

// target is what a Machine runs on.
type target struct {
	devs     [places]Device // onDevice: nil where the device's memory is the host's
	backend  ops.Backend    // the device's
	separate bool           // the device has memory of its own
	all      bool           // the device is the Go backend, which runs everything
	engine   tensor.Engine  // of Gorgonia's own ops, or nil
}

func targetOf(d Device) target {
	t := target{devs: [places]Device{host: d}, backend: d.Backend()}
	if _, t.all = d.(*CPUDevice); t.all || onHost(d) {
		return t
	}
	t.separate = true
	t.devs = [places]Device{CPU, d}
	if e, ok := d.(ops.Engined); ok {
		t.engine = e.TensorEngine()
	}
	return t
}

// dev is the device asked for.
func (t *target) dev() Device {
	if t.separate {
		return t.devs[onDevice]
	}
	return t.devs[host]
}

// at is the slot of s's value in a place. A step that copies it there is added when it is first asked for, unless the value comes
// from outside: then it is copied, where that is needed, before the first step.
func (p *plan) at(s int, pl place) int {
	sl := &p.slots[s]
	if sl.input != none && pl == host && sl.in[host] == s {
		p.inputs[sl.input].onHost = true
	}
	if t := sl.in[pl]; t != none {
		return t
	}
	var t int
	switch {
	case sl.input != none && !p.inputs[sl.input].written:
		t = p.newSlot(slot{node: sl.node, name: sl.name, dtype: sl.dtype, shape: sl.shape, view: sl.view, place: pl})
		p.slots[t].input = sl.input
		p.inputs[sl.input].twin = t
	case sl.rename != nil:
		t = p.renamed(sl.node, sl.rename, p.at(sl.of, pl), sl.view)
	default:
		from := sl.in[1-pl]
		t = p.newSlot(slot{node: sl.node, name: sl.name, dtype: sl.dtype, shape: sl.shape, view: sl.view, place: pl})
		p.slots[t].step = len(p.steps)
		p.addStep(step{node: p.slots[s].node, args: []int{from}, results: []int{t}, move: true, place: pl})
	}
	p.slots[s].in[pl] = t
	return t
}

// bring gives a step its operands in its place.
func (p *plan) bring(st *step, args []int) {
	st.args = make([]int, len(args))
	for i, a := range args {
		st.args[i] = p.at(a, st.place)
	}
}

// addRename names slot of by another shape. Where that comes from outside, or is such a name itself, it is made in the places where
// somebody reads it; otherwise where of is.
func (p *plan) addRename(n *gorgonia.Node, op ops.Planned, of int, view attn.Tensor) int {
	pl, settled := p.native(of)
	s := none
	if settled || !p.separate {
		s = p.renamed(n, op, p.at(of, pl), view)
	} else {
		s = p.newSlot(slot{node: n, view: view})
		p.slots[s].in = [places]int{none, none}
	}
	p.slots[s].rename, p.slots[s].of = op, of
	p.decide(n, pl, p.why(of))
	return s
}

// renamed is slot of by another shape, in its place.
func (p *plan) renamed(n *gorgonia.Node, op ops.Planned, of int, view attn.Tensor) int {
	s := p.newSlot(slot{node: n, view: view, place: p.slots[of].place})
	p.slots[s].alias, p.slots[s].step = of, len(p.steps)
	p.addStep(step{node: n, args: []int{of}, results: []int{s}, planned: op, place: p.slots[s].place, in: make([]attn.Tensor, 1)})
	return s
}

// native is where a slot's value is made; not settled for what comes from outside, which is where it is given.
func (p *plan) native(s int) (pl place, settled bool) {
	sl := &p.slots[s]
	switch {
	case sl.input != none:
		if p.inputs[sl.input].twin != none {
			return onDevice, false
		}
		return host, false
	case sl.rename != nil && sl.alias == none:
		return p.native(sl.of)
	}
	return sl.place, true
}

// somewhere is a slot of s's value that a run fills.
func (p *plan) somewhere(s int) int {
	if sl := &p.slots[s]; sl.rename == nil || sl.alias != none {
		return s
	}
	pl, _ := p.native(s)
	return p.at(s, pl)
}

// overwrite notes that a step on the device writes into slot s, one of the device: what was copied to the host before is not what a
// later reader shall see.
func (p *plan) overwrite(s int) {
	if !p.separate {
		return
	}
	root := p.root(s)
	if in := p.slots[root].input; in != none {
		p.inputs[in].written = true
	}
	for i := range p.slots {
		of := i
		for p.slots[of].rename != nil {
			of = p.slots[of].of
		}
		if t := p.slots[of].in[onDevice]; t != none && p.root(t) == root {
			p.slots[i].in[host] = none
		}
	}
}

// root is the slot whose memory s is.
func (p *plan) root(s int) int {
	for p.slots[s].alias != none {
		s = p.slots[s].alias
	}
	return s
}
