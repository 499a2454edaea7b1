package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/gaze-ml/gaze/examples/llama/sample"
	"github.com/gaze-ml/gaze/examples/llama/tokenizer"
)

// model runs one sequence. Logits are [vocab] and valid until the next call. Both methods end early with ctx's error once
// ctx is done, and may then not be called again.
type model interface {
	// Prefill runs the prompt and returns the logits after its last token.
	Prefill(ctx context.Context, ids []int32) (logits []float32, err error)
	// Step runs one more token and returns the logits after it.
	Step(ctx context.Context, id int32) (logits []float32, err error)
	// Close frees the model.
	Close() error
}

// contextError is a prompt that doesn't fit.
type contextError struct{ Got, Want int }

func (e *contextError) Error() string {
	return fmt.Sprintf("prompt: got %d tokens, want 1 to %d, the context (-ctx)", e.Got, e.Want)
}

// stats are what a run did, for the summary.
type stats struct {
	load         time.Duration // until the model was ready
	promptTokens int
	prompt       time.Duration
	steps        int // tokens run one by one
	decode       time.Duration
	first        time.Duration // from the start of the process to the first token
	stopped      string        // why the text ends
}

// generator is one run of the decode loop.
type generator struct {
	model   model
	tok     *tokenizer.Tokenizer
	sampler *sample.Sampler
	context int // most tokens of the sequence
	tokens  int // most to generate; 0: no bound
	out     io.Writer
	started time.Time // of the process
}

// run generates from the prompt until the model ends its turn, the context or -n is used up, or ctx is done, which is not
// an error. Text goes out as it comes. What was done until an error is in the stats.
func (g *generator) run(ctx context.Context, prompt []int32, s *stats) error {
	if len(prompt) < 1 || len(prompt) > g.context {
		return &contextError{len(prompt), g.context}
	}
	for _, id := range prompt {
		g.sampler.Accept(id)
	}
	stream := g.tok.Stream()
	err := g.loop(ctx, prompt, stream, s)
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		s.stopped, err = "interrupted", nil
	}
	return errors.Join(err, g.write(stream.Flush()))
}

func (g *generator) loop(ctx context.Context, prompt []int32, stream *tokenizer.Stream, s *stats) error {
	begin := time.Now()
	logits, err := g.model.Prefill(ctx, prompt)
	if err != nil {
		return err
	}
	s.promptTokens, s.prompt = len(prompt), time.Since(begin)
	for generated := 0; ; {
		id, err := g.sampler.Sample(logits)
		if err != nil {
			return err
		}
		if generated == 0 {
			s.first = time.Since(g.started)
		}
		switch {
		case int(id) >= g.tok.Size():
			return fmt.Errorf("model: got the token %d, want one of the vocabulary's %d", id, g.tok.Size())
		case g.tok.IsEnd(id):
			s.stopped = "end of turn"
			return nil
		}
		if err := g.write(stream.Push(id)); err != nil {
			return err
		}
		generated++
		switch {
		case generated == g.tokens:
			s.stopped = fmt.Sprintf("%d tokens (-n)", generated)
			return nil
		case len(prompt)+s.steps == g.context:
			s.stopped = fmt.Sprintf("the context of %d tokens is full (-ctx)", g.context)
			return nil
		}
		g.sampler.Accept(id)
		begin := time.Now()
		if logits, err = g.model.Step(ctx, id); err != nil {
			return err
		}
		s.steps++
		s.decode += time.Since(begin)
	}
}

func (g *generator) write(text string) error {
	if text == "" {
		return nil
	}
	_, err := io.WriteString(g.out, text)
	return err
}
