package graph_test

import (
	"errors"
	"fmt"
	"log"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/gaze-ml/gaze/graph"
	"github.com/gaze-ml/gaze/ops"
)

// One graph, run twice with new values.
func ExampleMachine() {
	g := gorgonia.NewGraph()
	gate := gorgonia.NewMatrix(g, tensor.Float32, gorgonia.WithShape(1, 2), gorgonia.WithName("gate"))
	up := gorgonia.NewMatrix(g, tensor.Float32, gorgonia.WithShape(1, 2), gorgonia.WithName("up"))
	out, err := ops.SiLUMul(gate, up)
	if err != nil {
		log.Fatal(err)
	}
	m, err := graph.NewMachine(g) // or gorgonia.NewTapeMachine(g): the same numbers
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	if err := m.Let(gate, tensor.New(tensor.WithShape(1, 2), tensor.WithBacking([]float32{100, -100}))); err != nil {
		log.Fatal(err)
	}
	for _, x := range []float32{1, 2} {
		if err := m.Let(up, tensor.New(tensor.WithShape(1, 2), tensor.WithBacking([]float32{x, x}))); err != nil {
			log.Fatal(err)
		}
		if err := m.RunAll(); err != nil {
			log.Fatal(err)
		}
		host, err := m.Host(out)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(host.Data())
	}
	// Output:
	// [100 -0]
	// [200 -0]
}

// A pool of 4 pages of 16 tokens: a fork shares its parent's pages until it writes, and a full cache says what it lacks.
func ExampleKVCache() {
	cache, err := graph.NewKVCache(graph.CPU, graph.KVCacheConfig{Layers: 2, KVHeads: 2, HeadDim: 64, PageSize: 16, Pages: 4, DType: ops.BFloat16})
	if err != nil {
		log.Fatal(err)
	}
	prompt, err := cache.NewSequence(20)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("a prompt of 20 tokens:", cache.FreePages(), "pages free")
	fork, err := cache.Fork(prompt, 20)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("its fork:             ", cache.FreePages())
	if err := cache.Advance(fork); err != nil {
		log.Fatal(err)
	}
	fmt.Println("the fork's next token:", cache.FreePages())
	err = cache.Append(prompt, 40)
	fmt.Println(errors.Is(err, ops.ErrCacheFull), err)
	// Output:
	// a prompt of 20 tokens: 2 pages free
	// its fork:              2
	// the fork's next token: 1
	// true gaze: kv_cache: pages: cache full: got 1 of 4 pages free, want 2 pages
}

// A decode loop: a Llama's graph, a cache, and the tables of a batch, which each step rewrites in place.
func ExampleLlama() {
	model := newTiny(tinies[0].cfg, 1) // some weights
	cache, err := graph.NewKVCache(graph.CPU, graph.KVCacheConfig{Layers: model.layers, KVHeads: model.kvHeads, HeadDim: model.headDim, PageSize: 16, Pages: 8, DType: tensor.Float32})
	if err != nil {
		log.Fatal(err)
	}
	batch, err := cache.DecodeBatch(1, 100)
	if err != nil {
		log.Fatal(err)
	}
	g := gorgonia.NewGraph()
	kvs, err := cache.Nodes(g)
	if err != nil {
		log.Fatal(err)
	}
	step, err := batch.Nodes(g)
	if err != nil {
		log.Fatal(err)
	}
	token := []int32{7}
	ids, err := graph.Input(g, "ids", tensor.New(tensor.WithShape(1), tensor.WithBacking(token)))
	if err != nil {
		log.Fatal(err)
	}
	cfg, weights := model.nodes(g)
	logits, err := graph.Llama(ids, cfg, weights, kvs, step)
	if err != nil {
		log.Fatal(err)
	}
	m, err := graph.NewMachine(g)
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()

	seq, err := cache.NewSequence(0)
	if err != nil {
		log.Fatal(err)
	}
	for range 5 {
		if err := cache.Advance(seq); err != nil {
			log.Fatal(err)
		}
		if err := batch.Set(graph.Request{Seq: seq, Tokens: 1}); err != nil {
			log.Fatal(err)
		}
		if err := m.RunAll(); err != nil {
			log.Fatal(err)
		}
		v, err := m.Value(logits)
		if err != nil {
			log.Fatal(err)
		}
		best := 0
		for i, x := range v.Data().([]float32) {
			if x > v.Data().([]float32)[best] {
				best = i
			}
		}
		token[0] = int32(best) // the graph's input
	}
	fmt.Println(seq.Len(), "tokens")
	// Output: 5 tokens
}
