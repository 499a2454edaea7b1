package main

import (
	"fmt"
	"io"

	"github.com/gaze-ml/gaze/examples/llama/model"
	"github.com/gaze-ml/gaze/examples/llama/sample"
	"github.com/gaze-ml/gaze/examples/llama/schedule"
	"github.com/gaze-ml/gaze/examples/llama/tokenizer"
)

// answer is the text that follows one prompt: its tokens as they are picked, and where it ends.
type answer struct {
	tok     *tokenizer.Tokenizer
	sampler *sample.Sampler
	stream  *tokenizer.Stream
	stop    stopper
	out     sink
	most    int // tokens to generate; 0: no bound
	context int // for the reason that it is full
	record  *promptLogits
	top     int    // of record
	first   func() // is told of each token

	generated int
	stopped   bool   // by a stop string
	ended     string // why
	left      bool   // flushed
}

// pick chooses the next token and writes the text that it completes.
func (a *answer) pick(logits model.Logits) (id int32, end bool, err error) {
	if logits.IDs != nil {
		id, err = a.sampler.SampleFrom(logits.IDs, logits.Values)
	} else {
		id, err = a.sampler.Sample(logits.Values)
	}
	if err != nil {
		return 0, false, err
	}
	a.first()
	if a.record != nil {
		a.record.record(logits.Values, id, a.top)
	}
	switch {
	case int(id) >= a.tok.Size():
		return 0, false, fmt.Errorf("model: got the token %d, want one of the vocabulary's %d", id, a.tok.Size())
	case a.tok.IsEnd(id):
		a.ended = "end of turn"
		return id, true, nil
	}
	a.generated++
	stopped, err := a.write(a.stream.Push(id))
	switch {
	case err != nil:
		return 0, false, err
	case stopped:
		return id, true, nil
	case a.generated == a.most:
		a.ended = fmt.Sprintf("%d tokens (-n)", a.generated)
		return id, true, nil
	}
	a.sampler.Accept(id)
	return id, false, nil
}

// write writes what can't be a part of a stop string, and says whether one has ended the text.
func (a *answer) write(text string) (stopped bool, err error) {
	out, stop := a.stop.push(text)
	if stop != "" {
		a.stopped, a.ended = true, fmt.Sprintf("%q (-stop)", stop)
	}
	if out != "" {
		_, err = io.WriteString(a.out, out)
	}
	return stop != "", err
}

// leave is the end of the request.
func (a *answer) leave(why schedule.Reason) error {
	switch why {
	case schedule.ContextFull:
		a.ended = fmt.Sprintf("the context of %d tokens is full (-ctx)", a.context)
	case schedule.CacheFull:
		a.ended = "the KV cache is full (-cache)"
	}
	return a.flush()
}

// flush writes what was held back: half a character, and what might have become a stop string.
func (a *answer) flush() error {
	a.left = true
	text := ""
	if !a.stopped {
		stopped, err := a.write(a.stream.Flush())
		if err != nil {
			return err
		}
		if !stopped {
			text = a.stop.flush()
		}
	}
	if text != "" {
		if _, err := io.WriteString(a.out, text); err != nil {
			return err
		}
	}
	return a.out.end()
}
