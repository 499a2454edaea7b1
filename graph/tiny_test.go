package graph_test

import (
	"math"
	"math/rand/v2"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/gaze-ml/gaze/graph"
	"github.com/gaze-ml/gaze/internal/llamaref"
	"github.com/gaze-ml/gaze/internal/quant"
	"github.com/gaze-ml/gaze/ops"
)

// tiny is a random Llama: its weights as tensors for graphs, and as float64 for the formula.
type tiny struct {
	tinyConfig
	tensors map[string]*tensor.Dense
	exact   map[string][]float64
}

type tinyConfig struct {
	layers, hidden, inner, vocab int
	heads, kvHeads, headDim      int
	pairing                      ops.Pairing
	rotary                       int
	scaling                      ops.RoPEScaling
	factors, biases, tied        bool
	weights                      tensor.Dtype // of the matrices
	kvScale                      float64      // of a Float8E4M3 cache; 0: not given
}

const (
	tinyEps  = 1e-5
	tinyBase = 10000.0
)

func newTiny(c tinyConfig, seed uint64) *tiny {
	m := &tiny{c, map[string]*tensor.Dense{}, map[string][]float64{}}
	r := rand.New(rand.NewPCG(seed, seed))
	m.matrix(r, "embedding", c.vocab, c.hidden, 1)
	if !c.tied {
		m.matrix(r, "head", c.vocab, c.hidden, 1)
	}
	m.vector(r, "norm", c.hidden, 1, 0.2)
	if c.factors {
		m.vector(r, "factors", m.turning()/2, 2, 0.5)
	}
	for l := range c.layers {
		at := func(name string) string { return string(rune('0'+l)) + "." + name }
		m.vector(r, at("attn_norm"), c.hidden, 1, 0.2)
		m.vector(r, at("mlp_norm"), c.hidden, 1, 0.2)
		m.matrix(r, at("q"), c.heads*c.headDim, c.hidden, 3)
		m.matrix(r, at("k"), c.kvHeads*c.headDim, c.hidden, 3)
		m.matrix(r, at("v"), c.kvHeads*c.headDim, c.hidden, 1)
		m.matrix(r, at("o"), c.hidden, c.heads*c.headDim, 1)
		m.matrix(r, at("gate"), c.inner, c.hidden, 1)
		m.matrix(r, at("up"), c.inner, c.hidden, 1)
		m.matrix(r, at("down"), c.hidden, c.inner, 1)
		if c.biases {
			m.vector(r, at("q_bias"), c.heads*c.headDim, 0, 1)
			m.vector(r, at("k_bias"), c.kvHeads*c.headDim, 0, 1)
			m.vector(r, at("v_bias"), c.kvHeads*c.headDim, 0, 1)
		}
	}
	return m
}

func (m *tiny) turning() int {
	if m.rotary != 0 {
		return m.rotary
	}
	return m.headDim
}

// matrix draws [out, in] weights of a spread that keeps activations near 1, stored in the model's format.
func (m *tiny) matrix(r *rand.Rand, name string, out, in int, gain float64) {
	x := make([]float32, out*in)
	for i := range x {
		x[i] = float32(r.NormFloat64() * gain / math.Sqrt(float64(in)))
	}
	d := ops.DTypeOf(m.weights)
	t := tensor.New(tensor.Of(m.weights), tensor.WithShape(out, in/d.BlockLen()))
	if d.Quantised() {
		quant.Quantize(d, raw(t), x)
		quant.Dequantize(d, x, raw(t))
	} else {
		t, _ = ops.NewTensor(m.weights, t.Shape(), x)
		x, _ = ops.Float32s(t)
	}
	m.tensors[name], m.exact[name] = t, wide(x)
}

func (m *tiny) vector(r *rand.Rand, name string, n int, mean, spread float64) {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(mean + spread*r.NormFloat64())
		if mean != 0 {
			x[i] = max(x[i], float32(mean/2))
		}
	}
	m.tensors[name], m.exact[name] = tensor.New(tensor.WithShape(n), tensor.WithBacking(x)), wide(x)
}

