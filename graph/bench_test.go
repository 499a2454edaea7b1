package graph_test

import (
	"testing"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/gaze-ml/gaze/graph"
	"github.com/gaze-ml/gaze/internal/llamatest"
	"github.com/gaze-ml/gaze/ops"
)

// decodeStep is a decode step of SmolLM2-135M's sizes, with random weights, at position 200.
func decodeStep(b *testing.B, dev graph.Device) *graph.Machine {
	b.Helper()
	m := newTiny(tinyConfig{layers: 30, hidden: 576, inner: 1536, vocab: 49152, heads: 9, kvHeads: 3, headDim: 64, pairing: ops.Adjacent, tied: true, weights: ops.Q4_1}, 1)
	cache, err := graph.NewKVCache(dev, graph.KVCacheConfig{Layers: m.layers, KVHeads: m.kvHeads, HeadDim: m.headDim, PageSize: 16, Pages: 16, DType: tensor.Float32})
	must(b, cache, err)
	batch, err := cache.DecodeBatch(1, 256)
	must(b, batch, err)
	seq, err := cache.NewSequence(200)
	must(b, seq, err)
	if err := batch.Set(graph.Request{Seq: seq, Tokens: 1}); err != nil {
		b.Fatal(err)
	}
	g := gorgonia.NewGraph()
	cfg, w := m.nodes(g)
	kvs, err := cache.Nodes(g)
	must(b, kvs, err)
	step, err := batch.Nodes(g)
	must(b, step, err)
	ids, err := graph.Input(g, "ids", tensor.New(tensor.WithShape(1), tensor.WithBacking([]int32{1})))
	must(b, ids, err)
	logits, err := graph.Llama(ids, cfg, w, kvs, step)
	must(b, logits, err)
	machine, err := graph.NewMachine(g, graph.On(dev))
	must(b, machine, err)
	if err := machine.RunAll(); err != nil {
		b.Fatal(err)
	}
	return machine
}

// What the Machine adds to a decode step: the same calls through RunAll and in a bare loop, on the Go backend and on one that
// does nothing.
func BenchmarkDecodeStep(b *testing.B) {
	for _, c := range []struct {
		name string
		dev  graph.Device
	}{{"cpu", graph.CPU}, {"idle", llamatest.Idle{Device: graph.CPU}}} {
		m := decodeStep(b, c.dev)
		for _, via := range []struct {
			name string
			run  func() error
		}{{"machine", m.RunAll}, {"loop", m.Loop}} {
			b.Run("backend="+c.name+"/via="+via.name, func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if err := via.run(); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(m.Steps()), "ops/step")
			})
		}
	}
}

// What it costs to plan the runs of that graph.
func BenchmarkNewMachine(b *testing.B) {
	g := gorgonia.NewGraph()
	n := &net{t: b, g: g}
	x, w := n.node(tensor.Float32, 4, 64), gorgonia.NewVector(g, tensor.Float32, gorgonia.WithShape(64), gorgonia.WithName("w"))
	for range 500 {
		y, err := ops.RMSNorm(x, w, 1e-5)
		x = must(b, y, err)
	}
	for b.Loop() {
		if _, err := graph.NewMachine(g); err != nil {
			b.Fatal(err)
		}
	}
}
