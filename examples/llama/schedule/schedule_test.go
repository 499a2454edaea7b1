package schedule

import (
	"context"
	"errors"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"gorgonia.org/tensor"

	"github.com/gaze-ml/gaze/examples/llama/model"
	"github.com/gaze-ml/gaze/graph"
	"github.com/gaze-ml/gaze/ops"
)

const vocab = 50

// shadow is a model whose next token is a hash of every token before it, which it finds through the pages of a real cache: a page that is
// shared, freed or handed out wrongly changes what is said.
type shadow struct {
	t      *testing.T
	cache  *graph.KVCache
	batch  *graph.Batch
	config Config
	slots  []int32 // by page and slot
	steps  [][]int // tokens of each part of each step
	fail   func(step int) error
}

func newShadow(t *testing.T, c Config, pages, pageSize int) *shadow {
	t.Helper()
	cache, err := graph.NewKVCache(graph.CPU, graph.KVCacheConfig{Layers: 1, KVHeads: 1, HeadDim: 8, PageSize: pageSize, Pages: pages, DType: tensor.Float32})
	if err != nil {
		t.Fatal(err)
	}
	batch, err := cache.PrefillBatch(c.Requests, max(c.Chunk, c.Requests), c.Context)
	if err != nil {
		t.Fatal(err)
	}
	return &shadow{t: t, cache: cache, batch: batch, config: c, slots: make([]int32, pages*pageSize)}
}

func (s *shadow) Cache() *graph.KVCache { return s.cache }

// Piece is odd, so that prompts have several, and sometimes more than goes.
func (s *shadow) Piece(n int) int { return s.config.Chunk + 1 - n%3 }

func (s *shadow) Run(ctx context.Context, parts []model.Part) ([]model.Logits, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	var reqs []graph.Request
	var sizes []int
	rows := 0
	for _, p := range parts {
		reqs = append(reqs, graph.Request{Seq: p.Seq, Tokens: len(p.IDs)})
		sizes = append(sizes, len(p.IDs))
		rows += len(p.IDs)
	}
	s.steps = append(s.steps, sizes)
	if one := slices.Max(sizes) == 1; len(parts) > s.config.Requests || !one && rows > s.config.Chunk {
		s.t.Errorf("a step of %v tokens", sizes)
	}
	if s.fail != nil {
		if err := s.fail(len(s.steps)); err != nil {
			return nil, err
		}
	}
	if err := s.batch.Set(reqs...); err != nil {
		return nil, err
	}
	tables, lens := s.batch.BlockTables.Data().([]int32), s.batch.SeqLens.Data().([]int32)
	columns, size := s.batch.BlockTables.Shape()[1], s.cache.Config().PageSize
	slot := func(part, position int) *int32 {
		return &s.slots[int(tables[part*columns+position/size])*size+position%size]
	}
	for i, p := range parts {
		for j, id := range p.IDs {
			*slot(i, int(lens[i])-len(p.IDs)+j) = id
		}
	}
	var out []model.Logits
	for i := range parts {
		var history []int32
		for j := range int(lens[i]) {
			history = append(history, *slot(i, j))
		}
		logits := make([]float32, vocab)
		logits[next(history)] = 1
		out = append(out, model.Logits{Values: logits})
	}
	return out, nil
}

func next(history []int32) int32 {
	h := fnv.New32a()
	for _, id := range history {
		h.Write([]byte{byte(id)})
	}
	return int32(h.Sum32() % vocab)
}

// said is what follows a prompt.
func said(prompt []int32, n int) []int32 {
	all := slices.Clone(prompt)
	for range n {
		all = append(all, next(all))
	}
	return all[len(prompt):]
}

// client is a request that wants some tokens.
type client struct {
	Request
	want int
	got  []int32
	why  Reason
	left int
}

func newClient(prompt []int32, want int) *client {
	c := &client{want: want}
	c.Prompt = prompt
	c.Pick = func(logits model.Logits) (int32, bool, error) {
		id := int32(slices.Index(logits.Values, 1))
		c.got = append(c.got, id)
		return id, len(c.got) == want, nil
	}
	c.Leave = func(why Reason) error { c.why = why; c.left++; return nil }
	return c
}

func run(t *testing.T, m Model, c Config, clients ...*client) (Stats, error) {
	t.Helper()
	var reqs []*Request
	for _, c := range clients {
		reqs = append(reqs, &c.Request)
	}
	var s Stats
	err := Run(t.Context(), m, c, reqs, &s)
	if n := m.Cache().FreePages(); n != m.Cache().Config().Pages {
		t.Errorf("%d pages free after all, of %d", n, m.Cache().Config().Pages)
	}
	return s, err
}

