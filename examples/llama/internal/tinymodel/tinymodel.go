// Package tinymodel makes small random Llamas for tests: as GGUF files, and as the float64 formula that they are held against.
package tinymodel

import (
	"bytes"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gaze-ml/gaze/examples/llama/gguf"
	"github.com/gaze-ml/gaze/internal/attn"
	"github.com/gaze-ml/gaze/internal/llamaref"
	"github.com/gaze-ml/gaze/internal/quant"
)

// Shape is a model's sizes.
type Shape struct {
	Layers, Hidden, FFN, Heads, KVHeads, HeadDim, Vocab, Context int

	Types        []gguf.Type // of the matrices, in turn; F32 where a row is no whole number of blocks
	Tied, Biases bool
}

// Plain is a shape that crosses page boundaries soon and takes no time.
var Plain = Shape{Layers: 2, Hidden: 64, FFN: 96, Heads: 6, KVHeads: 2, HeadDim: 16, Vocab: 50, Context: 160, Types: []gguf.Type{gguf.F32}, Tied: true}

// AllTypes are the element types of matrices.
var AllTypes = []gguf.Type{gguf.Q6_K, gguf.Q4_K, gguf.Q5_K, gguf.Q8_0, gguf.Q4_0, gguf.Q4_1, gguf.Q5_0, gguf.Q5_1, gguf.F16, gguf.BF16, gguf.F32}

// File is a random Llama. Keys and Tensors may be changed before Bytes, and Ref to match.
type File struct {
	Keys    map[string]any
	Tensors []gguf.Tensor
	Ref     llamaref.Model // what the file says, in float64

	shape Shape
	rand  *rand.Rand
}

// New draws a model.
func New(s Shape, seed uint64) *File {
	f := &File{shape: s, rand: rand.New(rand.NewPCG(seed, seed)), Keys: map[string]any{
		"general.architecture":                   "llama",
		"llama.block_count":                      uint32(s.Layers),
		"llama.embedding_length":                 uint32(s.Hidden),
		"llama.feed_forward_length":              uint32(s.FFN),
		"llama.attention.head_count":             uint32(s.Heads),
		"llama.attention.head_count_kv":          uint32(s.KVHeads),
		"llama.attention.key_length":             uint32(s.HeadDim),
		"llama.attention.value_length":           uint32(s.HeadDim),
		"llama.context_length":                   uint32(s.Context),
		"llama.attention.layer_norm_rms_epsilon": float32(1e-5),
		"llama.rope.freq_base":                   float32(10000),
	}}
	q, kv := s.Heads*s.HeadDim, s.KVHeads*s.HeadDim
	f.Ref = llamaref.Model{Heads: s.Heads, KVHeads: s.KVHeads, HeadDim: s.HeadDim, Eps: float64(float32(1e-5)), RoPE: llamaref.RoPE{Base: 10000, Adjacent: true}}
	next := 0
	matrix := func(name string, out, in int) []float64 {
		t := s.Types[next%len(s.Types)]
		next++
		if in%t.BlockElems() != 0 {
			t = gguf.F32
		}
		return f.Add(name, t, 1/math.Sqrt(float64(in)), 0, out, in)
	}
	f.Ref.Embedding = matrix("token_embd.weight", s.Vocab, s.Hidden)
	if !s.Tied {
		f.Ref.Head = matrix("output.weight", s.Vocab, s.Hidden)
	}
	f.Ref.Norm = f.Add("output_norm.weight", gguf.F32, 0.1, 1, s.Hidden)
	for i := range s.Layers {
		at := func(name string) string { return fmt.Sprintf("blk.%d.%s", i, name) }
		l := llamaref.Layer{
			AttnNorm: f.Add(at("attn_norm.weight"), gguf.F32, 0.1, 1, s.Hidden), MLPNorm: f.Add(at("ffn_norm.weight"), gguf.F32, 0.1, 1, s.Hidden),
			Q: matrix(at("attn_q.weight"), q, s.Hidden), K: matrix(at("attn_k.weight"), kv, s.Hidden), V: matrix(at("attn_v.weight"), kv, s.Hidden),
			O: matrix(at("attn_output.weight"), s.Hidden, q), Gate: matrix(at("ffn_gate.weight"), s.FFN, s.Hidden),
			Up: matrix(at("ffn_up.weight"), s.FFN, s.Hidden), Down: matrix(at("ffn_down.weight"), s.Hidden, s.FFN),
		}
		if s.Biases {
			l.QBias, l.KBias, l.VBias = f.Add(at("attn_q.bias"), gguf.F32, 1, 0, q), f.Add(at("attn_k.bias"), gguf.F32, 1, 0, kv), f.Add(at("attn_v.bias"), gguf.F32, 1, 0, kv)
		}
		f.Ref.Layers = append(f.Ref.Layers, l)
	}
	return f
}

// attnTypes are gaze's names of the file's types.
var attnTypes = map[gguf.Type]attn.DType{
	gguf.F32: attn.F32, gguf.F16: attn.F16, gguf.BF16: attn.BF16, gguf.Q8_0: attn.Q8_0, gguf.Q4_0: attn.Q4_0, gguf.Q4_1: attn.Q4_1,
	gguf.Q5_0: attn.Q5_0, gguf.Q5_1: attn.Q5_1, gguf.Q4_K: attn.Q4_K, gguf.Q5_K: attn.Q5_K, gguf.Q6_K: attn.Q6_K,
}

// Add adds a tensor with drawn values and gives those that its type keeps.
func (f *File) Add(name string, t gguf.Type, spread, mean float64, shape ...int) []float64 {
	n := 1
	for _, d := range shape {
		n *= d
	}
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(mean + spread*f.rand.NormFloat64())
	}
	return f.AddValues(name, t, x, shape...)
}

// AddValues adds a tensor and gives the values that its type keeps.
func (f *File) AddValues(name string, t gguf.Type, x []float32, shape ...int) []float64 {
	data := make([]byte, len(x)/t.BlockElems()*t.BlockBytes())
	kept := make([]float32, len(x))
	quant.Quantize(attnTypes[t], data, x)
	quant.Dequantize(attnTypes[t], kept, data)
	f.Tensors = append(f.Tensors, gguf.Tensor{Name: name, Type: t, Shape: shape, Data: data})
	exact := make([]float64, len(kept))
	for i, v := range kept {
		exact[i] = float64(v)
	}
	return exact
}

// Bytes is the file. change, unless nil, edits each tensor and says whether to keep it.
func (f *File) Bytes(t testing.TB, change func(*gguf.Tensor) (keep bool)) []byte {
	t.Helper()
	var w gguf.Writer
	for _, key := range slices.Sorted(maps.Keys(f.Keys)) {
		if f.Keys[key] != nil {
			w.Set(key, f.Keys[key])
		}
	}
	for _, x := range f.Tensors {
		if x.Shape = slices.Clone(x.Shape); change == nil || change(&x) {
			w.Add(x)
		}
	}
	var b bytes.Buffer
	if _, err := w.WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// Tokens draws n tokens of the vocabulary.
func (f *File) Tokens(n int) []int32 {
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = int32(f.rand.IntN(f.shape.Vocab))
	}
	return ids
}
