// Package llamatest holds a device's Llama against the CPU's: a small random model that decodes and prefills on a paged cache, its steps
// captured once and replayed. Any device may be put to it, a recording driver or a GPU.
package llamatest

import (
	"fmt"
	"math"
	"math/rand/v2"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/gaze-ml/gaze/graph"
	"github.com/gaze-ml/gaze/ops"
)

// The model's sizes: such as every kernel takes.
const (
	layers, hidden, inner, vocab = 2, 256, 384, 320
	heads, kvHeads, headDim      = 4, 2, 64
	pageSize, pages, maxSeqLen   = 16, 24, 96
	decodeRequests               = 3
	prefillRequests, prefillRows = 2, 32
)

// model is one device's graphs over one set of weights.
type model struct {
	dev     graph.Device
	dt      tensor.Dtype
	weights map[string]*tensor.Dense // on the device
	order   []string
	cache   *graph.KVCache
	decode  *stage
	prefill *stage
}

// stage is a step's graph with its capture.
type stage struct {
	batch   *graph.Batch
	ids     []int32
	machine *graph.Machine
	capture *graph.Capture
	logits  *gorgonia.Node
	greedy  *gorgonia.Node
}

// newModel draws the weights, the same for every device, in dt but for the norms' float32.
func newModel(dev graph.Device, dt tensor.Dtype, seed uint64) (m *model, err error) {
	m = &model{dev: dev, dt: dt, weights: map[string]*tensor.Dense{}}
	defer func() {
		if err != nil {
			_ = m.close()
		}
	}()
	r := rand.New(rand.NewPCG(seed, seed))
	add := func(name string, dt tensor.Dtype, mean, spread float64, shape ...int) {
		x := make([]float32, tensor.Shape(shape).TotalSize())
		for i := range x {
			x[i] = float32(mean + spread*r.NormFloat64())
		}
		var t *tensor.Dense
		if err == nil {
			t, err = ops.NewTensor(dt, shape, x)
		}
		if err == nil {
			m.weights[name], err = graph.Upload(dev, t)
			m.order = append(m.order, name)
		}
	}
	matrix := func(name string, out, in int, gain float64) { add(name, dt, 0, gain/math.Sqrt(float64(in)), out, in) }
	matrix("embedding", vocab, hidden, 16)
	add("norm", tensor.Float32, 1, 0.2, hidden)
	for l := range layers {
		at := func(name string) string { return fmt.Sprintf("%d.%s", l, name) }
		add(at("attn_norm"), tensor.Float32, 1, 0.2, hidden)
		add(at("mlp_norm"), tensor.Float32, 1, 0.2, hidden)
		matrix(at("q"), heads*headDim, hidden, 2)
		matrix(at("k"), kvHeads*headDim, hidden, 2)
		matrix(at("v"), kvHeads*headDim, hidden, 1)
		matrix(at("o"), hidden, heads*headDim, 1)
		matrix(at("gate"), inner, hidden, 1)
		matrix(at("up"), inner, hidden, 1)
		matrix(at("down"), hidden, inner, 1)
	}
	matrix("head", vocab, hidden, 4)
	if err != nil {
		return m, err
	}
	if m.cache, err = graph.NewKVCache(dev, graph.KVCacheConfig{Layers: layers, KVHeads: kvHeads, HeadDim: headDim, PageSize: pageSize, Pages: pages, DType: dt}); err != nil {
		return m, err
	}
	b, err := m.cache.DecodeBatch(decodeRequests, maxSeqLen)
	if err != nil {
		return m, err
	}
	if m.decode, err = m.stage(b); err != nil {
		return m, err
	}
	if b, err = m.cache.PrefillBatch(prefillRequests, prefillRows, maxSeqLen); err != nil {
		return m, err
	}
	m.prefill, err = m.stage(b)
	return m, err
}

// stage builds a step, and captures it with an empty batch.
func (m *model) stage(b *graph.Batch) (*stage, error) {
	s := &stage{batch: b, ids: make([]int32, b.Positions.Shape()[0])}
	g := gorgonia.NewGraph()
	nodes := map[string]*gorgonia.Node{}
	var err error
	for _, name := range m.order {
		if nodes[name], err = graph.Input(g, name, m.weights[name]); err != nil {
			return nil, err
		}
	}
	w := graph.LlamaWeights{Embedding: nodes["embedding"], Norm: nodes["norm"], Head: nodes["head"]}
	for l := range layers {
		at := func(name string) *gorgonia.Node { return nodes[fmt.Sprintf("%d.%s", l, name)] }
		w.Layers = append(w.Layers, graph.LayerWeights{AttnNorm: at("attn_norm"), Q: at("q"), K: at("k"), V: at("v"), O: at("o"),
			MLPNorm: at("mlp_norm"), Gate: at("gate"), Up: at("up"), Down: at("down")})
	}
	kvs, err := m.cache.Nodes(g)
	if err != nil {
		return nil, err
	}
	step, err := b.Nodes(g)
	if err != nil {
		return nil, err
	}
	ids, err := graph.Input(g, "ids", tensor.New(tensor.WithShape(len(s.ids)), tensor.WithBacking(s.ids)))
	if err != nil {
		return nil, err
	}
	cfg := graph.LlamaConfig{DType: m.dt, LayerConfig: graph.LayerConfig{Heads: heads, KVHeads: kvHeads, HeadDim: headDim, Eps: 1e-5,
		RoPE: graph.RoPEConfig{Base: 10000, Pairing: ops.Adjacent}}}
	if s.logits, err = graph.Llama(ids, cfg, w, kvs, step); err != nil {
		return nil, err
	}
	if s.greedy, err = ops.Argmax(s.logits); err != nil {
		return nil, err
	}
	if s.machine, err = graph.NewMachine(g, graph.On(m.dev), graph.Keep(s.logits)); err != nil {
		return nil, err
	}
	s.capture, err = s.machine.Capture()
	return s, err
}

func (m *model) close() (err error) {
	for _, s := range []*stage{m.decode, m.prefill} {
		if s != nil {
			err = join(err, s.machine.Close())
		}
	}
	if m.cache != nil {
		err = join(err, m.cache.Close())
	}
	for _, t := range m.weights {
		err = join(err, graph.Release(m.dev, t))
	}
	return err
}

// Step makes a model that was given a token, and gives a decode step of it that is replayed, without a look at the logits, and what
// gives everything back. The step repeats the token's position.
func Step(dev graph.Device, dt tensor.Dtype) (step, close func() error, err error) {
	m, err := newModel(dev, dt, 1)
	if err != nil {
		return nil, nil, err
	}
	seq, err := m.cache.NewSequence(1)
	if err != nil {
		return nil, nil, join(err, m.close())
	}
	reqs := []graph.Request{{Seq: seq, Tokens: 1}}
	return func() error {
		m.decode.ids[0]++
		m.decode.ids[0] %= vocab
		if err := m.decode.batch.Set(reqs...); err != nil {
			return err
		}
		return m.decode.capture.Run()
	}, m.close, nil
}