func tokens(r *rand.Rand, n int) []int32 {
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = int32(r.IntN(vocab))
	}
	return ids
}

// Whatever the cache's size and the others, each request gets the tokens that it gets alone, to the end that it asked for, that of the
// context, or that of the whole cache.
func TestEqualAlone(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	again, shared, ends := 0, 0, map[Reason]int{}
	for round := range 600 {
		cfg := Config{Requests: 1 + r.IntN(6), Context: 20 + r.IntN(40), Chunk: 1 + r.IntN(20)}
		size := 1 + r.IntN(6)
		m := newShadow(t, cfg, 40/size+r.IntN(60/size+1), size)
		capacity := m.cache.Config().Pages * size
		system := tokens(r, r.IntN(12)*r.IntN(2))
		var clients []*client
		own, same := tokens(r, r.IntN(20)), r.IntN(4) == 0
		for range 1 + r.IntN(9) {
			if !same {
				own = tokens(r, r.IntN(20))
			}
			prompt := append(slices.Clone(system), own...)
			clients = append(clients, newClient(append(prompt, 1)[:min(len(prompt)+1, cfg.Context)], 1+r.IntN(40)))
		}
		stats, err := run(t, m, cfg, clients...)
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		total := 0
		for i, c := range clients {
			ends[c.why]++
			n := min(c.want, cfg.Context-len(c.Prompt)+1, capacity-len(c.Prompt)+1)
			why := Picked
			switch {
			case n == c.want:
			case n == cfg.Context-len(c.Prompt)+1:
				why = ContextFull
			default:
				why = CacheFull
			}
			if !slices.Equal(c.got, said(c.Prompt, n)) || c.why != why || c.left != 1 {
				t.Errorf("round %d, request %d of %d: %v, ended by %d (%d times), want %v and %d", round, i, len(clients), c.got, c.why, c.left, said(c.Prompt, n), why)
			}
			again += c.Again
			shared += c.Shared
			if c.Again == 0 {
				total += n - 1
			}
			if c.Shared%size != 0 || c.Shared >= len(c.Prompt) || len(clients) > 1 && c.Shared < min(len(system), len(c.Prompt)-1)/size*size && len(system) > 0 && shortest(clients) > len(system) {
				t.Errorf("round %d: %d of %d tokens shared, %d in common", round, c.Shared, len(c.Prompt), len(system))
			}
		}
		if stats.Decoded < total {
			t.Errorf("round %d: %d tokens decoded, want %d or more", round, stats.Decoded, total)
		}
	}
	if again == 0 || shared == 0 || ends[Picked] == 0 || ends[ContextFull] == 0 || ends[CacheFull] == 0 {
		t.Errorf("not everything happened: %d starts over, %d tokens shared, ends %v", again, shared, ends)
	}
}

func shortest(clients []*client) int {
	n := len(clients[0].Prompt)
	for _, c := range clients {
		n = min(n, len(c.Prompt))
	}
	return n
}

// Requests join as soon as there is a slot, run their prompts between the steps of the others, and leave at once.
func TestJoinAndLeave(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	cfg := Config{Requests: 2, Context: 100, Chunk: 9}
	m := newShadow(t, cfg, 100, 4)
	a, b, c := newClient([]int32{1, 2, 3}, 3), newClient([]int32{4}, 6), newClient(tokens(r, 13), 2)
	stats, err := run(t, m, cfg, a, b, c)
	if err != nil {
		t.Fatal(err)
	}
	want := [][]int{
		{3},    // a's prompt
		{1, 1}, // a's first token, b's prompt of one
		{1, 1}, // a's second and last
		{9},    // a piece of c's prompt, in a's slot
		{1},    // b goes on meanwhile
		{4},    // the rest of it
		{1, 1}, // c joins in, and leaves
		{1},    // b alone
		{1},
	}
	if !slices.EqualFunc(m.steps, want, slices.Equal) {
		t.Errorf("steps %v, want %v", m.steps, want)
	}
	if stats.PromptTokens != 17 || stats.Decoded != 2+5+1 || stats.Most != 2 || stats.Prompt <= 0 || stats.Decode <= 0 {
		t.Errorf("%+v", stats)
	}
}

