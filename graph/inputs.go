package graph

import (
	"fmt"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/gaze-ml/gaze/internal/attn"
	"github.com/gaze-ml/gaze/ops"
)

// Input makes an input node of t's dtype and shape with t bound to it, so that no Let is needed. Where the graph has a node of
// that name already, the new one's gets a number: Gorgonia would take two inputs of one name and shape for one node.
func Input(g *gorgonia.ExprGraph, name string, t *tensor.Dense) (*gorgonia.Node, error) {
	if g == nil {
		return nil, attn.Errorf(ops.ErrArgument, "input", "graph", "a graph", "nil")
	}
	if t == nil {
		return nil, attn.Errorf(ops.ErrArgument, "input", name, "a tensor", "nil")
	}
	if t.Dtype().Type == nil {
		return nil, attn.Errorf(ops.ErrArgument, "input", name, "a tensor made by tensor.New or NewTensor", "one without a dtype")
	}
	for unique, i := name, 2; ; i++ {
		if len(g.ByName(unique)) == 0 {
			name = unique
			break
		}
		unique = fmt.Sprintf("%s#%d", name, i)
	}
	n := gorgonia.NewTensor(g, t.Dtype(), t.Dims(), gorgonia.WithShape(t.Shape()...), gorgonia.WithName(name))
	return n, gorgonia.Let(n, t)
}

// Nodes makes the inputs of all layers, "kv_cache.0" and so on, with the cache's tensors bound to them.
func (c *KVCache) Nodes(g *gorgonia.ExprGraph) ([]ops.KV[*gorgonia.Node], error) {
	kvs := make([]ops.KV[*gorgonia.Node], len(c.layers))
	for i, t := range c.layers {
		n, err := Input(g, fmt.Sprintf("kv_cache.%d", i), t)
		if err != nil {
			return nil, err
		}
		kvs[i] = ops.StackedKV(n, c.cfg.Layout)
	}
	return kvs, nil
}

// Step is the input nodes that say what a step is about; see [Batch] for what each holds.
type Step struct {
	BlockTables *gorgonia.Node // [B, maxPages] int32
	SeqLens     *gorgonia.Node // [B] int32
	QLens       *gorgonia.Node // [B] int32; nil in a decode step, where row b is request b's
	CumQLens    *gorgonia.Node // [B+1] int32, with QLens
	Positions   *gorgonia.Node // [T] int32
	Requests    *gorgonia.Node // [T] int32
	LastRows    *gorgonia.Node // [R] int32, the rows whose logits are wanted; nil: all
	MaxSeqLen   int
}

// Nodes makes the inputs of a step, with the batch's tensors bound to them.
func (b *Batch) Nodes(g *gorgonia.ExprGraph) (Step, error) {
	s := Step{MaxSeqLen: b.maxSeqLen}
	for _, in := range []struct {
		name   string
		node   **gorgonia.Node
		t      *tensor.Dense
		always bool
	}{
		{"block_tables", &s.BlockTables, b.BlockTables, true},
		{"seq_lens", &s.SeqLens, b.SeqLens, true},
		{"q_lens", &s.QLens, b.QLens, false},
		{"cum_q_lens", &s.CumQLens, b.CumQLens, false},
		{"positions", &s.Positions, b.Positions, true},
		{"requests", &s.Requests, b.Requests, true},
		{"last_rows", &s.LastRows, b.LastRows, false},
	} {
		if !in.always && !b.packed {
			continue
		}
		var err error
		if *in.node, err = Input(g, in.name, in.t); err != nil {
			return Step{}, err
		}
	}
	return s, nil
}
