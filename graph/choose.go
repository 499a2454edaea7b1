package graph

import (
	"errors"
	"fmt"

	"gorgonia.org/gorgonia"

	"github.com/gaze-ml/gaze/internal/attn"
	"github.com/gaze-ml/gaze/ops"
)

// choose places a step of gaze: on the device if its backend supports the call, else on the CPU, with the reasons. What writes in
// place runs on the device or nowhere: on a copy, the write would be lost.
func (p *plan) choose(st *step, rs []ops.Result, args []int) error {
	st.backend = p.backend
	if p.separate {
		st.place = onDevice
	}
	if p.all {
		p.decide(st.node, st.place, nil)
		return p.writable(rs, args)
	}
	out := make([]attn.Tensor, len(rs))
	for i := range rs {
		out[i] = rs[i].Tensor
	}
	if err := st.call.Bind(st.in, out); err != nil {
		return err
	}
	reasons := st.call.Supports(p.backend)
	inPlace := false
	for _, r := range rs {
		if r.Alias < 0 {
			continue
		}
		inPlace = true
		if pl, settled := p.native(args[r.Alias]); settled && pl != st.place {
			reasons = append(reasons, attn.Errorf(ops.ErrUnsupported, fmt.Sprint(st.node.Op()), "operands", "memory of "+p.dev().Name()+" to write in place",
				"operand %d, a result on the %s", r.Alias, p.devs[pl].Name()))
			reasons = append(reasons, p.why(args[r.Alias])...)
		}
	}
	switch {
	case reasons == nil:
		p.decide(st.node, st.place, nil)
		return p.writable(rs, args)
	case inPlace:
		return errors.Join(append([]error{attn.Errorf(ops.ErrUnsupported, fmt.Sprint(st.node.Op()), "", "a device that supports it: what writes in place runs nowhere else", "%s", p.dev().Name())}, reasons...)...)
	}
	st.place, st.backend = host, CPU.Backend()
	if why := st.call.Supports(st.backend); why != nil {
		return errors.Join(append(reasons, why...)...)
	}
	p.decisions = append(p.decisions, NodePlacement{Node: st.node, Device: CPU.Name(), Reasons: reasons})
	return nil
}

// why are the reasons for which a slot's value is not made on the device.
func (p *plan) why(s int) []error {
	if !p.separate || p.slots[s].place == onDevice {
		return nil
	}
	if from := p.slots[p.root(s)].step; from != none {
		return p.reasons(p.steps[from].node)
	}
	return nil
}

// reasons are those for which a node is not on the device.
func (p *plan) reasons(n *gorgonia.Node) []error {
	for _, d := range p.decisions {
		if d.Node == n {
			return d.Reasons
		}
	}
	return nil
}

// writable refuses constants as operands that are written.
func (p *plan) writable(rs []ops.Result, args []int) error {
	for _, r := range rs {
		if r.Alias >= 0 && p.constant(args[r.Alias]) {
			return attn.Errorf(ops.ErrArgument, "machine", "operands", "an operand that may be written", "a constant, operand %d, written in place", r.Alias)
		}
	}
	return nil
}

// constant tells whether slot s is, or lies in, a constant of the graph.
func (p *plan) constant(s int) bool {
	for p.slots[s].alias != none || p.slots[s].rename != nil {
		if p.slots[s].rename != nil {
			s = p.slots[s].of
		} else {
			s = p.slots[s].alias
		}
	}
	return p.slots[s].node != nil && isConstant(p.slots[s].node)
}

// isConstant tells Gorgonia's constants from other ops: only they have a value.
func isConstant(n *gorgonia.Node) bool {
	_, ok := n.Op().(interface{ Value() gorgonia.Value })
	return ok
}

// chooseOther places a step that isn't gaze's: on the device if its engine runs the op, else on the CPU.
func (p *plan) chooseOther(st *step, out *attn.Tensor, args []int) {
	var reasons []error
	if p.separate {
		in := make([]attn.Tensor, len(args))
		for i, a := range args {
			in[i] = p.slots[a].view
		}
		var why error
		if st.engine, why = engineOpOf(p.engine, st.node.Op(), in, out); why != nil {
			reasons = []error{why}
		} else {
			st.place = onDevice
		}
	}
	p.decide(st.node, st.place, reasons)
}

// decide notes where a node runs.
func (p *plan) decide(n *gorgonia.Node, pl place, reasons []error) {
	p.decisions = append(p.decisions, NodePlacement{Node: n, Device: p.devs[pl].Name(), Reasons: reasons})
}
