// Package schedule runs several prompts at once through one model: continuous batching (Yu et al., "Orca", 2022). A request joins
// when there is a slot and there are pages for its tokens, its prompt runs in pieces between the steps of those that already generate,
// and it leaves at its end. When the cache is full the request that joined last gives its pages back, waits, and runs its tokens again
// (Kwon et al., "PagedAttention", 2023).
package schedule

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gaze-ml/gaze/examples/llama/model"
	"github.com/gaze-ml/gaze/graph"
	"github.com/gaze-ml/gaze/ops"
)

// Model is what runs the steps; see [model.Model].
type Model interface {
	Cache() *graph.KVCache
	Run(ctx context.Context, parts []model.Part) ([]model.Logits, error)
	Piece(n int) int
}

// Config bounds what runs at once.
type Config struct {
	Requests int // most in one step
	Context  int // most tokens of a request, its prompt included
	Chunk    int // most prompt tokens of a step
}

// Request is one prompt. What Pick says doesn't depend on the other requests, so neither do its tokens, up to float rounding: to the
// last bit, unless Shared or Again say otherwise.
type Request struct {
	Prompt []int32
	// Pick chooses the next token from the logits after the tokens so far, and says whether the request ends with it.
	Pick func(logits model.Logits) (id int32, end bool, err error)
	// Leave, unless nil, is told when the request ends, and why unless Pick ended it.
	Leave func(Reason) error

	// What Run tells:
	Shared int // tokens of the prompt that ran once for all requests
	Again  int // times that it had to start over because the cache was full

	seq *graph.Sequence // nil: waits
	ids []int32         // the prompt and what was picked; the sequence has the first ones
}

// Reason is why a request ended.
type Reason int

// The reasons.
const (
	Picked      Reason = iota // Pick said so
	ContextFull               // it has Config.Context tokens
	CacheFull                 // it has all pages of the cache to itself and needs more
)

// Stats are what a run did.
type Stats struct {
	Prompt       time.Duration // steps with prompts alone
	PromptTokens int
	Decode       time.Duration // steps with generated tokens
	Decoded      int           // generated tokens that were run
	Steps        int           // of them
	Most         int           // requests in one step
}

// Run runs requests to their ends, in the order given where they have to wait. Once ctx is done it ends with ctx's error. A prompt that
// never fits is refused before anything runs: ErrArgument where it is empty or longer than the context, ErrCacheFull where the cache has
// too few pages. Every sequence is freed.
func Run(ctx context.Context, m Model, c Config, reqs []*Request, stats *Stats) (err error) {
	l := &loop{model: m, cache: m.Cache(), config: c, stats: stats}
	for i, r := range reqs {
		if err := l.fits(i, r.Prompt); err != nil {
			return err
		}
		r.ids, r.seq, r.Shared, r.Again = append([]int32(nil), r.Prompt...), nil, 0, 0
		l.waiting = append(l.waiting, r)
	}
	defer func() { err = errors.Join(err, l.free()) }()
	if err := l.share(ctx, reqs); err != nil {
		return err
	}
	for len(l.waiting)+len(l.running) > 0 {
		if err := l.turn(ctx); err != nil {
			return err
		}
	}
	return nil
}

// loop is one Run.
type loop struct {
	model   Model
	cache   *graph.KVCache
	config  Config
	stats   *Stats
	waiting []*Request // the first one joins next
	running []*Request // in the order in which they joined
	prefix  *graph.Sequence
	parts   []model.Part
	step    []*Request // of parts
}

// fits refuses a prompt that can't run even alone.
func (l *loop) fits(i int, prompt []int32) error {
	if n := len(prompt); n < 1 || n > l.config.Context {
		return &ops.Error{Kind: ops.ErrArgument, Op: "llama", Arg: fmt.Sprintf("prompt %d", i+1), Got: fmt.Sprintf("%d tokens", n),
			Want: fmt.Sprintf("1 to %d, the context", l.config.Context)}
	}
	cfg := l.cache.Config()
	if n := l.pages(len(prompt)); n > cfg.Pages {
		return &ops.Error{Kind: ops.ErrCacheFull, Op: "llama", Arg: fmt.Sprintf("prompt %d", i+1), Got: fmt.Sprintf("%d tokens, %d pages", len(prompt), n),
			Want: fmt.Sprintf("%d pages of %d tokens or fewer, the whole cache", cfg.Pages, cfg.PageSize)}
	}
	return nil
}