// With room for two of them in the cache, the third of three waits until one has left; and with slots for all but pages for less than
// two long answers, one starts over and still says the same.
func TestWaitForPages(t *testing.T) {
	cfg := Config{Requests: 3, Context: 100, Chunk: 50}
	m := newShadow(t, cfg, 4, 10)
	clients := []*client{newClient([]int32{1, 11: 1}, 3), newClient([]int32{2, 11: 2}, 3), newClient([]int32{3, 11: 3}, 3)}
	stats, err := run(t, m, cfg, clients...)
	if err != nil || stats.Most != 2 {
		t.Errorf("%d at once, %v; want 2", stats.Most, err)
	}
	for _, c := range clients {
		if c.Again != 0 {
			t.Errorf("a request that waited for room started over %d times", c.Again)
		}
	}
	m = newShadow(t, cfg, 4, 10)
	clients = []*client{newClient([]int32{1, 11: 1}, 20), newClient([]int32{2, 11: 2}, 20)}
	if _, err := run(t, m, cfg, clients...); err != nil || clients[0].Again != 0 || clients[1].Again != 1 {
		t.Errorf("started over %d and %d times, %v; want the later one, once", clients[0].Again, clients[1].Again, err)
	}
}

// What all prompts begin with runs once, and its pages are held once.
func TestSharedPrefix(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	system := tokens(r, 43)
	cfg := Config{Requests: 4, Context: 100, Chunk: 64}
	m := newShadow(t, cfg, 10+4, 4) // ten pages in common, one for each
	var clients []*client
	for i := range 4 {
		clients = append(clients, newClient(append(slices.Clone(system), int32(i)), 1))
	}
	stats, err := run(t, m, cfg, clients...)
	if err != nil {
		t.Fatal(err)
	}
	if stats.PromptTokens != 40+4*4 || stats.Most != 4 {
		t.Errorf("%d prompt tokens ran, %d at once, want 56 and 4", stats.PromptTokens, stats.Most)
	}
	for _, c := range clients {
		if c.Shared != 40 || !slices.Equal(c.got, said(c.Prompt, 1)) {
			t.Errorf("%d tokens shared, %v", c.Shared, c.got)
		}
	}
}

// Prompts that never fit are refused before anything runs.
func TestRefusals(t *testing.T) {
	for name, c := range map[string]struct {
		prompt int
		kind   error
	}{"empty": {0, ops.ErrArgument}, "longer than the context": {51, ops.ErrArgument}, "larger than the cache": {41, ops.ErrCacheFull}} {
		cfg := Config{Requests: 2, Context: 50, Chunk: 8}
		m := newShadow(t, cfg, 10, 4)
		_, err := run(t, m, cfg, newClient([]int32{1, 2}, 3), newClient(make([]int32, c.prompt), 3))
		var e *ops.Error
		if !errors.Is(err, c.kind) || !errors.As(err, &e) || !strings.Contains(e.Arg, "2") || e.Got == "" || e.Want == "" || len(m.steps) != 0 {
			t.Errorf("%s: %v after %d steps, want %q about prompt 2 before any", name, err, len(m.steps), c.kind)
		}
	}
}

// Faults of the model, of Pick and of Leave end the run as they are, and so does a context that is done; every page is given back.
func TestFaults(t *testing.T) {
	broken := errors.New("broken")
	cfg := Config{Requests: 3, Context: 50, Chunk: 8}
	clients := func() []*client {
		return []*client{newClient([]int32{7, 15: 1}, 9), newClient([]int32{7, 15: 2}, 9), newClient([]int32{7, 15: 3}, 9)}
	}
	for at := 1; at < 12; at++ {
		m := newShadow(t, cfg, 30, 4)
		m.fail = func(step int) error {
			if step == at {
				return broken
			}
			return nil
		}
		if _, err := run(t, m, cfg, clients()...); !errors.Is(err, broken) || len(m.steps) != at {
			t.Errorf("the model at step %d: %v after %d", at, err, len(m.steps))
		}
	}
	cs := clients()
	cs[1].Pick = func(model.Logits) (int32, bool, error) { return 0, false, broken }
	if _, err := run(t, newShadow(t, cfg, 30, 4), cfg, cs...); !errors.Is(err, broken) {
		t.Errorf("Pick: %v", err)
	}
	cs = clients()
	cs[2].Leave = func(Reason) error { return broken }
	if _, err := run(t, newShadow(t, cfg, 30, 4), cfg, cs...); !errors.Is(err, broken) {
		t.Errorf("Leave: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	m := newShadow(t, cfg, 30, 4)
	m.fail = func(step int) error {
		if step == 5 {
			cancel()
		}
		return nil
	}
	cs = clients()
	err := Run(ctx, m, cfg, []*Request{&cs[0].Request, &cs[1].Request}, &Stats{})
	if !errors.Is(err, context.Canceled) || len(m.steps) != 5 || m.cache.FreePages() != 30 {
		t.Errorf("%v after %d steps, %d pages free", err, len(m.steps), m.cache.FreePages())
	}
}
