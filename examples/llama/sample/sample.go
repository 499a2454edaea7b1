// Package sample picks the next token from a model's logits: greedily, or at random after temperature, top-k, top-p,
// min-p and a penalty on repetition.
package sample

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
)

// Params say how tokens are picked. The zero value is greedy. The filters apply in this order, which is that of
// Hugging Face's generate and of vLLM: repeat penalty, temperature, top-k, top-p, min-p.
type Params struct {
	// Temperature divides the logits; 0 picks the likeliest token, the lowest id of equals.
	Temperature float64
	// TopK keeps the K likeliest tokens; 0 keeps all.
	TopK int
	// TopP keeps the smallest set of the likeliest tokens whose probabilities, among those that top-k has kept, sum to at
	// least P (nucleus sampling, Holtzman et al. 2019); 0 and 1 keep all.
	TopP float64
	// MinP keeps the tokens at least P times as likely as the likeliest; 0 keeps all.
	MinP float64
	// RepeatPenalty divides the positive and multiplies the negative logits of recent tokens (CTRL, Keskar et al. 2019);
	// 0 and 1 do nothing.
	RepeatPenalty float64
	// RepeatLast is how many of the last tokens are recent; 0 means 64.
	RepeatLast int
	// Seed fixes the draws: the same seed, parameters and logits give the same tokens on the same kind of machine.
	Seed uint64
}

const defaultRepeatLast = 64

// What kind of fault an [*Error] is; test with errors.Is.
var (
	// ErrParam: a parameter is out of its range.
	ErrParam = errors.New("sampling parameter")
	// ErrLogits: there is nothing to pick from: the logits are empty, not numbers, infinite, or all −Inf.
	ErrLogits = errors.New("logits")
)

// Error is a parameter or a set of logits that can't be used.
type Error struct {
	Err  error  // ErrParam or ErrLogits
	Item string // "top-p", "logit 17"
	Got  string
	Want string
}

func (e *Error) Error() string {
	return "sample: " + e.Item + ": got " + e.Got + ", want " + e.Want
}

// Unwrap returns the kind of fault.
func (e *Error) Unwrap() error { return e.Err }

// Validate returns an [*Error] for the first parameter that is out of its range.
func (p Params) Validate() error {
	for _, c := range []struct {
		item string
		got  float64
		ok   bool
		want string
	}{
		{"temperature", p.Temperature, p.Temperature >= 0 && !math.IsInf(p.Temperature, 1), "0 or more"},
		{"top-k", float64(p.TopK), p.TopK >= 0, "0 or more"},
		{"top-p", p.TopP, p.TopP >= 0 && p.TopP <= 1, "0 to 1"},
		{"min-p", p.MinP, p.MinP >= 0 && p.MinP <= 1, "0 to 1"},
		{"repeat-penalty", p.RepeatPenalty, p.RepeatPenalty >= 0 && !math.IsInf(p.RepeatPenalty, 1), "0 or more"},
		{"repeat-last", float64(p.RepeatLast), p.RepeatLast >= 0, "0 or more"},
	} {
		if !c.ok { // NaN too: it compares false
			return &Error{ErrParam, c.item, fmt.Sprint(c.got), c.want}
		}
	}
	return nil
}

// Sampler picks the tokens of one sequence. It is not safe for concurrent use.
type Sampler struct {
	p      Params
	rng    *rand.Rand
	recent []int32 // a ring of the last tokens
	next   int     // where the ring is written next
	pool   []token
	seen   []bool // of the tokens in the ring, by id, all false between calls
	scaled []float32
}

// token is a candidate.
type token struct {
	id     int32
	logit  float32
	weight float64 // its probability times a constant, the likeliest one's being 1
}

// New returns a sampler, or an [*Error] that wraps [ErrParam].
func New(p Params) (*Sampler, error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	if p.RepeatLast == 0 {
		p.RepeatLast = defaultRepeatLast
	}
	if p.RepeatPenalty == 0 {
		p.RepeatPenalty = 1
	}
	s := &Sampler{p: p, rng: rand.New(rand.NewPCG(p.Seed, 0))}
	if p.RepeatPenalty != 1 {
		s.recent = make([]int32, 0, min(p.RepeatLast, 1<<20))
	}
	return s, nil
}

// Accept tells the sampler a token of the sequence, of the prompt or picked, which the repeat penalty then counts.
func (s *Sampler) Accept(id int32) {
	switch {
	case s.p.RepeatPenalty == 1:
	case len(s.recent) < s.p.RepeatLast:
		s.recent = append(s.recent, id)
	default:
		s.recent[s.next] = id
		s.next = (s.next + 1) % len(s.recent)
	}
}

