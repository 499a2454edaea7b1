// Package model runs a Llama from its GGUF file on gaze's ops: the sequences of one paged KV cache, some tokens of some of them a
// step.
package model

import (
	"context"
	"errors"
	"fmt"

	"gorgonia.org/tensor"

	"github.com/gaze-ml/gaze/examples/llama/gguf"
	"github.com/gaze-ml/gaze/graph"
	"github.com/gaze-ml/gaze/ops"
)

// Config is what a model is opened with.
type Config struct {
	Context  int          // most tokens of a sequence, at most HParams.MaxContext
	Requests int          // most sequences of a step
	Tokens   int          // that the KV cache holds, of all sequences together
	PageSize int          // tokens per page of the KV cache
	Chunk    int          // most prompt tokens of a step
	Threads  int          // 0: one for each core
	KV       tensor.Dtype // of the KV cache: tensor.Float32, ops.Float16, ops.BFloat16 or ops.Float8E4M3
	Device   graph.Device // nil: the CPU; it must be able to record, and outlive the model

	// Candidates, unless 0, is how many of the largest logits of a row Run gives, which is all that leaves a device then. Where the
	// vocabulary has no more, or it is more than the most that devices look for, 1024, Run gives all.
	Candidates int
}

// Pages is the number of pages of the cache.
func (c Config) Pages() int { return (c.Tokens + c.PageSize - 1) / c.PageSize }

// check returns an [*ops.Error] for the first size that no model can have.
func (c Config) check(h HParams) error {
	for _, s := range []struct {
		name      string
		got, most int
	}{
		{"context", c.Context, h.MaxContext}, {"requests", c.Requests, 1 << 16}, {"tokens", c.Tokens, maxContext}, {"page_size", c.PageSize, 1 << 16},
		{"chunk", c.Chunk, 1 << 20}, {"threads", c.Threads + 1, 1 << 16}, {"candidates", c.Candidates + 1, maxWidth},
	} {
		if s.got < 1 || s.got > s.most {
			return &ops.Error{Kind: ops.ErrArgument, Op: "llama", Arg: s.name, Got: fmt.Sprint(s.got), Want: fmt.Sprintf("1 to %d", s.most)}
		}
	}
	return nil
}

// Model is a Llama in graphs: some for steps with one token of each of several sequences, some for prompts, made when first needed.
// They share the weights, which stay in the file, and the KV cache. Its methods must not run at once.
//
// On a device activations are ops.Float16 and so are the weights, dequantised when the model is opened, for it has no kernels for blocks;
// every step is one replay of what was captured when its graph was made.
type Model struct {
	config  Config
	device  graph.Device
	cpu     *graph.CPUDevice // nil on another device
	weights *weights
	cache   *graph.KVCache
	stages  map[shape]*stage
}

// Part is what a step does for one sequence: it runs the sequence's last len(IDs) tokens, whose slots it must have already.
type Part struct {
	Seq *graph.Sequence
	IDs []int32
}

// Logits are what a model says of the tokens that may come next.
type Logits struct {
	Values []float32
	IDs    []int32 // of Values, which then are the largest in descending order, equals by id; nil: Values are every token's, by id
}

// Likeliest is the token with the largest logit, the lowest id of equals.
func (l Logits) Likeliest() int32 {
	if l.IDs != nil {
		return l.IDs[0]
	}
	best := 0
	for i, x := range l.Values {
		if x > l.Values[best] {
			best = i
		}
	}
	return int32(best)
}

// Open makes the model of a file that stays open until Close. An error is a [*gguf.Error] about the file or an [*ops.Error].
func Open(f *gguf.File, h HParams, c Config) (*Model, error) {
	if err := c.check(h); err != nil {
		return nil, err
	}
	w, err := loadWeights(f, h)
	if err != nil {
		return nil, err
	}
	if c.KV == ops.Float8E4M3 {
		if w.scales, err = w.cacheScales(); err != nil {
			return nil, err
		}
	}
	m := &Model{config: c, device: c.Device, weights: w, stages: map[shape]*stage{}}
	if m.device == nil {
		m.cpu = graph.NewCPU(c.Threads)
		m.device = m.cpu
	} else {
		err = w.upload(m.device)
	}
	if err == nil {
		m.cache, err = graph.NewKVCache(m.device, c.cache(h))
	}
	if err == nil {
		_, err = m.stage(shape{rows: 1, requests: 1})
	}
	if err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return m, nil
}

func (c Config) cache(h HParams) graph.KVCacheConfig {
	return graph.KVCacheConfig{Layers: h.Layers, KVHeads: h.KVHeads, HeadDim: h.HeadDim, PageSize: c.PageSize, Pages: c.Pages(), DType: c.KV}
}

// Cache is where the sequences of Run are.
func (m *Model) Cache() *graph.KVCache { return m.cache }

// Run runs one step and returns the logits after the last token of each part, which are valid until the next call. Where it
// fails the sequences keep the slots that they have. The error is ctx's once ctx is done.
func (m *Model) Run(ctx context.Context, parts []Part) ([]Logits, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	sh, err := m.config.fit(parts)
	if err != nil {
		return nil, err
	}
	s, err := m.stage(sh)
	if err != nil {
		return nil, err
	}
	return s.run(parts)
}

// Piece is how many of n tokens that are to be run, more than one of them, are best run in one step.
func (m *Model) Piece(n int) int { return m.config.piece(n) }

// Close ends the model's threads, or gives back its memory of the device.
func (m *Model) Close() error {
	var errs []error
	for _, s := range m.stages {
		errs = append(errs, s.machine.Close())
	}
	if m.cache != nil {
		errs = append(errs, m.cache.Close())
	}
	if m.cpu != nil {
		errs = append(errs, m.cpu.Close())
	}
	return errors.Join(append(errs, m.weights.release())...)
}
