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

// slot is one value of a run in one place: an input, a result of an op, or the memory of another slot under a new name.
type slot struct {
	node    *gorgonia.Node // nil where no node names the result
	name    string         // the node's, for errors
	dtype   tensor.Dtype   // the node's
	shape   tensor.Shape
	view    attn.Tensor    // dtype, shape and, during runs, where it lies; absent for what only Gorgonia's own ops understand
	value   gorgonia.Value // the header that goes with view; made when asked for
	place   place
	alias   int   // the slot whose memory it is, or none
	step    int   // the step that gives it its value, or none
	input   int   // of plan.inputs, or none
	readers []int // the steps that have it as an operand, in order
	viewed  bool  // an op of gaze is among them
	kept    bool  // holds its memory until the next run
	buffers []int // the planned memory in which it may lie

	in     [places]int // the slots of the same value, by place, or none
	rename ops.Planned // it is nothing but slot of, in any place, under another shape
	of     int
}

// step is one op of a run: one of gaze (planned), one of Gorgonia's own, or a copy of a value to the other place.
type step struct {
	node    *gorgonia.Node
	args    []int       // slots of the operands
	results []int       // slots of the results; none where nobody wants one
	planned ops.Planned // of gaze's ops
	call    ops.Call    // of gaze's ops, except those that only rename memory
	engine  engineOp    // of Gorgonia's own ops that the device runs
	move    bool        // a copy
	place   place       // where operands and results are; a copy's result
	backend ops.Backend // that runs call
	bound   bool        // call knows where operands and results lie

	in, out []attn.Tensor    // of planned ops
	vals    []gorgonia.Value // of Gorgonia's own ops
}

const none = -1

// plan is what NewMachine learns from a graph.
type plan struct {
	target
	nodes     map[*gorgonia.Node]int // slots by node
	slots     []slot
	inputs    []input
	steps     []step
	buffers   []buffer
	owner     []int // the slot that each buffer was made for
	decisions []NodePlacement
}

// reading guards graphs while they are read: Gorgonia's accessors fill an index on the side.
var reading sync.Mutex