// pages is how many hold n tokens.
func (l *loop) pages(n int) int {
	size := l.cache.Config().PageSize
	return (n + size - 1) / size
}

// share runs the whole pages that all prompts begin with, once.
func (l *loop) share(ctx context.Context, reqs []*Request) error {
	if len(reqs) < 2 {
		return nil
	}
	n := len(reqs[0].Prompt)
	for _, r := range reqs {
		n = min(n, len(r.Prompt)-1) // each runs a token of its own, for the logits after it
		for i := range n {
			if r.Prompt[i] != reqs[0].Prompt[i] {
				n = i
				break
			}
		}
	}
	size := l.cache.Config().PageSize
	if n = n / size * size; n == 0 {
		return nil
	}
	first := &Request{ids: reqs[0].Prompt[:n]}
	var err error
	if first.seq, err = l.cache.NewSequence(0); err != nil {
		return err
	}
	l.prefix = first.seq
	for first.left() > 0 {
		l.begin()
		if err := l.add(first, l.piece(first)); err != nil {
			return err
		}
		if _, err := l.run(ctx); err != nil {
			return err
		}
	}
	for _, r := range reqs {
		r.Shared = n
	}
	return nil
}

// left is the number of tokens that have not run.
func (r *Request) left() int { return len(r.ids) - r.seq.Len() }

// piece is how many tokens of a request a step takes: a matter of its own tokens alone, as the rounding of what comes out depends on it.
func (l *loop) piece(r *Request) int {
	if n := r.left(); n > 1 {
		return min(max(l.model.Piece(n), 1), n, l.config.Chunk)
	}
	return 1
}

// turn lets requests join, runs a piece of prompts, and then one token of every request that generates.
func (l *loop) turn(ctx context.Context) error {
	if err := l.join(); err != nil {
		return err
	}
	if err := l.prompts(ctx); err != nil {
		return err
	}
	return l.decode(ctx)
}

// join starts requests while there are slots, and pages for all of their tokens beside those that the running ones will still need
// for theirs.
func (l *loop) join() error {
	promised := 0
	for _, r := range l.running {
		promised += l.pages(len(r.ids)) - l.pages(r.seq.Len())
	}
	for len(l.waiting) > 0 && len(l.running) < l.config.Requests {
		r := l.waiting[0]
		promised += l.pages(len(r.ids)) - l.pages(r.Shared)
		if len(l.running) > 0 && promised > l.cache.FreePages() {
			return nil
		}
		var err error
		if l.prefix != nil {
			r.seq, err = l.cache.Fork(l.prefix, r.Shared)
		} else {
			r.seq, err = l.cache.NewSequence(0)
		}
		if err != nil {
			return err
		}
		l.waiting, l.running = l.waiting[1:], append(l.running, r)
	}
	return nil
}

// prompts runs a step of pieces of prompts, if any are left.
func (l *loop) prompts(ctx context.Context) error {
	l.begin()
	rows := 0
	for _, r := range slices.Clone(l.running) {
		if r.seq == nil || r.left() < 2 {
			continue
		}
		n := l.piece(r)
		if rows+n > l.config.Chunk {
			break
		}
		ok, err := l.room(r, n)
		if ok {
			rows += n
			err = l.add(r, n)
		}
		if err != nil {
			return err
		}
	}
	return l.finish(ctx)
}

// decode runs the one token that each request has left.
func (l *loop) decode(ctx context.Context) error {
	l.begin()
	for _, r := range slices.Clone(l.running) {
		if r.seq == nil || r.left() != 1 {
			continue
		}
		ok, err := l.room(r, 1)
		if ok {
			err = l.add(r, 1)
		}
		if err != nil {
			return err
		}
	}
	return l.finish(ctx)
}