func wide(x []float32) []float64 {
	y := make([]float64, len(x))
	for i, v := range x {
		y[i] = float64(v)
	}
	return y
}

// nodes makes the weights' inputs.
func (m *tiny) nodes(g *gorgonia.ExprGraph) (graph.LlamaConfig, graph.LlamaWeights) {
	in := func(name string) *gorgonia.Node {
		if m.tensors[name] == nil {
			return nil
		}
		n, err := graph.Input(g, name, m.tensors[name])
		if err != nil {
			panic(err)
		}
		return n
	}
	w := graph.LlamaWeights{Embedding: in("embedding"), Norm: in("norm"), Head: in("head")}
	for l := range m.layers {
		at := func(name string) *gorgonia.Node { return in(string(rune('0'+l)) + "." + name) }
		w.Layers = append(w.Layers, graph.LayerWeights{AttnNorm: at("attn_norm"), Q: at("q"), K: at("k"), V: at("v"), O: at("o"),
			QBias: at("q_bias"), KBias: at("k_bias"), VBias: at("v_bias"), MLPNorm: at("mlp_norm"), Gate: at("gate"), Up: at("up"), Down: at("down"), KScale: m.kvScale, VScale: m.kvScale})
	}
	return graph.LlamaConfig{DType: tensor.Float32, LayerConfig: graph.LayerConfig{Heads: m.heads, KVHeads: m.kvHeads, HeadDim: m.headDim, Eps: tinyEps,
		RoPE: graph.RoPEConfig{Base: tinyBase, Pairing: m.pairing, Dim: m.rotary, Scaling: m.scaling, Factors: in("factors")}}}, w
}

// logits computes the model in float64.
func (m *tiny) logits(tokens []int32) [][]float64 { return m.formula().Logits(tokens) }

// rounded computes it with keys and values rounded to the dtype of a cache, and queries and the attention's output to half.
func (m *tiny) rounded(tokens []int32, cache, half tensor.Dtype) [][]float64 {
	f := m.formula()
	f.RoundCache, f.RoundQuery, f.RoundAttention = rounding(cache), rounding(half), rounding(half)
	return f.Logits(tokens)
}

func rounding(dt tensor.Dtype) func(float64) float64 {
	return func(x float64) float64 {
		d, err := ops.NewTensor(dt, tensor.Shape{1}, []float32{float32(x)})
		if err != nil {
			panic(err)
		}
		y, err := ops.Float32s(d)
		if err != nil {
			panic(err)
		}
		return float64(y[0])
	}
}

func (m *tiny) formula() *llamaref.Model {
	ref := llamaref.Model{Heads: m.heads, KVHeads: m.kvHeads, HeadDim: m.headDim, Eps: tinyEps,
		RoPE: llamaref.RoPE{Base: tinyBase, Adjacent: m.pairing == ops.Adjacent, Dim: m.rotary, Factors: m.exact["factors"],
			Factor: m.scaling.Factor, Low: m.scaling.LowFreqFactor, High: m.scaling.HighFreqFactor, Context: float64(m.scaling.OriginalContext)},
		Embedding: m.exact["embedding"], Norm: m.exact["norm"], Head: m.exact["head"]}
	for l := range m.layers {
		at := func(name string) []float64 { return m.exact[string(rune('0'+l))+"."+name] }
		ref.Layers = append(ref.Layers, llamaref.Layer{AttnNorm: at("attn_norm"), Q: at("q"), K: at("k"), V: at("v"), O: at("o"),
			QBias: at("q_bias"), KBias: at("k_bias"), VBias: at("v_bias"), MLPNorm: at("mlp_norm"), Gate: at("gate"), Up: at("up"), Down: at("down")})
	}
	return &ref
}