// Sample picks a token by its logit's index. The logits [vocab] are not changed. A token whose logit is −Inf is never
// picked. The error is an [*Error] that wraps [ErrLogits]. After the first call it allocates nothing.
func (s *Sampler) Sample(logits []float32) (int32, error) {
	best, err := likeliest(logits)
	if err != nil {
		return 0, err
	}
	if logits = s.penalise(logits); s.p.RepeatPenalty != 1 {
		if best, err = likeliest(logits); err != nil { // a large penalty can overflow
			return 0, err
		}
	}
	if s.p.Temperature == 0 || s.p.TopK == 1 {
		return best, nil
	}
	kept, sorted := s.first(logits)
	kept, total := s.filter(kept, sorted, logits[best])
	return s.draw(kept, total), nil
}

// Candidates is how many of the largest logits are enough for [Sampler.SampleFrom] to pick what [Sampler.Sample] picks from all; 0: all of
// them, for only top-k and greed say beforehand what is left out, and a penalty below 1 lifts tokens.
func (p Params) Candidates() int {
	n := p.TopK
	if p.Temperature == 0 {
		n = 1
	}
	switch {
	case n == 0, p.RepeatPenalty > 0 && p.RepeatPenalty < 1:
		return 0
	case p.RepeatPenalty > 1: // so many may fall
		n += cmp.Or(p.RepeatLast, defaultRepeatLast)
	}
	return n
}

// SampleFrom is Sample where only the [Params.Candidates] largest logits are known: those of ids. The others may be anything less, NaN
// too. Neither slice is changed.
func (s *Sampler) SampleFrom(ids []int32, logits []float32) (int32, error) {
	s.pool = slices.Grow(s.pool[:0], len(ids))
	for i, x := range logits {
		if x != x || x > math.MaxFloat32 {
			return 0, &Error{ErrLogits, fmt.Sprintf("logit %d", ids[i]), fmt.Sprint(x), "a finite number or -Inf"}
		}
		if s.p.RepeatPenalty != 1 && slices.Contains(s.recent, ids[i]) {
			x = s.penalised(x)
		}
		s.pool = append(s.pool, token{id: ids[i], logit: x})
	}
	sortTokens(s.pool)
	if len(s.pool) == 0 || s.pool[0].logit < -math.MaxFloat32 {
		return 0, &Error{ErrLogits, "logits", fmt.Sprintf("%d of them, none finite", len(logits)), "at least one finite number"}
	}
	if s.p.Temperature == 0 || s.p.TopK == 1 {
		return s.pool[0].id, nil
	}
	kept, total := s.filter(s.pool[:min(s.p.TopK, len(s.pool))], true, s.pool[0].logit)
	return s.draw(kept, total), nil
}

// likeliest returns the index of the largest logit, the lowest of equals.
func likeliest(logits []float32) (int32, error) {
	best := -1
	for i, x := range logits {
		if x != x || x > math.MaxFloat32 {
			return 0, &Error{ErrLogits, fmt.Sprintf("logit %d", i), fmt.Sprint(x), "a finite number or -Inf"}
		}
		if x >= -math.MaxFloat32 && (best < 0 || x > logits[best]) {
			best = i
		}
	}
	if best < 0 {
		return 0, &Error{ErrLogits, "logits", fmt.Sprintf("%d of them, none finite", len(logits)), "at least one finite number"}
	}
	return int32(best), nil
}

// penalise returns the logits with the repeat penalty, in the sampler's own memory if there is one.
func (s *Sampler) penalise(logits []float32) []float32 {
	if s.p.RepeatPenalty == 1 {
		return logits
	}
	if len(s.seen) < len(logits) {
		s.seen = make([]bool, len(logits))
	}
	s.scaled = append(s.scaled[:0], logits...)
	for _, id := range s.recent {
		if id < 0 || int(id) >= len(logits) || s.seen[id] {
			continue
		}
		s.seen[id] = true
		s.scaled[id] = s.penalised(s.scaled[id])
	}
	for _, id := range s.recent {
		if id >= 0 && int(id) < len(logits) {
			s.seen[id] = false
		}
	}
	return s.scaled
}

// penalised is the logit of a recent token.
func (s *Sampler) penalised(x float32) float32 {
	if x > 0 {
		return x / float32(s.p.RepeatPenalty)
	}
	return x * float32(s.p.RepeatPenalty)
}

