package graph_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/gaze-ml/gaze/graph"
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
func (m *tiny) nodes(t testing.TB, g *gorgonia.ExprGraph) (graph.LlamaConfig, graph.LlamaWeights) {
	t.Helper()
	in := func(name string) *gorgonia.Node {
		if m.tensors[name] == nil {
			return nil
		}
		n, err := graph.Input(g, name, m.tensors[name])
		return must(t, n, err)
	}
	w := graph.LlamaWeights{Embedding: in("embedding"), Norm: in("norm"), Head: in("head")}
	for l := range m.layers {
		at := func(name string) *gorgonia.Node { return in(string(rune('0'+l)) + "." + name) }
		w.Layers = append(w.Layers, graph.LayerWeights{AttnNorm: at("attn_norm"), Q: at("q"), K: at("k"), V: at("v"), O: at("o"),
			QBias: at("q_bias"), KBias: at("k_bias"), VBias: at("v_bias"), MLPNorm: at("mlp_norm"), Gate: at("gate"), Up: at("up"), Down: at("down")})
	}
	return graph.LlamaConfig{DType: tensor.Float32, LayerConfig: graph.LayerConfig{Heads: m.heads, KVHeads: m.kvHeads, HeadDim: m.headDim, Eps: tinyEps,
		RoPE: graph.RoPEConfig{Base: tinyBase, Pairing: m.pairing, Dim: m.rotary, Scaling: m.scaling, Factors: in("factors")}}}, w
}

// logits computes the model in float64, every position of a prompt at once, without a cache.
func (m *tiny) logits(tokens []int32) [][]float64 {
	x := make([][]float64, len(tokens))
	for t, id := range tokens {
		x[t] = append([]float64(nil), m.exact["embedding"][int(id)*m.hidden:][:m.hidden]...)
	}
	for l := range m.layers {
		at := func(name string) []float64 { return m.exact[string(rune('0'+l))+"."+name] }
		var q, k, v [][]float64
		for t := range x {
			h := normed(x[t], at("attn_norm"))
			q = append(q, m.turned(t, plus(times(at("q"), h), at("q_bias"))))
			k = append(k, m.turned(t, plus(times(at("k"), h), at("k_bias"))))
			v = append(v, plus(times(at("v"), h), at("v_bias")))
		}
		for t := range x {
			x[t] = plus(x[t], times(at("o"), m.attend(q[t], k[:t+1], v)))
			h := normed(x[t], at("mlp_norm"))
			gate, up := times(at("gate"), h), times(at("up"), h)
			for i, g := range gate {
				gate[i] = g / (1 + math.Exp(-g)) * up[i]
			}
			x[t] = plus(x[t], times(at("down"), gate))
		}
	}
	head := m.exact["head"]
	if m.tied {
		head = m.exact["embedding"]
	}
	for t := range x {
		x[t] = times(head, normed(x[t], m.exact["norm"]))
	}
	return x
}

func normed(x, w []float64) []float64 {
	sum := 0.0
	for _, v := range x {
		sum += v * v
	}
	y := make([]float64, len(x))
	for i, v := range x {
		y[i] = v / math.Sqrt(sum/float64(len(x))+tinyEps) * w[i]
	}
	return y
}

func times(w, x []float64) []float64 {
	y := make([]float64, len(w)/len(x))
	for o := range y {
		for i, v := range x {
			y[o] += w[o*len(x)+i] * v
		}
	}
	return y
}

func plus(x, y []float64) []float64 {
	z := append([]float64(nil), x...)
	for i := range y {
		z[i] += y[i]
	}
	return z
}

// attend is softmax(q·k/sqrt(D))·v for the query heads of one position.
func (m *tiny) attend(q []float64, k, v [][]float64) []float64 {
	d := m.headDim
	out := make([]float64, len(q))
	for h := range m.heads {
		kv := h / (m.heads / m.kvHeads) * d
		sum := 0.0
		for j := range k {
			s := 0.0
			for i := range d {
				s += q[h*d+i] * k[j][kv+i]
			}
			p := math.Exp(s / math.Sqrt(float64(d)))
			sum += p
			for i := range d {
				out[h*d+i] += p * v[j][kv+i]
			}
		}
		for i := range d {
			out[h*d+i] /= sum
		}
	}
	return out
}

// turned is RoPE of all heads at position t, with Llama 3's stretching and the file's factors.
func (m *tiny) turned(t int, x []float64) []float64 {
	y := append([]float64(nil), x...)
	r := m.turning()
	for h := 0; h < len(x); h += m.headDim {
		for i := range r / 2 {
			f := math.Pow(tinyBase, -2*float64(i)/float64(r))
			if s := m.scaling; s.Factor != 0 {
				length := 2 * math.Pi / f
				switch low, high := float64(s.OriginalContext)/s.LowFreqFactor, float64(s.OriginalContext)/s.HighFreqFactor; {
				case length > low:
					f /= s.Factor
				case length >= high:
					smooth := (float64(s.OriginalContext)/length - s.LowFreqFactor) / (s.HighFreqFactor - s.LowFreqFactor)
					f = (1-smooth)*f/s.Factor + smooth*f
				}
			}
			if m.factors {
				f /= m.exact["factors"][i]
			}
			a, b := h+i, h+i+r/2
			if m.pairing == ops.Adjacent {
				a, b = h+2*i, h+2*i+1
			}
			sin, cos := math.Sincos(float64(t) * f)
			y[a], y[b] = x[a]*cos-x[b]*sin, x[a]*sin+x[b]*cos
		}
	}
	return y
}
