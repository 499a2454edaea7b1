package graph_test

import (
	"maps"
	"testing"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/gaze-ml/gaze/graph"
	"github.com/gaze-ml/gaze/ops"
)

// A layer is as few calls as there are ops for: norms add the residual, the append turns queries and keys, nothing is copied or converted
// where one dtype is used throughout.
func TestLayerCalls(t *testing.T) {
	const layers = 3
	m := newTiny(tinyConfig{layers: layers, hidden: 32, inner: 48, vocab: 20, heads: 4, kvHeads: 2, headDim: 8, factors: true, weights: tensor.Float32}, 1)
	cache, err := graph.NewKVCache(graph.CPU, graph.KVCacheConfig{Layers: layers, KVHeads: m.kvHeads, HeadDim: m.headDim, PageSize: 4, Pages: 4, DType: tensor.Float32})
	must(t, cache, err)
	batch, err := cache.DecodeBatch(2, 16)
	must(t, batch, err)
	g := gorgonia.NewGraph()
	cfg, w := m.nodes(g)
	kvs, err := cache.Nodes(g)
	must(t, kvs, err)
	step, err := batch.Nodes(g)
	must(t, step, err)
	ids, err := graph.Input(g, "ids", tensor.New(tensor.WithShape(2), tensor.WithBacking([]int32{1, 2})))
	must(t, ids, err)
	_, err = graph.Llama(ids, cfg, w, kvs, step)
	must(t, g, err)
	got := map[string]int{}
	for _, n := range g.AllNodes() {
		if o, ok := n.Op().(ops.Planned); ok && o.String() != "reshape" { // which names memory anew
			got[o.String()]++
		}
	}
	want := map[string]int{"embedding": 1, "rms_norm": 2*layers + 1, "linear": 7*layers + 1, "append_kv": layers, "decode": layers, "silu_mul": layers}
	if !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
