package schedule

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/gaze-ml/gaze/examples/llama/model"
)

// begin starts a step without parts.
func (l *loop) begin() { l.parts, l.step = l.parts[:0], l.step[:0] }

// add gives a request slots for its next n tokens, which there must be, and makes them a part of the step.
func (l *loop) add(r *Request, n int) error {
	had := r.seq.Len()
	if err := l.cache.Append(r.seq, n); err != nil {
		return err
	}
	l.parts, l.step = append(l.parts, model.Part{Seq: r.seq, IDs: r.ids[had:][:n]}), append(l.step, r)
	return nil
}

// room makes sure that a request can have n more slots. For that it sends back those that joined last, which can't be in the step yet:
// steps are made in the order of joining. It returns false where that is the request itself; if it is alone, it ends.
func (l *loop) room(r *Request, n int) (ok bool, err error) {
	for l.pages(r.seq.Len()+n)-l.pages(r.seq.Len()) > l.cache.FreePages() {
		last := l.running[len(l.running)-1]
		if len(l.running) == 1 {
			return false, l.leave(r, CacheFull)
		}
		if err := l.cache.Free(last.seq); err != nil {
			return false, err
		}
		last.seq = nil
		last.Again++
		l.running, l.waiting = l.running[:len(l.running)-1], append([]*Request{last}, l.waiting...)
		if last == r {
			return false, nil
		}
	}
	return true, nil
}

// finish runs the step, if it has parts, and lets each request whose tokens have all run pick the next.
func (l *loop) finish(ctx context.Context) error {
	if len(l.parts) == 0 {
		return nil
	}
	logits, err := l.run(ctx)
	if err != nil {
		return err
	}
	for i, r := range l.step {
		if r.left() > 0 {
			continue
		}
		id, end, err := r.Pick(logits[i])
		switch {
		case err != nil:
			return err
		case end:
			err = l.leave(r, Picked)
		case r.seq.Len() == l.config.Context:
			err = l.leave(r, ContextFull)
		default:
			r.ids = append(r.ids, id)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// run runs the step and counts it.
func (l *loop) run(ctx context.Context) ([]model.Logits, error) {
	generated, prompt := 0, 0
	for i, r := range l.step {
		if r.seq.Len() > len(r.Prompt) && len(l.parts[i].IDs) == 1 {
			generated++
		} else {
			prompt += len(l.parts[i].IDs)
		}
	}
	begin := time.Now()
	logits, err := l.model.Run(ctx, l.parts)
	if err != nil {
		return nil, err
	}
	s := l.stats
	if s.PromptTokens, s.Decoded = s.PromptTokens+prompt, s.Decoded+generated; generated == 0 {
		s.Prompt += time.Since(begin)
	} else {
		s.Decode, s.Steps = s.Decode+time.Since(begin), s.Steps+1
	}
	s.Most = max(s.Most, len(l.parts))
	return logits, nil
}

// leave ends a request.
func (l *loop) leave(r *Request, why Reason) error {
	l.running = slices.DeleteFunc(l.running, func(x *Request) bool { return x == r })
	err := l.cache.Free(r.seq)
	r.seq = nil
	if r.Leave != nil {
		err = errors.Join(err, r.Leave(why))
	}
	return err
}

// free gives back every page.
func (l *loop) free() error {
	var errs []error
	for _, r := range l.running {
		errs = append(errs, l.cache.Free(r.seq))
		r.seq = nil
	}
	if l.prefix != nil {
		errs = append(errs, l.cache.Free(l.prefix))
	}
	return errors.Join(errs...)
}
