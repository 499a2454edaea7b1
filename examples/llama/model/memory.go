package model

import (
	"math"
	"slices"

	"github.com/gaze-ml/gaze/examples/llama/gguf"
	"github.com/gaze-ml/gaze/ops"
)

// Memory is what a model takes, in bytes.
type Memory struct {
	Weights int64 // the file's tensors, which are mapped, or their copies on a device
	Cache   int64 // keys and values of every page
	Buffers int64 // results inside the graphs, at most: if each of them is needed
}

// Total is the sum.
func (m Memory) Total() int64 { return add(add(m.Weights, m.Cache), m.Buffers) }

// Estimate says what a model will take, before anything of it is made.
func Estimate(f *gguf.File, h HParams, c Config) Memory {
	var m Memory
	for _, t := range f.Tensors {
		n := int64(len(t.Data))
		if c.Device != nil && len(t.Shape) > 1 {
			n = bytes(c.elementBytes(), t.Elems())
		}
		m.Weights = add(m.Weights, n)
	}
	m.Cache = bytes(2*ops.DTypeOf(c.KV).Size(), h.Layers, h.KVHeads, h.HeadDim, c.PageSize, c.Pages())
	for _, n := range c.singles() {
		m.Buffers = add(m.Buffers, c.buffers(h, shape{rows: n, requests: n}))
	}
	for _, requests := range slices.Compact([]int{1, c.Requests}) {
		for _, n := range c.prompts(requests) {
			m.Buffers = add(m.Buffers, c.buffers(h, shape{rows: n, requests: requests, packed: true}))
		}
	}
	return m
}

// buffers is what a graph's results take: in each row the residual stream beside the widest part of a layer, which is the MLP (the
// normed row, gate and up, or those and their product) or the attention (queries, as they were and turned, keys and values), with
// an eighth more for gaps between them; and the logits, with the candidates among them.
func (c Config) buffers(h HParams, s shape) int64 {
	float := c.elementBytes()
	q, kv := h.Heads*h.HeadDim, h.KVHeads*h.HeadDim
	row := max(h.Hidden+3*h.FFN, 2*h.Hidden+2*h.FFN, 2*h.Hidden+2*q+2*kv)
	logits := add(bytes(float, s.requests, h.Vocab+h.Hidden), bytes(4+4, s.requests, c.candidates(h.Vocab)))
	return add(bytes(float, s.rows, row+row/8), logits)
}

// bytes multiplies sizes, which may be hostile.
func bytes(sizes ...int) int64 {
	n := 1.0
	for _, s := range sizes {
		n *= float64(s)
	}
	if n >= math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(n)
}

// add adds sizes, up to the largest int64.
func add(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}
