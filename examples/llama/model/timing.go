package model

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/gaze-ml/gaze/graph"
)

// warmPrompt is what TimeDecode runs before it looks at the clock.
const warmPrompt = 8

// TimePrefill runs a prompt of so many random tokens in a sequence of its own, and gives the time that took.
func (m *Model) TimePrefill(ctx context.Context, tokens int) (d time.Duration, err error) {
	seqs, err := m.sequences(1)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, m.free(seqs)) }()
	ids := m.random(tokens)
	begin := time.Now()
	_, err = m.prompt(ctx, seqs[0], ids)
	return time.Since(begin), err
}

// TimeDecode runs so many steps of the likeliest token for each of a number of sequences with short prompts, and gives the time of the
// steps.
func (m *Model) TimeDecode(ctx context.Context, requests, steps int) (d time.Duration, err error) {
	seqs, err := m.sequences(requests)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, m.free(seqs)) }()
	parts := make([]Part, requests)
	for i, seq := range seqs {
		logits, err := m.prompt(ctx, seq, m.random(warmPrompt))
		if err != nil {
			return 0, err
		}
		parts[i] = Part{seq, []int32{logits.Likeliest()}}
	}
	begin := time.Now()
	for range steps {
		if err := m.cache.Advance(seqs...); err != nil {
			return 0, err
		}
		logits, err := m.Run(ctx, parts)
		if err != nil {
			return 0, err
		}
		for i := range parts {
			parts[i].IDs[0] = logits[i].Likeliest()
		}
	}
	return time.Since(begin), nil
}

// prompt runs tokens in one sequence, in as few steps as go, and returns the logits after the last.
func (m *Model) prompt(ctx context.Context, seq *graph.Sequence, ids []int32) (logits Logits, err error) {
	for len(ids) > 0 {
		n := m.Piece(len(ids))
		if err := m.cache.Append(seq, n); err != nil {
			return Logits{}, err
		}
		out, err := m.Run(ctx, []Part{{seq, ids[:n]}})
		if err != nil {
			return Logits{}, err
		}
		logits, ids = out[0], ids[n:]
	}
	return logits, nil
}

func (m *Model) sequences(n int) (seqs []*graph.Sequence, err error) {
	for range n {
		s, err := m.cache.NewSequence(0)
		if err != nil {
			return nil, err
		}
		seqs = append(seqs, s)
	}
	return seqs, nil
}

func (m *Model) free(seqs []*graph.Sequence) error {
	var errs []error
	for _, s := range seqs {
		errs = append(errs, m.cache.Free(s))
	}
	return errors.Join(errs...)
}

// random draws tokens, the same ones each time.
func (m *Model) random(n int) []int32 {
	r := rand.New(rand.NewPCG(1, 1))
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = int32(r.IntN(m.weights.h.Vocab))
	}
	return ids
}
