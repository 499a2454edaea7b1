package ops

import (
	"gorgonia.org/gorgonia"

	"github.com/gaze-ml/gaze/internal/attn"
)

// builder gathers an op's operands with their nodes.
type builder[C any, P callOf[C]] struct {
	op[C, P]
	nodes []*gorgonia.Node
}

// need adds an operand, present or not: a nil node is refused by apply.
func (b *builder[C, P]) need(n *gorgonia.Node, o operand[C]) {
	b.in = append(b.in, o)
	b.nodes = append(b.nodes, n)
}

// may adds an operand unless its node is nil.
func (b *builder[C, P]) may(n *gorgonia.Node, o operand[C]) {
	if n != nil {
		b.need(n, o)
	}
}

// output adds a result that the op allocates, or that is the caller's buffer where into isn't nil.
func (b *builder[C, P]) output(name string, into *gorgonia.Node, at func(*C) *attn.Tensor) {
	alias := -1
	if into != nil {
		alias = len(b.in)
		b.need(into, field(name, at))
	}
	b.out = append(b.out, result[C]{at: at, alias: alias})
}

// optional adds a result that is computed only when a node names it, unless the caller gave a buffer.
func (b *builder[C, P]) optional(name string, into *gorgonia.Node, at func(*C) *attn.Tensor, describe func(*C) attn.Tensor) {
	b.output(name, into, at)
	if into == nil {
		b.out[len(b.out)-1].describe = describe
	}
}

// build puts the op into its nodes' graph.
func (b *builder[C, P]) build() (*gorgonia.Node, error) { return b.op.apply(b.nodes...) }
