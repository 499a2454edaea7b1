package graph

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/gaze-ml/gaze/internal/attn"
	"github.com/gaze-ml/gaze/ops"
)

// slot is one value of a run: an input, a result of an op, or the memory of another slot under a new name.
type slot struct {
	node    *gorgonia.Node // nil where no node names the result
	name    string         // the node's, for errors
	dtype   tensor.Dtype   // the node's
	shape   tensor.Shape
	view    attn.Tensor    // dtype, shape and, during runs, where it lies; absent for what only Gorgonia's own ops understand
	value   gorgonia.Value // the header that goes with view; made when asked for
	alias   int            // the slot whose memory it is, or none
	step    int            // the step that gives it its value, or none
	readers []int          // the steps that have it as an operand, in order
	viewed  bool           // an op of gaze is among them
	kept    bool           // holds its memory until the next run
	buffers []int          // the planned memory in which it may lie
}

// step is one op of a run: one of gaze (planned), or one of Gorgonia's own.
type step struct {
	node    *gorgonia.Node
	args    []int       // slots of the operands
	results []int       // slots of the results; none where nobody wants one
	planned ops.Planned // nil for Gorgonia's own ops
	call    ops.Call    // nil for Gorgonia's own ops, and for ops that only rename memory
	bound   bool        // call knows where operands and results lie

	in, out []attn.Tensor    // of planned ops
	vals    []gorgonia.Value // of Gorgonia's own ops
}

const none = -1

// plan is what NewMachine learns from a graph.
type plan struct {
	nodes   map[*gorgonia.Node]int // slots by node
	slots   []slot
	inputs  []int // slots that must have a value
	steps   []step
	buffers []buffer
	owner   []int // the slot that each buffer was made for
}

// reading guards graphs while they are read: Gorgonia's accessors fill an index on the side.
var reading sync.Mutex