// newPlan orders the graph's nodes and describes every value. Only what outputs need is run, or all if there are none.
func newPlan(g *gorgonia.ExprGraph, o *options) (*plan, error) {
	reading.Lock()
	defer reading.Unlock()
	p := &plan{target: targetOf(o.dev), nodes: map[*gorgonia.Node]int{}}
	outputs, keep := o.outputs, o.keep
	order, children, err := inOrder(g)
	if err != nil {
		return nil, err
	}
	for _, n := range slices.Concat(outputs, keep, o.resident) {
		if n == nil {
			return nil, attn.Errorf(ops.ErrArgument, "machine", "node", "a node of the graph", "nil")
		}
		if _, ok := children[n]; !ok {
			return nil, attn.Errorf(ops.ErrArgument, "machine", "node", "a node of the graph", "%s, which is not in it", nodeName(n))
		}
	}
	for _, n := range o.resident {
		if n.Op() != nil {
			return nil, attn.Errorf(ops.ErrArgument, "machine", nodeName(n), "an input node, to be resident", "%s", describe(n))
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
			p.slots[p.somewhere(p.nodes[n])].kept = true
		}
	}
	for i := range p.inputs {
		in := &p.inputs[i]
		in.needed = needed[in.node]
		in.resident = isConstant(in.node) || slices.Contains(o.resident, in.node)
	}
	for i := range p.decisions { // a name for an input is where that is read, which is known now
		d := &p.decisions[i]
		if pl, settled := p.native(p.nodes[d.Node]); !settled {
			d.Device = p.devs[pl].Name()
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
		return p.addInput(n)
	case *ops.Projection:
		return p.addProjection(n, op, args)
	case ops.Planned:
		return p.addPlanned(n, op, args)
	default:
		if isConstant(n) {
			return p.addInput(n)
		}
		return p.addOther(n, args)
	}
}

// newSlot adds a slot that is no alias and no input, unless it says so afterwards.
func (p *plan) newSlot(s slot) int {
	i := len(p.slots)
	s.alias, s.step, s.input, s.of, s.in = none, none, none, none, [places]int{none, none}
	s.in[s.place] = i
	p.slots = append(p.slots, s)
	return i
}

// addInput adds a node that has its value from outside: an input, or a constant.
func (p *plan) addInput(n *gorgonia.Node) error {
	s, err := p.nodeSlot(n)
	if err != nil {
		return err
	}
	p.slots[s].input = len(p.inputs)
	p.inputs = append(p.inputs, input{node: n, slot: s, twin: none})
	return nil
}

// addProjection names a result of the operand's step.
func (p *plan) addProjection(n *gorgonia.Node, op *ops.Projection, args []int) error {
	if from := p.slots[args[0]].step; from != none && op.Index() < len(p.steps[from].results) {
		if s := p.steps[from].results[op.Index()]; s != none {
			p.nodes[n] = s
			if p.slots[s].node == nil {
				p.slots[s].node = n
			}
			p.decide(n, p.slots[s].place, p.why(s))
			return nil
		}
	}
	return attn.Errorf(ops.ErrUnsupported, "machine", "operands", fmt.Sprintf("an op with a result %d", op.Index()), "none")
}

// addPlanned adds an op of gaze and its results.
func (p *plan) addPlanned(n *gorgonia.Node, op ops.Planned, args []int) error {
	st := step{node: n, planned: op, call: op.NewCall(), in: make([]attn.Tensor, len(args))}
	for i, a := range args {
		st.in[i] = p.slots[a].view
	}
	rs, err := op.Plan(st.in)
	if err != nil {
		return err
	}
	if st.call == nil {
		p.nodes[n] = p.addRename(n, op, args[0], rs[0].Tensor)
		return nil
	}
	if err := p.choose(&st, rs, args); err != nil {
		return err
	}
	p.bring(&st, args)
	st.out = make([]attn.Tensor, len(rs)) // what is given there is memory
	for _, r := range rs {
		s := none
		if r.Alias >= 0 || r.Wanted {
			s = p.newSlot(slot{view: r.Tensor, place: st.place})
			p.slots[s].step = len(p.steps)
		}
		if r.Alias >= 0 {
			p.slots[s].alias = st.args[r.Alias]
			p.overwrite(st.args[r.Alias])
		}
		st.results = append(st.results, s)
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
	st := step{node: n, results: []int{s}, vals: make([]gorgonia.Value, len(args))}
	p.chooseOther(&st, &p.slots[s].view, args)
	p.slots[s].place, p.slots[s].in = st.place, [places]int{none, none}
	p.slots[s].in[st.place] = s
	p.bring(&st, args)
	p.slots[s].step = len(p.steps)
	p.addStep(st)
	return nil
}

func (p *plan) addStep(st step) {
	for _, a := range st.args {
		p.slots[a].readers = append(p.slots[a].readers, len(p.steps))
		p.slots[a].viewed = p.slots[a].viewed || st.planned != nil || st.move
	}
	p.steps = append(p.steps, st)
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
			case st.planned != nil || st.engine != nil || st.move:
				s.buffers = []int{len(p.buffers)}
				p.buffers = append(p.buffers, buffer{place: st.place, bytes: s.view.Bytes(), first: i})
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
	s = p.newSlot(slot{node: n, name: nodeName(n), dtype: n.Dtype(), shape: n.Shape(), view: attn.Of(ops.DTypeOf(n.Dtype()), n.Shape()...)})
	p.nodes[n] = s
	return s, nil
}

// nodeName is a node's name as an argument of errors. A constant's would be its value.
func nodeName(n *gorgonia.Node) string {
	if isConstant(n) {
		return "constant"
	}
	return fmt.Sprintf("%q", n.Name())
}

// describe names a node in errors by ID, name and op, never by its value.
func describe(n *gorgonia.Node) string {
	switch {
	case isConstant(n):
		return fmt.Sprintf("node %d (a constant)", n.ID())
	case n.Op() == nil:
		return fmt.Sprintf("node %d (%s, an input)", n.ID(), nodeName(n))
	}
	return fmt.Sprintf("node %d (%s, op %v)", n.ID(), nodeName(n), n.Op())
}
