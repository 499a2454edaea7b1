package ops

import (
	"fmt"
	"hash"

	"github.com/chewxy/hm"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/gaze-ml/gaze/internal/attn"
)

// Projection is an op that names a further result of its only operand's op, such as the LSE of an attention node. It
// computes nothing: the data edge to the operand is what orders it.
type Projection struct {
	of     several
	index  int
	name   string
	result Result
	desc   []attn.Tensor
	serial uint64
	given  *header // under of's lock
}

// several is an op with more than one result.
type several interface {
	Planned
	want(i int) (Result, error)
	last(i int, h **header) *tensor.Dense
}

var _ gorgonia.SDOp = (*Projection)(nil)

// project makes the node that names result i of n's op.
func project(name string, n *gorgonia.Node, i int) (*gorgonia.Node, error) {
	g, err := graphOf(name, []string{"out"}, []*gorgonia.Node{n})
	if err != nil {
		return nil, err
	}
	of := n.Op().(several) // the callers have looked
	r, err := of.want(i)
	if err != nil {
		return nil, err
	}
	d, err := describeNode(name, "out", n)
	if err != nil {
		return nil, err
	}
	p := &Projection{of: of, index: i, name: name, result: r, desc: []attn.Tensor{d}}
	return addUnique(g, p, &p.serial, []*gorgonia.Node{n})
}

// Index is the result of the operand's op that the node names.
func (p *Projection) Index() int { return p.index }

// Arity is 1.
func (p *Projection) Arity() int { return 1 }

// Type is made afresh on each call.
func (p *Projection) Type() hm.Type { return fnType(p.desc, p.result.Tensor) }

// InferShape gives the result's shape.
func (p *Projection) InferShape(...gorgonia.DimSizer) (tensor.Shape, error) {
	return tensor.Shape(p.result.Shape[:p.result.Rank]).Clone(), nil
}

// Do returns what the operand's op wrote in its last run.
func (p *Projection) Do(...gorgonia.Value) (v gorgonia.Value, err error) {
	defer recovered(p.name, &err)
	d := p.of.last(p.index, &p.given)
	if d == nil {
		return nil, attn.Errorf(ErrArgument, p.name, "out", "an op that has run", "%v, which has not", p.of)
	}
	return d, nil
}

// ReturnsPtr is true.
func (p *Projection) ReturnsPtr() bool { return true }

// CallsExtern is false.
func (p *Projection) CallsExtern() bool { return false }

// OverwritesInput is -1.
func (p *Projection) OverwritesInput() int { return -1 }

// WriteHash writes which result it is, and the serial number.
func (p *Projection) WriteHash(h hash.Hash) {
	fmt.Fprintf(h, "gaze.%s %d %d", p.name, p.index, p.serial)
}

// Hashcode is WriteHash in 32 bits.
func (p *Projection) Hashcode() uint32 { return hashcode(p) }

// String is the result's name.
func (p *Projection) String() string { return p.name }

// DiffWRT is false.
func (p *Projection) DiffWRT(inputs int) []bool { return make([]bool, inputs) }

// SymDiff refuses.
func (p *Projection) SymDiff(gorgonia.Nodes, *gorgonia.Node, *gorgonia.Node) (gorgonia.Nodes, error) {
	return nil, noGradient(p.name)
}