// newPlan orders the graph's nodes and describes every value. Only what outputs need is run, or all if there are none.
func newPlan(g *gorgonia.ExprGraph, outputs, keep []*gorgonia.Node) (*plan, error) {
	reading.Lock()
	defer reading.Unlock()
	p := &plan{nodes: map[*gorgonia.Node]int{}}
	order, children, err := inOrder(g)
	if err != nil {
		return nil, err
	}
	for _, n := range append(slices.Clone(outputs), keep...) {
		if n == nil {
			return nil, attn.Errorf(ops.ErrArgument, "machine", "node", "a node of the graph", "nil")
		}
		if _, ok := children[n]; !ok {
			return nil, attn.Errorf(ops.ErrArgument, "machine", "node", "a node of the graph", "%s, which is not in it", nodeName(n))
		}
	}
	needed := needs(order, children, append(slices.Clone(outputs), keep...), len(outputs) == 0)
	consumed := map[*gorgonia.Node]bool{}
	var errs []error
	for _, n := range order {
		if n.Op() == nil || needed[n] && p.has(children[n]) { // the reason why an operand can't run is enough
			if err := p.add(n, children[n]); err != nil {
				errs = append(errs, fmt.Errorf("gaze: machine: %s: %w", describe(n), err))
			}
		}
		if !needed[n] {
			continue
		}
		if n.Op() == nil {
			p.inputs = append(p.inputs, p.nodes[n])
		}
		if _, ok := n.Op().(*ops.Projection); !ok {
			for _, c := range children[n] {
				consumed[c] = true
			}
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	for _, n := range order {
		if needed[n] && (!consumed[n] || slices.Contains(keep, n) || slices.Contains(outputs, n)) {
			p.slots[p.nodes[n]].kept = true
		}
	}
	p.settle()
	return p, nil
}

// inOrder gives the graph's nodes in the order of their creation, which is that of the TapeMachine, and their children.
func inOrder(g *gorgonia.ExprGraph) ([]*gorgonia.Node, map[*gorgonia.Node][]*gorgonia.Node, error) {
	order := slices.Clone(g.AllNodes())
	slices.SortStableFunc(order, func(a, b *gorgonia.Node) int { return int(a.ID() - b.ID()) })
	children := make(map[*gorgonia.Node][]*gorgonia.Node, len(order))
	hashes := make(map[uint32]*gorgonia.Node, len(order))
	for _, n := range order {
		if g.Node(n.ID()) != n {
			return nil, nil, attn.Errorf(ops.ErrUnsupported, "machine", "graph", "a graph of which no node was removed", "another node under the ID of %s", describe(n))
		}
		if o, ok := hashes[n.Hashcode()]; ok {
			return nil, nil, attn.Errorf(ops.ErrUnsupported, "machine", "graph", "nodes with hashes of their own: Gorgonia takes equal ones for one node",
				"%s and %s, both %#x", describe(o), describe(n), n.Hashcode())
		}
		hashes[n.Hashcode()] = n
		cs := []*gorgonia.Node{}
		for it := g.From(n.ID()); it.Next(); {
			c := it.Node().(*gorgonia.Node)
			if _, ok := children[c]; !ok {
				return nil, nil, attn.Errorf(ops.ErrUnsupported, "machine", "graph", "operands made before the nodes that use them", "%s after %s", describe(c), describe(n))
			}
			cs = append(cs, c)
		}
		children[n] = cs
	}
	return order, children, nil
}

// needs marks what the targets need, or every op's needs if all is set; an input that nobody reads is not needed.
func needs(order []*gorgonia.Node, children map[*gorgonia.Node][]*gorgonia.Node, targets []*gorgonia.Node, all bool) map[*gorgonia.Node]bool {
	needed := map[*gorgonia.Node]bool{}
	for _, n := range targets {
		needed[n] = true
	}
	for _, n := range slices.Backward(order) {
		if all && n.Op() != nil {
			needed[n] = true
		}
		if needed[n] {
			for _, c := range children[n] {
				needed[c] = true
			}
		}
	}
	return needed
}

func (p *plan) has(nodes []*gorgonia.Node) bool {
	for _, n := range nodes {
		if _, ok := p.nodes[n]; !ok {
			return false
		}
	}
	return true
}

// add makes a node's slot, and its step if it has one.
func (p *plan) add(n *gorgonia.Node, children []*gorgonia.Node) error {
	args := make([]int, len(children))
	for i, c := range children {
		args[i] = p.nodes[c]
	}
	switch op := n.Op().(type) {
	case nil:
		_, err := p.nodeSlot(n)
		return err
	case *ops.Projection:
		return p.addProjection(n, op, args)
	case ops.Planned:
		return p.addPlanned(n, op, args)
	default:
		return p.addOther(n, args)
	}
}

func (p *plan) newSlot(s slot) int {
	p.slots = append(p.slots, s)
	return len(p.slots) - 1
}

// addProjection names a result of the operand's step.
func (p *plan) addProjection(n *gorgonia.Node, op *ops.Projection, args []int) error {
	if from := p.slots[args[0]].step; from != none && op.Index() < len(p.steps[from].results) {
		if s := p.steps[from].results[op.Index()]; s != none {
			p.nodes[n] = s
			if p.slots[s].node == nil {
				p.slots[s].node = n
			}
			return nil
		}
	}
	return attn.Errorf(ops.ErrUnsupported, "machine", "operands", fmt.Sprintf("an op with a result %d", op.Index()), "none")
}

// addPlanned adds an op of gaze and its results.
func (p *plan) addPlanned(n *gorgonia.Node, op ops.Planned, args []int) error {
	st := step{node: n, args: args, planned: op, call: op.NewCall(), in: make([]attn.Tensor, len(args))}
	for i, a := range args {
		st.in[i] = p.slots[a].view
	}
	rs, err := op.Plan(st.in)
	if err != nil {
		return err
	}
	st.out = make([]attn.Tensor, len(rs))
	for _, r := range rs {
		switch {
		case r.Alias >= 0:
			if st.call != nil && p.constant(args[r.Alias]) {
				return attn.Errorf(ops.ErrArgument, "machine", "operands", "an operand that may be written", "a constant, operand %d, written in place", r.Alias)
			}
			st.results = append(st.results, p.newSlot(slot{view: r.Tensor, alias: args[r.Alias], step: len(p.steps)}))
		case r.Wanted:
			st.results = append(st.results, p.newSlot(slot{view: r.Tensor, alias: none, step: len(p.steps)}))
		default:
			st.results = append(st.results, none)
		}
	}
	p.slots[st.results[0]].node = n
	p.nodes[n] = st.results[0]
	p.addStep(st)
	return nil
}

// addOther adds one of Gorgonia's own ops, or one that someone else wrote.
func (p *plan) addOther(n *gorgonia.Node, args []int) error {
	if n.Type() == nil {
		return attn.Errorf(ops.ErrUnsupported, "machine", "op", "an op with a value", "a statement, such as gorgonia.Read or gorgonia.Set")
	}
	s, err := p.nodeSlot(n)
	if err != nil {
		return err
	}
	p.slots[s].step = len(p.steps)
	p.addStep(step{node: n, args: args, results: []int{s}, vals: make([]gorgonia.Value, len(args))})
	return nil
}

func (p *plan) addStep(st step) {
	for _, a := range st.args {
		p.slots[a].readers = append(p.slots[a].readers, len(p.steps))
		p.slots[a].viewed = p.slots[a].viewed || st.planned != nil
	}
	p.steps = append(p.steps, st)
}

// constant tells whether slot s is, or lies in, a constant of the graph.
func (p *plan) constant(s int) bool {
	for p.slots[s].alias != none {
		s = p.slots[s].alias
	}
	return p.slots[s].node != nil && isConstant(p.slots[s].node)
}

// isConstant tells Gorgonia's constants from other ops: only they have a value.
func isConstant(n *gorgonia.Node) bool {
	_, ok := n.Op().(interface{ Value() gorgonia.Value })
	return ok
}

// settle gives every result that is no alias a buffer, with the steps during which it is in use.
func (p *plan) settle() {
	for i := range p.steps {
		st := &p.steps[i]
		for _, a := range st.args {
			p.use(a, i)
		}
		for _, r := range st.results {
			if r == none {
				continue
			}
			s := &p.slots[r]
			switch {
			case s.alias != none:
				s.buffers = p.slots[s.alias].buffers
			case st.planned != nil:
				s.buffers = []int{len(p.buffers)}
				p.buffers = append(p.buffers, buffer{bytes: s.view.Bytes(), first: i})
				p.owner = append(p.owner, r)
			default: // Gorgonia's own ops may return their operands' memory
				for _, a := range st.args {
					s.buffers = append(s.buffers, p.slots[a].buffers...)
				}
				slices.Sort(s.buffers)
				s.buffers = slices.Compact(s.buffers)
			}
			p.use(r, i)
			if s.kept {
				p.use(r, len(p.steps))
			}
		}
	}
}

// use keeps the memory of slot s through step i.
func (p *plan) use(s, i int) {
	for _, b := range p.slots[s].buffers {
		p.buffers[b].last = max(p.buffers[b].last, i)
	}
}

// nodeSlot makes the slot of an input, or of a result that the Machine doesn't plan, from what its node says.
func (p *plan) nodeSlot(n *gorgonia.Node) (s int, err error) {
	defer func() {
		if r := recover(); r != nil { // a tuple or a function has no dtype
			err = attn.Errorf(ops.ErrUnsupported, "machine", "type", "a tensor or a scalar", "%v", n.Type())
		}
	}()
	s = p.newSlot(slot{node: n, name: nodeName(n), dtype: n.Dtype(), shape: n.Shape(), view: attn.Of(ops.DTypeOf(n.Dtype()), n.Shape()...), alias: none, step: none})
	p.nodes[n] = s
	return s, nil
}

// nodeName is a node's name as an argument of errors.
func nodeName(n *gorgonia.Node) string { return fmt.Sprintf("%q", n.Name()) }

// describe names a node in errors by ID, name and op, never by its value.
func describe(n *gorgonia.Node) string {
	switch {
	case n.Op() == nil:
		return fmt.Sprintf("node %d (%s, an input)", n.ID(), nodeName(n))
	case isConstant(n):
		return fmt.Sprintf("node %d (a constant)", n.ID())
	}
	return fmt.Sprintf("node %d (%s, op %v)", n.ID(), nodeName(n), n.Op())
}
