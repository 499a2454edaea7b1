package graph_test

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/gaze-ml/gaze/graph"
	"github.com/gaze-ml/gaze/ops"
)

// The scales of an e4m3 cache are those by which it is written and read: keys and values are rounded as x/scale, whatever the scale,
// and saturate where that is above 448.
func TestCacheScales(t *testing.T) {
	round := rounding(ops.Float8E4M3)
	for _, scale := range []float64{1.0 / 64, 0.75, 32, 1.0 / 1024} {
		cfg := tinies[0].cfg
		cfg.kvScale = scale
		m := newTiny(cfg, 9)
		tokens := m.tokens(rand.New(rand.NewPCG(10, 10)), 14)
		f := m.formula()
		f.RoundCache = func(x float64) float64 { return round(float64(float32(x)/float32(scale))) * scale }
		f.RoundQuery, f.RoundAttention = rounding(ops.Float16), rounding(ops.Float16)
		want := f.Logits(tokens)
		r := newRunnerOf(t, m, tensor.Float32, ops.Float8E4M3)
		seq := r.sequence()
		within(t, "a prompt", 1e-4, r.run(r.prefill, turn{seq, tokens[:9]})[0], want[8])
		for i := 9; i < len(tokens); i++ {
			within(t, "a token", 1e-4, r.run(r.decode, turn{seq, tokens[i : i+1]})[0], want[i])
		}
		plain := m.formula().Logits(tokens)[8]
		off := 0.0
		for i := range plain {
			off = math.Max(off, math.Abs(plain[i]-want[8][i]))
		}
		if saturated := scale < 1.0/500; saturated != (off > 1) {
			t.Errorf("scale %v: rounding moves logits by %.2g", scale, off)
		}
	}
}

// A cache of another dtype takes no scales.
func TestCacheScalesRefused(t *testing.T) {
	cfg := tinies[0].cfg
	cfg.kvScale = 2
	m := newTiny(cfg, 9)
	cache, err := graph.NewKVCache(graph.CPU, graph.KVCacheConfig{Layers: m.layers, KVHeads: m.kvHeads, HeadDim: m.headDim, PageSize: 4, Pages: 4, DType: tensor.Float32})
	must(t, cache, err)
	batch, err := cache.DecodeBatch(1, 16)
	must(t, batch, err)
	g := gorgonia.NewGraph()
	llama, w := m.nodes(g)
	kvs, err := cache.Nodes(g)
	must(t, kvs, err)
	step, err := batch.Nodes(g)
	must(t, step, err)
	ids, err := graph.Input(g, "ids", tensor.New(tensor.WithShape(1), tensor.WithBacking([]int32{1})))
	must(t, ids, err)
	if _, err := graph.Llama(ids, llama, w, kvs, step); err == nil || !strings.Contains(err.Error(), "k_scale") {
		t.Errorf("%v, want an error about k_scale", err)
	}
}
