package gaze_test

import (
	"errors"
	"fmt"
	"testing"
	"unsafe"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/gaze-ml/gaze/graph"
	"github.com/gaze-ml/gaze/internal/attn"
	"github.com/gaze-ml/gaze/internal/llamatest"
	"github.com/gaze-ml/gaze/ops"
)

// BenchmarkMachine is what the Machine adds to a decode step of SmolLM2-135M's sizes: the same calls by RunAll and in a plain loop, on
// the Go backend, and on one that does nothing.
func BenchmarkMachine(b *testing.B) {
	for _, dev := range []graph.Device{graph.CPU, llamatest.Idle{Device: graph.CPU}} {
		name := dev.Backend().Name()
		g, err := decodeStep()
		if err != nil {
			b.Fatal(err)
		}
		m, err := graph.NewMachine(g, graph.On(dev))
		if err != nil {
			b.Fatal(err)
		}
		calls, free, err := llamatest.Calls(dev, g)
		if err != nil {
			b.Fatal(err)
		}
		b.Run("backend="+name+"/via=machine", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := m.RunAll(); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(len(calls)), "calls/op")
		})
		b.Run("backend="+name+"/via=loop", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				for _, c := range calls {
					if err := c.Run(dev.Backend()); err != nil {
						b.Fatal(err)
					}
				}
			}
			b.ReportMetric(float64(len(calls)), "calls/op")
		})
		if err := errors.Join(free(), m.Close()); err != nil {
			b.Fatal(err)
		}
	}
}

// decodeStep is a step of one token at position 200, over weights of zeros, which take the same time as others.
func decodeStep() (*gorgonia.ExprGraph, error) {
	g := gorgonia.NewGraph()
	var errs []error
	in := func(name string, d attn.DType, shape ...int) *gorgonia.Node {
		shape[len(shape)-1] /= d.BlockLen()
		n, err := graph.Input(g, name, ops.Alloc(attn.Of(d, shape...)))
		errs = append(errs, err)
		return n
	}
	cfg := graph.LlamaConfig{DType: tensor.Float32, LayerConfig: graph.LayerConfig{Heads: heads, KVHeads: kvHeads, HeadDim: headDim, Eps: 1e-5, RoPE: graph.RoPEConfig{Base: 1e5, Pairing: ops.Adjacent}}}
	w := graph.LlamaWeights{Embedding: in("embedding", attn.Q8_0, vocab, hidden), Norm: in("norm", attn.F32, hidden)}
	for i := range layers {
		at := func(name string, out, n int) *gorgonia.Node {
			return in(fmt.Sprintf("%d.%s", i, name), attn.Q4_1, out, n)
		}
		w.Layers = append(w.Layers, graph.LayerWeights{
			AttnNorm: in(fmt.Sprintf("%d.attn_norm", i), attn.F32, hidden), MLPNorm: in(fmt.Sprintf("%d.mlp_norm", i), attn.F32, hidden),
			Q: at("q", heads*headDim, hidden), K: at("k", kvHeads*headDim, hidden), V: at("v", kvHeads*headDim, hidden), O: at("o", hidden, heads*headDim),
			Gate: at("gate", ffn, hidden), Up: at("up", ffn, hidden), Down: at("down", hidden, ffn),
		})
	}
	cache, err := graph.NewKVCache(graph.CPU, graph.KVCacheConfig{Layers: layers, KVHeads: kvHeads, HeadDim: headDim, PageSize: 16, Pages: 16, DType: tensor.Float32})
	if err := errors.Join(append(errs, err)...); err != nil {
		return nil, err
	}
	seq, err := cache.NewSequence(201)
	if err != nil {
		return nil, err
	}
	batch, err := cache.DecodeBatch(1, 256)
	if err != nil {
		return nil, err
	}
	step, err := batch.Nodes(g)
	if err != nil {
		return nil, err
	}
	kvs, err := cache.Nodes(g)
	if err != nil {
		return nil, err
	}
	if _, err := graph.Llama(in("ids", attn.I32, 1), cfg, w, kvs, step); err != nil {
		return nil, err
	}
	return g, errors.Join(append(errs, batch.Set(graph.Request{Seq: seq, Tokens: 1}))...)
}

// bytesOf is a packed host tensor's memory.
func bytesOf(t *attn.Tensor) []byte { return unsafe.Slice((*byte)(t.Ptr), t.Bytes()) }
