package graph

import (
	"math"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/gaze-ml/gaze/ops"
)

// LayerConfig is what a decoder layer's weights don't say.
type LayerConfig struct {
	Heads, KVHeads, HeadDim int
	Eps                     float64 // of the norms
	Scale                   float64 // of the attention; 0: 1/sqrt(HeadDim)
	RoPE                    RoPEConfig
}

// RoPEConfig is how queries and keys turn while keys are appended.
type RoPEConfig struct {
	Base    float64
	Pairing ops.Pairing
	Dim     int // the leading elements of a head that turn; 0: all
	Scaling ops.RoPEScaling
	Factors *gorgonia.Node // [Dim/2] float32, or nil
}

// LayerWeights are one decoder layer's weights: matrices [out, in] in any format of [ops.Linear], norms [H]. Biases may be nil.
type LayerWeights struct {
	AttnNorm            *gorgonia.Node // [H]
	Q, K, V             *gorgonia.Node // [Heads·D, H], [KVHeads·D, H] twice
	QBias, KBias, VBias *gorgonia.Node
	O                   *gorgonia.Node // [H, Heads·D]
	MLPNorm             *gorgonia.Node // [H]
	Gate, Up            *gorgonia.Node // [I, H]
	Down                *gorgonia.Node // [H, I]

	KScale, VScale float64 // of the layer's Float8E4M3 cache, which stores x/scale; 0: 1
}

// DecoderLayer is one layer of Llama over T rows of hidden size H:
//
//	h = x + residual
//	h = h + O·attention(RoPE(Q·norm(h)), RoPE(K·norm(h)), V·norm(h))
//	h = h + Down·(silu(Gate·norm(h)) · Up·norm(h))
//
// x and residual are [T,H] of one dtype, which may be wider than the cache's; residual is nil for the first layer. It appends to kv, attends over what it has become, and returns
// the layer's two summands, which the next layer's norm adds on the way: their sum is h. Touvron et al., "LLaMA", 2023.
func DecoderLayer(x, residual *gorgonia.Node, cfg LayerConfig, w LayerWeights, kv ops.KV[*gorgonia.Node], s Step) (out, sum *gorgonia.Node, after ops.KV[*gorgonia.Node], err error) {
	var b chain
	h, sum := b.norm(x, residual, w.AttnNorm, cfg.Eps)
	q := b.heads(h, w.Q, w.QBias, cfg.Heads, cfg.HeadDim)
	k, v := b.heads(h, w.K, w.KBias, cfg.KVHeads, cfg.HeadDim), b.heads(h, w.V, w.VBias, cfg.KVHeads, cfg.HeadDim)
	after = then(&b, func() (ops.KV[*gorgonia.Node], error) {
		opts := append(cfg.RoPE.options(), ops.WithRotatedQuery(q), ops.WithKVScales(orOne(w.KScale), orOne(w.VScale)))
		return ops.AppendKV(kv, k, v, s.BlockTables, s.Positions, s.Requests, opts...)
	})
	q = b.node(func() (*gorgonia.Node, error) { return ops.RotatedQuery(after) })
	a := b.attention(q, after, cfg, w, s)
	h, sum = b.norm(b.linear(b.rows(a, cfg.Heads*cfg.HeadDim), w.O, nil), sum, w.MLPNorm, cfg.Eps)
	gate, up := b.linear(h, w.Gate, nil), b.linear(h, w.Up, nil)
	h = b.node(func() (*gorgonia.Node, error) { return ops.SiLUMul(gate, up) })
	out = b.linear(h, w.Down, nil)
	return out, sum, after, b.err
}

// chain builds node after node and stops at the first error.
type chain struct{ err error }

// then is the next thing of a chain, or nothing after an error.
func then[T any](b *chain, build func() (T, error)) (x T) {
	if b.err == nil {
		x, b.err = build()
	}
	return x
}

func (b *chain) node(build func() (*gorgonia.Node, error)) *gorgonia.Node { return then(b, build) }

