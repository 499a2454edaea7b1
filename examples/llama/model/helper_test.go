package model

import (
	"context"
	"errors"
	"math"
	"testing"

	"gorgonia.org/tensor"

	"github.com/gaze-ml/gaze/examples/llama/gguf"
	"github.com/gaze-ml/gaze/graph"
)

// config is for requests of so many tokens.
func config(requests, context int) Config {
	return Config{Context: context, Requests: requests, Tokens: requests * context, PageSize: 8, Chunk: 256, Threads: 2, KV: tensor.Float32}
}

func parse(t testing.TB, data []byte) (*gguf.File, HParams) {
	t.Helper()
	f, err := gguf.Parse(data)
	if err != nil {
		t.Fatal(err)
	}
	h, err := ReadHParams(f)
	if err != nil {
		t.Fatal(err)
	}
	return f, h
}

// open makes the model of a file, which is closed, twice, after the test.
func open(t testing.TB, data []byte, c Config) *Model {
	t.Helper()
	f, h := parse(t, data)
	return opened(t, f, h, c)
}

func opened(t testing.TB, f *gguf.File, h HParams, c Config) *Model {
	t.Helper()
	m, err := Open(f, h, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for range 2 {
			if err := m.Close(); err != nil {
				t.Error(err)
			}
		}
	})
	return m
}

// chat is one sequence of a model.
type chat struct {
	t   testing.TB
	m   *Model
	seq *graph.Sequence
}

func newChat(t testing.TB, m *Model) *chat {
	t.Helper()
	seqs, err := m.sequences(1)
	if err != nil {
		t.Fatal(err)
	}
	return &chat{t, m, seqs[0]}
}

// prefill runs a prompt in the model's pieces.
func (c *chat) prefill(ids []int32) []float32 {
	c.t.Helper()
	logits, err := c.m.prompt(context.Background(), c.seq, ids)
	if err != nil {
		c.t.Fatal(err)
	}
	return logits.Values
}

// step runs tokens in one step.
func (c *chat) step(ids ...int32) []float32 {
	c.t.Helper()
	logits, err := c.try(ids...)
	if err != nil {
		c.t.Fatal(err)
	}
	return logits
}

// try is step, which may fail: then the sequence is as before.
func (c *chat) try(ids ...int32) ([]float32, error) {
	had := c.seq.Len()
	if err := c.m.cache.Append(c.seq, len(ids)); err != nil {
		return nil, err
	}
	out, err := c.m.Run(context.Background(), []Part{{c.seq, ids}})
	if err != nil {
		return nil, errors.Join(err, c.m.cache.Truncate(c.seq, had))
	}
	return out[0].Values, nil
}

// near compares logits with the formula's: float32 rounding through a few layers.
func near(t testing.TB, what string, got []float32, want []float64) {
	t.Helper()
	within(t, what, 3e-5, got, want)
}

// within allows an error relative to the largest logit, or to 1.
func within(t testing.TB, what string, tolerance float64, got []float32, want []float64) {
	t.Helper()
	if off, scale := apart(t, got, want); !(off <= tolerance*scale) {
		t.Errorf("%s: logits are off by %.2g, the largest is %.2g", what, off, scale)
	}
}

// apart is the largest difference, and the largest logit or 1.
func apart(t testing.TB, got []float32, want []float64) (off, scale float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d logits, want %d", len(got), len(want))
	}
	scale = 1
	for i, w := range want {
		off, scale = math.Max(off, math.Abs(float64(got[i])-w)), math.Max(scale, math.Abs(w))
	}
	return off, scale
}