// filter returns the tokens that top-p and min-p keep of those that top-k has kept, with their weights, and the sum of the weights.
func (s *Sampler) filter(kept []token, sorted bool, largest float32) (_ []token, total float64) {
	p := s.p.TopP
	if p == 0 {
		p = 1
	}
	// exp((logit − largest)/temperature) can't overflow.
	for i := range kept {
		kept[i].weight = math.Exp((float64(kept[i].logit) - float64(largest)) / s.p.Temperature)
		total += kept[i].weight
	}
	if p < 1 {
		kept, total = nucleus(kept, p*total, sorted)
	}
	if s.p.MinP > 0 {
		likely := kept[:0] // the likeliest has weight 1, so there is at least one
		total = 0
		for _, t := range kept {
			if t.weight >= s.p.MinP {
				likely = append(likely, t)
				total += t.weight
			}
		}
		kept = likely
	}
	return kept, total
}

// first puts the tokens that top-k keeps in the pool, and tells whether they are in order.
func (s *Sampler) first(logits []float32) (kept []token, sorted bool) {
	if s.p.TopK > 0 && s.p.TopK < len(logits) {
		return s.top(logits, s.p.TopK), true
	}
	return s.all(logits), false
}

// all puts every token in the pool.
func (s *Sampler) all(logits []float32) []token {
	s.pool = slices.Grow(s.pool[:0], len(logits))
	for i, x := range logits {
		s.pool = append(s.pool, token{id: int32(i), logit: x})
	}
	return s.pool
}

// top puts the k likeliest tokens in the pool, in order. While it looks, the pool is a heap with the least likely of them
// at the root, which most tokens don't get past.
func (s *Sampler) top(logits []float32, k int) []token {
	h := s.all(logits[:k])
	heapify(h, token.unlikelier)
	for i, x := range logits[k:] {
		if t := (token{id: int32(k + i), logit: x}); t.likelier(h[0]) {
			h[0] = t
			sink(h, 0, token.unlikelier)
		}
	}
	sortTokens(h)
	return h
}

// sortTokens puts the likeliest first.
func sortTokens(h []token) {
	slices.SortFunc(h, func(a, b token) int {
		if a.likelier(b) {
			return -1
		}
		return 1
	})
}

// nucleus returns the likeliest tokens, in order, until their weights sum to enough, and the sum. Unless the tokens are
// sorted they come from a heap, so the cost is that of the tokens taken rather than of sorting the vocabulary.
func nucleus(tokens []token, enough float64, sorted bool) (taken []token, sum float64) {
	if sorted {
		n := 0
		for n == 0 || n < len(tokens) && sum < enough {
			sum += tokens[n].weight
			n++
		}
		return tokens[:n], sum
	}
	heap := tokens
	heapify(heap, token.likelier)
	for len(taken) == 0 || len(heap) > 0 && sum < enough {
		last := len(heap) - 1
		heap[0], heap[last] = heap[last], heap[0]
		sum += heap[last].weight
		heap, taken = heap[:last], tokens[last:]
		sink(heap, 0, token.likelier)
	}
	slices.Reverse(taken) // each went in front of the one before
	return taken, sum
}

// likelier orders tokens, equals by id.
func (t token) likelier(u token) bool {
	return t.logit > u.logit || t.logit == u.logit && t.id < u.id
}

func (t token) unlikelier(u token) bool { return u.likelier(t) }

// heapify orders tokens as a heap, the first by the order at the root.
func heapify(heap []token, before func(t, u token) bool) {
	for i := len(heap)/2 - 1; i >= 0; i-- {
		sink(heap, i, before)
	}
}

// sink moves the token at i of a heap down to its place.
func sink(heap []token, i int, before func(t, u token) bool) {
	for {
		child := 2*i + 1
		if child >= len(heap) {
			return
		}
		if child+1 < len(heap) && before(heap[child+1], heap[child]) {
			child++
		}
		if !before(heap[child], heap[i]) {
			return
		}
		heap[i], heap[child] = heap[child], heap[i]
		i = child
	}
}

// draw picks a token with its share of the weights.
func (s *Sampler) draw(kept []token, total float64) (id int32) {
	at := s.rng.Float64() * total
	for _, t := range kept {
		if t.weight == 0 {
			continue
		}
		id = t.id // the last one stands if rounding leaves a rest
		if at -= t.weight; at < 0 {
			break
		}
	}
	return id
}
