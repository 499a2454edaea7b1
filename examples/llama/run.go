package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/gaze-ml/gaze/examples/llama/gguf"
	"github.com/gaze-ml/gaze/examples/llama/model"
	"github.com/gaze-ml/gaze/examples/llama/sample"
	"github.com/gaze-ml/gaze/examples/llama/schedule"
	"github.com/gaze-ml/gaze/examples/llama/tokenizer"
	"github.com/gaze-ml/gaze/ops"
)

// generate does what the options say.
func (p *program) generate(ctx context.Context, o options, s *summary) (err error) {
	if o.logCalls || o.verbose > 1 {
		ops.LogCalls(slog.New(slog.NewTextHandler(p.stderr, &slog.HandlerOptions{Level: slog.LevelDebug})))
		defer ops.LogCalls(nil)
	}
	texts, err := readPrompts(o, p.stdin)
	if err != nil {
		return err
	}
	if err := o.sampling.Validate(); err != nil {
		return err
	}
	f, err := gguf.Open(o.model)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	h, err := model.ReadHParams(f)
	if err != nil {
		return err
	}
	if o.context > h.MaxContext {
		return &flagError{"ctx", fmt.Sprint(o.context), fmt.Sprintf("at most %d, which the model was trained for", h.MaxContext)}
	}
	tok, err := tokenizer.FromGGUF(f)
	if err != nil {
		return err
	}
	if h.Vocab < tok.Size() {
		return &gguf.Error{Item: `tensor "token_embd.weight"`, Got: fmt.Sprintf("%d rows", h.Vocab),
			Want: fmt.Sprintf("one for each of %d tokens", tok.Size()), Err: gguf.ErrFormat}
	}
	e, err := newEncoder(f, tok, o, p.stderr)
	if err != nil {
		return err
	}
	var prompts []prompt
	for _, text := range texts {
		one, err := e.encode(text)
		if err != nil {
			return err
		}
		prompts = append(prompts, one)
	}
	d, done, err := openDevice(o.device)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, done()) }()
	c := configure(o, h, prompts, d)
	need := model.Estimate(f, h, c)
	if o.verbose > 0 {
		p.describe(f, h, c, o, need, prompts)
	}
	if err := p.affords(need, c); err != nil {
		return err
	}
	m, err := p.open(f, h, c)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	s.load = time.Since(p.started)
	if o.bench {
		return p.benchmark(ctx, o, m)
	}
	return p.answer(ctx, o, c, m, tok, prompts, s)
}

// answer runs the prompts.
func (p *program) answer(ctx context.Context, o options, c model.Config, m engine, tok *tokenizer.Tokenizer, prompts []prompt, s *summary) error {
	file := &logitsFile{Model: o.model, Vocab: tok.Size()}
	var requests []*schedule.Request
	for i, one := range prompts {
		sampler, err := sample.New(o.sampling)
		if err != nil {
			return err
		}
		a := &answer{tok: tok, sampler: sampler, stream: tok.Stream(), stop: stopper{stops: o.stop}, out: plain{p.stdout}, most: o.tokens, context: c.Context}
		if len(prompts) > 1 {
			a.out = newLabelled(p.stdout, i+1)
		}
		if o.logits != "" {
			a.record, a.top = &promptLogits{Prompt: one.text, IDs: one.ids}, o.logitsTop
			file.Prompts = append(file.Prompts, a.record)
		}
		a.first = func() {
			if s.first == 0 {
				s.first = time.Since(p.started)
			}
		}
		for _, id := range one.ids {
			sampler.Accept(id)
		}
		s.answers = append(s.answers, a)
		requests = append(requests, &schedule.Request{Prompt: one.ids, Pick: a.pick, Leave: a.leave})
	}
	err := schedule.Run(ctx, m, schedule.Config{Requests: c.Requests, Context: c.Context, Chunk: c.Chunk}, requests, &s.stats)
	interrupted := ctx.Err() != nil && errors.Is(err, ctx.Err())
	if interrupted {
		err = nil
	}
	for i, a := range s.answers {
		s.shared, s.again = requests[i].Shared, s.again+requests[i].Again
		if !a.left && (interrupted || a.generated > 0) {
			if interrupted {
				a.ended = "interrupted"
			}
			err = errors.Join(err, a.flush())
		}
		if a.record != nil {
			a.record.Ended = a.ended
		}
	}
	if o.logits != "" {
		err = errors.Join(err, file.write(o.logits))
	}
	return err
}
