package graph

import (
	"fmt"
	"slices"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/gaze-ml/gaze/internal/attn"
	"github.com/gaze-ml/gaze/ops"
)

// LlamaConfig is what a Llama's weights don't say.
type LlamaConfig struct {
	LayerConfig
	DType tensor.Dtype // of the activations: tensor.Float32, ops.Float16 or ops.BFloat16
}

// LlamaWeights are a model's weights, [out, in] in any format of [ops.Linear] and [ops.Embedding].
type LlamaWeights struct {
	Embedding *gorgonia.Node // [V, H]
	Layers    []LayerWeights
	Norm      *gorgonia.Node // [H]
	Head      *gorgonia.Node // [V, H]; nil: Embedding, tied
}

// Nodes are all weights, each once, for [Resident]. RoPE's factors are not among them: they are the config's.
func (w LlamaWeights) Nodes() []*gorgonia.Node {
	all := []*gorgonia.Node{w.Embedding, w.Norm, w.Head}
	for _, l := range w.Layers {
		all = append(all, l.AttnNorm, l.Q, l.K, l.V, l.QBias, l.KBias, l.VBias, l.O, l.MLPNorm, l.Gate, l.Up, l.Down)
	}
	seen := map[*gorgonia.Node]bool{nil: true}
	return slices.DeleteFunc(all, func(n *gorgonia.Node) bool {
		was := seen[n]
		seen[n] = true
		return was
	})
}

// Llama is a whole model over the token ids [T] int32: the embedding, the layers, each with its own cache of kvs, the norm, and
// the head. The logits are [R,V] for the rows of s.LastRows, [T,V] if that is nil, in cfg.DType.
//
// With s.QLens nil it is a decode step, B requests with one token each; otherwise a prefill of packed requests, which may be
// chunks of longer prompts. Graphs of both kinds and of several sizes can work on the same weights and caches.
func Llama(ids *gorgonia.Node, cfg LlamaConfig, w LlamaWeights, kvs []ops.KV[*gorgonia.Node], s Step) (logits *gorgonia.Node, err error) {
	switch {
	case len(w.Layers) == 0:
		return nil, attn.Errorf(ops.ErrArgument, "llama", "layers", "1 or more", "none")
	case len(kvs) != len(w.Layers):
		return nil, attn.Errorf(ops.ErrArgument, "llama", "kv_cache", fmt.Sprintf("one for each of %d layers", len(w.Layers)), "%d", len(kvs))
	}
	x, err := ops.Embedding(ids, w.Embedding, ops.WithOutDType(cfg.DType))
	if err != nil {
		return nil, err
	}
	var residual *gorgonia.Node
	for i, l := range w.Layers {
		if x, residual, _, err = DecoderLayer(x, residual, cfg.LayerConfig, l, kvs[i], s); err != nil {
			return nil, fmt.Errorf("gaze: llama: layer %d: %w", i, err)
		}
	}
	head := w.Head
	if head == nil {
		head = w.Embedding
	}
	var b chain
	x, _ = b.norm(x, residual, w.Norm, cfg.Eps)
	if s.LastRows != nil {
		rows := x
		x = b.node(func() (*gorgonia.Node, error) { return ops.Embedding(s.LastRows, rows) })
	}
	return b.linear(x, head, nil), b.err
}
