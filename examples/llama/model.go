package main

import (
	"context"
	"errors"
	"fmt"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/gaze-ml/gaze/examples/llama/gguf"
	"github.com/gaze-ml/gaze/graph"
	"github.com/gaze-ml/gaze/ops"
)

// llama is a model in graphs: one for a single token, and one for each of a few numbers of prompt tokens, made when first
// needed. They share the weights, which stay in the file, and the KV cache.
type llama struct {
	device  *graph.CPUDevice
	weights *weights
	cache   *graph.KVCache
	seq     *graph.Sequence
	context int
	stages  map[int]*stage // by rows
}

// stage is one graph and what it works on.
type stage struct {
	batch   *graph.Batch
	ids     []int32 // one a row, the memory of the graph's input
	machine *graph.Machine
	logits  *gorgonia.Node // [1, vocab], after the last token
}

// chunks are the prompt graphs' rows. Rows without a token cost as much as others.
var chunks = []int{256, 64, 16}

// kvTypes are the names of the KV cache's types.
var kvTypes = map[string]tensor.Dtype{"f32": tensor.Float32, "f16": ops.Float16, "bf16": ops.BFloat16, "e4m3": ops.Float8E4M3}

// openLlama makes the model of a file that stays open.
func openLlama(f *gguf.File, c modelConfig) (model, error) {
	w, err := loadWeights(f, c.hparams)
	if err != nil {
		return nil, err
	}
	m := &llama{device: graph.NewCPU(c.Threads), weights: w, context: c.Context, stages: map[int]*stage{}}
	m.cache, err = graph.NewKVCache(m.device, graph.KVCacheConfig{Layers: c.Layers, KVHeads: c.KVHeads, HeadDim: c.HeadDim,
		PageSize: c.PageSize, Pages: (c.Context + c.PageSize - 1) / c.PageSize, DType: kvTypes[c.KVType]})
	if err == nil {
		m.seq, err = m.cache.NewSequence(0)
	}
	if err == nil {
		_, err = m.stage(1)
	}
	if err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return m, nil
}

// stage is the graph for so many tokens at once.
func (m *llama) stage(rows int) (*stage, error) {
	if s := m.stages[rows]; s != nil {
		return s, nil
	}
	s := &stage{ids: make([]int32, rows)}
	var err error
	if rows == 1 {
		s.batch, err = m.cache.DecodeBatch(1, m.context)
	} else {
		s.batch, err = m.cache.PrefillBatch(1, rows, m.context)
	}
	if err != nil {
		return nil, err
	}
	g := gorgonia.NewGraph()
	cfg, w, err := m.weights.nodes(g)
	if err != nil {
		return nil, err
	}
	kvs, err := m.cache.Nodes(g)
	if err != nil {
		return nil, err
	}
	step, err := s.batch.Nodes(g)
	if err != nil {
		return nil, err
	}
	ids, err := graph.Input(g, "ids", tensor.New(tensor.WithShape(rows), tensor.WithBacking(s.ids)))
	if err != nil {
		return nil, err
	}
	if s.logits, err = graph.Llama(ids, cfg, w, kvs, step); err != nil {
		return nil, err
	}
	if s.machine, err = graph.NewMachine(g, graph.On(m.device)); err != nil {
		return nil, err
	}
	m.stages[rows] = s
	return s, nil
}

// Prefill runs the prompt in chunks.
func (m *llama) Prefill(ctx context.Context, ids []int32) (logits []float32, err error) {
	if len(ids) == 0 {
		return nil, &contextError{0, m.context}
	}
	for len(ids) > 0 {
		rows := chunkRows(len(ids))
		n := min(rows, len(ids))
		if logits, err = m.run(ctx, rows, ids[:n]); err != nil {
			return nil, err
		}
		ids = ids[n:]
	}
	return logits, nil
}

// chunkRows is the largest graph of which n tokens fill more than three quarters, else the smallest.
func chunkRows(n int) int {
	if n == 1 {
		return 1
	}
	for _, c := range chunks {
		if 4*n > 3*c {
			return c
		}
	}
	return chunks[len(chunks)-1]
}

// Step runs one token.
func (m *llama) Step(ctx context.Context, id int32) (logits []float32, err error) {
	return m.run(ctx, 1, []int32{id})
}

// run gives the tokens slots in the cache and runs a graph over them. After an error the sequence is as it was.
func (m *llama) run(ctx context.Context, rows int, ids []int32) ([]float32, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s, err := m.stage(rows)
	if err != nil {
		return nil, err
	}
	had := m.seq.Len()
	if had+len(ids) > m.context {
		return nil, &contextError{had + len(ids), m.context}
	}
	if err := m.cache.Append(m.seq, len(ids)); err != nil {
		return nil, err
	}
	logits, err := s.run(m.seq, ids)
	if err != nil {
		return nil, errors.Join(err, m.cache.Truncate(m.seq, had))
	}
	return logits, nil
}

func (s *stage) run(seq *graph.Sequence, ids []int32) ([]float32, error) {
	clear(s.ids[copy(s.ids, ids):])
	if err := s.batch.Set(graph.Request{Seq: seq, Tokens: len(ids)}); err != nil {
		return nil, err
	}
	if err := s.machine.RunAll(); err != nil {
		return nil, err
	}
	v, err := s.machine.Value(s.logits)
	if err != nil {
		return nil, err
	}
	logits, ok := v.Data().([]float32)
	if !ok {
		return nil, fmt.Errorf("model: got logits of %v, want float32", v.Dtype())
	}
	return logits, nil
}

// Close ends the model's threads.
func (m *llama) Close() error {
	var errs []error
	for _, s := range m.stages {
		errs = append(errs, s.machine.Close())
	}
	return errors.Join(append(errs, m.device.Close())...)
}