func (b *chain) norm(x, residual, w *gorgonia.Node, eps float64) (normed, sum *gorgonia.Node) {
	if residual == nil {
		return b.node(func() (*gorgonia.Node, error) { return ops.RMSNorm(x, w, eps) }), x
	}
	normed = b.node(func() (n *gorgonia.Node, err error) {
		n, sum, err = ops.AddRMSNorm(x, residual, w, eps)
		return n, err
	})
	return normed, sum
}

func (b *chain) linear(x, w, bias *gorgonia.Node) *gorgonia.Node {
	return b.node(func() (*gorgonia.Node, error) {
		if bias == nil {
			return ops.Linear(x, w)
		}
		return ops.Linear(x, w, ops.WithBias(bias))
	})
}

// heads is a projection [T,H] → [T,heads,dim].
func (b *chain) heads(x, w, bias *gorgonia.Node, heads, dim int) *gorgonia.Node {
	y := b.linear(x, w, bias)
	return b.node(func() (*gorgonia.Node, error) { return ops.Reshape(y, x.Shape()[0], heads, dim) })
}

// rows is [T,heads,dim] → [T,n].
func (b *chain) rows(x *gorgonia.Node, n int) *gorgonia.Node {
	return b.node(func() (*gorgonia.Node, error) { return ops.Reshape(x, x.Shape()[0], n) })
}

// options are how [ops.AppendKV] turns queries and keys.
func (cfg RoPEConfig) options() []ops.Option {
	opts := []ops.Option{ops.WithRoPE(cfg.Base), ops.WithPairing(cfg.Pairing), ops.WithRoPEScaling(cfg.Scaling)}
	if cfg.Dim != 0 {
		opts = append(opts, ops.WithRotaryDim(cfg.Dim))
	}
	if cfg.Factors != nil {
		opts = append(opts, ops.WithRoPEFactors(cfg.Factors))
	}
	return opts
}

func orOne(scale float64) float64 {
	if scale == 0 {
		return 1
	}
	return scale
}

func (b *chain) attention(q *gorgonia.Node, kv ops.KV[*gorgonia.Node], cfg LayerConfig, w LayerWeights, s Step) *gorgonia.Node {
	if b.err != nil {
		return nil
	}
	scale := cfg.Scale
	if scale == 0 {
		scale = 1 / math.Sqrt(float64(cfg.HeadDim))
	}
	// Queries of 16 bits go with a cache of 16 bits or less.
	own, cache := q.Dtype(), kv.Tensors()[0].Dtype()
	switch cache {
	case ops.Float16, ops.BFloat16:
		q = b.convert(q, cache)
	case ops.Float8E4M3:
		if own == tensor.Float32 {
			q = b.convert(q, ops.Float16)
		}
	}
	return b.convert(b.node(func() (*gorgonia.Node, error) {
		rows := q.Shape()[0]
		opts := []ops.Option{ops.WithBMM1Scale(scale * orOne(w.KScale)), ops.WithBMM2Scale(orOne(w.VScale))}
		switch {
		case s.QLens == nil:
			return ops.BatchDecode(q, kv, s.BlockTables, s.SeqLens, s.MaxSeqLen, opts...)
		case cache == ops.Float8E4M3: // prefill takes such a cache under queries of the same dtype only
			return ops.BatchDecode(q, kv, s.BlockTables, s.SeqLens, s.MaxSeqLen, append(opts, ops.WithVarLenQueries(rows, s.CumQLens))...)
		}
		return ops.BatchPrefill(q, kv, scale, s.QLens, s.SeqLens, rows, s.MaxSeqLen, true, ops.WithBlockTables(s.BlockTables))
	}), own)
}

// convert gives x another dtype.
func (b *chain) convert(x *gorgonia.Node, dt tensor.Dtype) *gorgonia.Node {
	if b.err != nil || x.Dtype() == dt {
		return x
	}
	return b.node(func() (*gorgonia.Node, error) { return ops.Cast(x, dt) })
}
