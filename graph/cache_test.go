package graph

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"gorgonia.org/tensor"

	"github.com/gaze-ml/gaze/ops"
)

// small is a cache whose every corner a few random operations reach.
var small = KVCacheConfig{Layers: 2, KVHeads: 2, HeadDim: 3, PageSize: 3, Pages: 11, DType: tensor.Float32}

// book is a model of the cache: sequences of tokens in pages that are shared by pointer, without counts, lists or memory.
type book struct {
	t      testing.TB
	cache  *KVCache
	seqs   []*entry
	freed  *Sequence
	tokens float32 // tokens made so far; each is known by its number
	decode *Batch
}

type entry struct {
	seq    *Sequence
	pages  []*page
	tokens []float32
}

type page struct{ _ int }

func newBook(t testing.TB) *book {
	c, err := NewKVCache(CPU, small)
	if err != nil {
		t.Fatal(err)
	}
	b, err := c.DecodeBatch(6, small.Pages*small.PageSize)
	if err != nil {
		t.Fatal(err)
	}
	freed, err := c.NewSequence(2)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Free(freed); err != nil {
		t.Fatal(err)
	}
	return &book{t: t, cache: c, freed: freed, decode: b}
}

func (b *book) used(seqs []*entry) int {
	pages := map[*page]bool{}
	for _, e := range seqs {
		for _, p := range e.pages {
			pages[p] = true
		}
	}
	return len(pages)
}

// grown is what the sequences hold after those at the indices got n more tokens each, in that order.
func (b *book) grown(n int, which ...int) []*entry {
	after := make([]*entry, len(b.seqs))
	for i, e := range b.seqs {
		after[i] = &entry{e.seq, slices.Clone(e.pages), slices.Clone(e.tokens)}
	}
	for _, i := range which {
		e := after[i]
		if part := len(e.tokens) % small.PageSize; part != 0 && n > 0 {
			last := e.pages[len(e.pages)-1]
			for j, o := range after {
				if j != i && slices.Contains(o.pages, last) {
					e.pages[len(e.pages)-1] = new(page) // a copy
					break
				}
			}
		}
		for range n {
			if len(e.tokens)%small.PageSize == 0 {
				e.pages = append(e.pages, new(page))
			}
			b.tokens++
			e.tokens = append(e.tokens, b.tokens)
		}
	}
	return after
}

// reserve compares a call that gives the sequences at the indices n more tokens with the model, and writes the tokens.
func (b *book) reserve(n int, which []int, call func() (made *Sequence, err error)) {
	after := b.grown(n, which...)
	made, err := call()
	if b.used(after) > small.Pages {
		var e *ops.Error
		if !errors.Is(err, ops.ErrCacheFull) || !errors.As(err, &e) {
			b.t.Fatalf("%d tokens for %v with %d pages in use: %v, want ErrCacheFull", n, which, b.used(b.seqs), err)
		}
		want := fmt.Sprintf("%d pages", b.used(after)-b.used(b.seqs))
		got := fmt.Sprintf("%d of %d pages free", small.Pages-b.used(b.seqs), small.Pages)
		if e.Want != want || e.Got != got {
			b.t.Fatalf("got %q, want %q; want %q, %q", e.Got, e.Want, got, want)
		}
		return
	}
	if err != nil {
		b.t.Fatalf("%d tokens for %v with %d pages in use: %v", n, which, b.used(b.seqs), err)
	}
	b.seqs = after
	for _, i := range which {
		e := b.seqs[i]
		if e.seq == nil {
			e.seq = made
		}
		for t := len(e.tokens) - n; t < len(e.tokens); t++ {
			b.each(e.seq, t, func(x *float32, tag float32) { *x = e.tokens[t] + tag })
		}
	}
}

// each visits every element of a token's keys and values in all layers, with a number that tells them apart.
func (b *book) each(s *Sequence, t int, f func(x *float32, tag float32)) {
	page, at := int(s.pages[t/small.PageSize]), t%small.PageSize
	for l := range small.Layers {
		mem := b.cache.Layer(l).Data().([]float32)
		for kv := range 2 {
			for h := range small.KVHeads {
				for d := range small.HeadDim {
					i := (((page*2+kv)*small.KVHeads+h)*small.PageSize+at)*small.HeadDim + d
					f(&mem[i], float32(((l*2+kv)*small.KVHeads+h)*small.HeadDim+d)/64)
				}
			}
		}
	}
}

// step does one operation, chosen by a byte, on sequences and sizes chosen by the next ones.
func (b *book) step(next func() int) {
	op := next() % 10
	if len(b.seqs) == 0 {
		op = 0
	}
	pick := func() int { return next() % len(b.seqs) }
	switch op {
	case 0: // a new sequence
		n := next() % 9
		if len(b.seqs) >= 12 {
			return
		}
		last := len(b.seqs)
		b.seqs = append(b.seqs, &entry{})
		b.reserve(n, []int{last}, func() (*Sequence, error) { return b.cache.NewSequence(n) })
		if b.seqs[last].seq == nil { // full
			b.seqs = b.seqs[:last]
		}
	case 1, 2: // more tokens
		i, n := pick(), next()%7
		b.reserve(n, []int{i}, func() (*Sequence, error) { return nil, b.cache.Append(b.seqs[i].seq, n) })
	case 3, 4: // the next token of several, in any order
		var which []int
		var seqs []*Sequence
		for range next() % 5 {
			if i := pick(); !slices.Contains(which, i) {
				which, seqs = append(which, i), append(seqs, b.seqs[i].seq)
			}
		}
		b.reserve(1, which, func() (*Sequence, error) { return nil, b.cache.Advance(seqs...) })
	case 5: // fewer tokens
		e := b.seqs[pick()]
		n := next() % (len(e.tokens) + 1)
		if err := b.cache.Truncate(e.seq, n); err != nil {
			b.t.Fatal(err)
		}
		e.tokens = e.tokens[:n]
		e.pages = e.pages[:(n+small.PageSize-1)/small.PageSize]
	case 6: // the end of one
		i := pick()
		b.freed = b.seqs[i].seq
		if err := b.cache.Free(b.freed); err != nil {
			b.t.Fatal(err)
		}
		b.seqs = slices.Delete(b.seqs, i, i+1)
	case 7, 8: // a fork
		e := b.seqs[pick()]
		if len(b.seqs) >= 12 {
			return
		}
		n := next() % (len(e.tokens) + 1)
		if next()%2 == 0 {
			n = len(e.tokens)
		}
		s, err := b.cache.Fork(e.seq, n)
		if err != nil {
			b.t.Fatal(err)
		}
		b.seqs = append(b.seqs, &entry{s, slices.Clone(e.pages[:(n+small.PageSize-1)/small.PageSize]), slices.Clone(e.tokens[:n])})
	case 9:
		b.misuse(b.seqs[pick()])
	}
}

// misuse wants ErrArgument from every wrong call; verify then sees that nothing changed.
func (b *book) misuse(e *entry) {
	c, s := b.cache, e.seq
	other, err := NewKVCache(CPU, KVCacheConfig{Layers: 1, KVHeads: 1, HeadDim: 1, PageSize: 1, Pages: 1, DType: ops.Float16})
	if err != nil {
		b.t.Fatal(err)
	}
	foreign, err := other.NewSequence(1)
	if err != nil {
		b.t.Fatal(err)
	}
	fork := func(s *Sequence, n int) error { _, err := c.Fork(s, n); return err }
	create := func(n int) error { _, err := c.NewSequence(n); return err }
	for what, err := range map[string]error{
		"double free":         c.Free(b.freed),
		"free of nil":         c.Free(nil),
		"free of another's":   c.Free(foreign),
		"append to freed":     c.Append(b.freed, 1),
		"append to another's": c.Append(foreign, 1),
		"append -1":           c.Append(s, -1),
		"append 2^31":         c.Append(s, 1<<31),
		"new -1":              create(-1),
		"advance freed":       c.Advance(s, b.freed),
		"advance nil":         c.Advance(s, nil),
		"advance twice":       c.Advance(s, s),
		"truncate freed":      c.Truncate(b.freed, 0),
		"truncate beyond":     c.Truncate(s, len(e.tokens)+1),
		"truncate -1":         c.Truncate(s, -1),
		"fork freed":          fork(b.freed, 0),
		"fork beyond":         fork(s, len(e.tokens)+1),
		"fork -1":             fork(s, -1),
		"batch of freed":      b.decode.Set(Request{b.freed, 1}),
		"batch of another's":  b.decode.Set(Request{foreign, 1}),
		"batch of two tokens": b.decode.Set(Request{s, 2}),
		"batch of -1 tokens":  b.decode.Set(Request{s, -1}),
		"batch of nil tokens": b.decode.Set(Request{nil, 1}),
		"batch too large":     b.decode.Set(make([]Request, 7)...),
	} {
		var e *ops.Error
		if !errors.Is(err, ops.ErrArgument) || !errors.As(err, &e) || e.Arg == "" || e.Got == "" || e.Want == "" {
			b.t.Fatalf("%s: %v, want an ErrArgument with argument, got and want", what, err)
		}
	}
}

// verify compares the cache with the model: books, memory, tables.
func (b *book) verify() {
	if err := b.accounts(); err != nil {
		b.t.Fatal(err)
	}
	if free := b.cache.FreePages(); free != small.Pages-b.used(b.seqs) {
		b.t.Fatalf("%d pages free, want %d", free, small.Pages-b.used(b.seqs))
	}
	var reqs []Request
	for _, e := range b.seqs {
		if e.seq.Len() != len(e.tokens) {
			b.t.Fatalf("%d tokens, want %d", e.seq.Len(), len(e.tokens))
		}
		for t, want := range e.tokens {
			b.each(e.seq, t, func(x *float32, tag float32) {
				if *x != want+tag {
					b.t.Fatalf("position %d holds %v, want %v", t, *x, want+tag)
				}
			})
		}
		if len(reqs) < 6 {
			r := Request{e.seq, 1}
			if len(e.tokens) == 0 {
				r = Request{}
			}
			reqs = append(reqs, r)
		}
	}
	if err := b.decode.Set(reqs...); err != nil {
		b.t.Fatal(err)
	}
	b.tables(reqs)
}

// accounts checks that every page is either free, once, or held by as many sequences as its count says.
func (b *book) accounts() error {
	c := b.cache
	held := make([]int32, small.Pages)
	for _, e := range b.seqs {
		if len(e.seq.pages) != c.pagesFor(e.seq.n) {
			return fmt.Errorf("%d pages for %d tokens", len(e.seq.pages), e.seq.n)
		}
		if e.seq.seen || e.seq.split {
			return fmt.Errorf("marks left behind by reserve")
		}
		for _, p := range e.seq.pages {
			held[p]++
		}
	}
	for _, p := range c.free {
		if held[p] != 0 {
			return fmt.Errorf("page %d is free twice or free and held by %d", p, held[p])
		}
		held[p] = -1
	}
	for p, n := range held {
		if n == 0 || n != c.refs[p] && !(n == -1 && c.refs[p] == 0) {
			return fmt.Errorf("page %d has count %d but is held by %d (-1: free, 0: lost)", p, c.refs[p], n)
		}
	}
	return nil
}

// tables compares the batch's tensors with the sequences.
func (b *book) tables(reqs []Request) {
	d := b.decode
	for i := range 6 {
		n, row := 0, []int32{}
		pos := int32(-1)
		if i < len(reqs) && reqs[i].Seq != nil {
			n, row = reqs[i].Seq.n, reqs[i].Seq.pages
			pos = int32(n - 1)
		}
		if d.seqLens[i] != int32(n) || d.positions[i] != pos || n > 0 && (d.requests[i] != int32(i) || d.lastRows[i] != int32(i)) {
			b.t.Fatalf("request %d of %d tokens: seq_lens %d, position %d, request %d", i, n, d.seqLens[i], d.positions[i], d.requests[i])
		}
		for j := range d.maxPages {
			want := int32(-1)
			if j < len(row) {
				want = row[j]
			}
			if got := d.tables[i*d.maxPages+j]; got != want {
				b.t.Fatalf("block_tables[%d,%d] = %d, want %d", i, j, got, want)
			}
		}
	}
}

func TestKVCacheRandomOperations(t *testing.T) {
	const seed = 3
	r := rand.New(rand.NewPCG(seed, seed))
	t.Logf("seed %d", seed)
	b := newBook(t)
	full := 0
	for range 10_000 {
		b.step(func() int { return r.IntN(256) })
		b.verify()
		if b.cache.FreePages() == 0 {
			full++
		}
	}
	if full < 100 {
		t.Errorf("the cache was full after %d operations only: too large for this test", full)
	}
	for len(b.seqs) > 0 {
		if err := b.cache.Free(b.seqs[0].seq); err != nil {
			t.Fatal(err)
		}
		b.seqs = b.seqs[1:]
	}
	if b.verify(); b.cache.FreePages() != small.Pages {
		t.Errorf("%d of %d pages free after everything was freed", b.cache.FreePages(), small.Pages)
	}
}

func FuzzKVCache(f *testing.F) {
	f.Add([]byte{0, 8, 7, 0, 0, 0, 3, 4, 0, 1, 2, 3, 5, 0, 1, 6, 0})
	f.Add([]byte{0, 8, 0, 8, 0, 8, 0, 8, 1, 0, 6, 1, 1, 6, 3, 4, 0, 1, 2, 3})
	f.Fuzz(func(t *testing.T, data []byte) {
		b := newBook(t)
		for len(data) > 0 {
			b.step(func() int {
				if len(data) == 0 {
					return 0
				}
				x := data[0]
				data = data[1:]
				return int(x)
			})
			b.verify()
		}
	})
}

// Two that share a part-filled page: the first to write gets a copy, the last one the page itself, in one call too.
func TestKVCacheCopiesOnWriteOnce(t *testing.T) {
	c, err := NewKVCache(CPU, small)
	if err != nil {
		t.Fatal(err)
	}
	a, err := c.NewSequence(4)
	if err != nil {
		t.Fatal(err)
	}
	b, err := c.Fork(a, 4)
	if err != nil {
		t.Fatal(err)
	}
	shared := slices.Clone(a.pages)
	if err := c.Advance(a, b); err != nil {
		t.Fatal(err)
	}
	if a.pages[0] != shared[0] || b.pages[0] != shared[0] {
		t.Error("a full page was copied")
	}
	if a.pages[1] == shared[1] || b.pages[1] != shared[1] {
		t.Errorf("pages %v and %v after %v was shared: want a copy for the first and none for the second", a.pages, b.pages, shared)
	}
	if free := c.FreePages(); free != small.Pages-3 {
		t.Errorf("%d pages free, want %d", free, small.Pages-3)
	}
}

func TestPrefillBatch(t *testing.T) {
	c, err := NewKVCache(CPU, small)
	if err != nil {
		t.Fatal(err)
	}
	b, err := c.PrefillBatch(3, 8, 9)
	if err != nil {
		t.Fatal(err)
	}
	x, _ := c.NewSequence(5)
	y, _ := c.NewSequence(4)
	if err := b.Set(Request{x, 2}, Request{}, Request{y, 4}); err != nil {
		t.Fatal(err)
	}
	for _, v := range []struct {
		name      string
		got, want []int32
	}{
		{"seq_lens", b.seqLens, []int32{5, 0, 4}},
		{"q_lens", b.qLens, []int32{2, 0, 4}},
		{"positions", b.positions, []int32{3, 4, 0, 1, 2, 3, -1, -1}},
		{"requests", b.requests, []int32{0, 0, 2, 2, 2, 2, 0, 0}},
		{"last_rows", b.lastRows, []int32{1, 0, 5}},
	} {
		if !slices.Equal(v.got, v.want) {
			t.Errorf("%s %v, want %v", v.name, v.got, v.want)
		}
	}
	before := slices.Clone(b.positions)
	long, _ := c.NewSequence(10)
	for what, err := range map[string]error{
		"rows":        b.Set(Request{x, 5}, Request{y, 4}),
		"max_seq_len": b.Set(Request{long, 1}),
		"tokens":      b.Set(Request{y, 5}),
	} {
		if !errors.Is(err, ops.ErrArgument) {
			t.Errorf("%s: %v, want ErrArgument", what, err)
		}
	}
	if !slices.Equal(before, b.positions) {
		t.Errorf("a refused Set wrote %v", b.positions)
	}
	reqs := []Request{{x, 2}, {y, 1}}
	if n := testing.AllocsPerRun(100, func() { _ = b.Set(reqs...) }); n != 0 {
		t.Errorf("Set allocates %v times", n)
	}
}

func TestKVCacheConfig(t *testing.T) {
	for _, c := range []struct {
		what string
		edit func(*KVCacheConfig)
		want error
	}{
		{"layers 0", func(c *KVCacheConfig) { c.Layers = 0 }, ops.ErrArgument},
		{"heads -1", func(c *KVCacheConfig) { c.KVHeads = -1 }, ops.ErrArgument},
		{"head_dim 0", func(c *KVCacheConfig) { c.HeadDim = 0 }, ops.ErrArgument},
		{"page size 0", func(c *KVCacheConfig) { c.PageSize = 0 }, ops.ErrArgument},
		{"pages 0", func(c *KVCacheConfig) { c.Pages = 0 }, ops.ErrArgument},
		{"pages 2^40", func(c *KVCacheConfig) { c.Pages = 1 << 40 }, ops.ErrArgument},
		{"no dtype", func(c *KVCacheConfig) { c.DType = tensor.Dtype{} }, ops.ErrDType},
		{"int32", func(c *KVCacheConfig) { c.DType = tensor.Int32 }, ops.ErrDType},
		{"blocks", func(c *KVCacheConfig) { c.DType = ops.Q8_0 }, ops.ErrDType},
		{"layout", func(c *KVCacheConfig) { c.Layout = 7 }, ops.ErrArgument},
		{"2^70 bytes", func(c *KVCacheConfig) { c.Pages, c.HeadDim, c.PageSize = 1<<30, 1<<20, 1<<16 }, ops.ErrOutOfMemory},
		{"2^58 bytes", func(c *KVCacheConfig) { c.Layers, c.Pages, c.HeadDim, c.PageSize = 1, 1<<30, 1<<20, 1<<4 }, ops.ErrOutOfMemory},
	} {
		cfg := small
		c.edit(&cfg)
		_, err := NewKVCache(CPU, cfg)
		var e *ops.Error
		if !errors.Is(err, c.want) || !errors.As(err, &e) || e.Arg == "" {
			t.Errorf("%s: %v, want %v", c.what, err, c.want)
		}
	}
	if _, err := NewKVCache(nil, small); !errors.Is(err, ops.ErrNoDevice) {
		t.Errorf("no device: %v", err)
	}
	for _, layout := range []ops.Layout{ops.HND, ops.NHD} {
		cfg := small
		cfg.Layout, cfg.DType = layout, ops.Float8E4M3
		c, err := NewKVCache(CPU, cfg)
		if err != nil {
			t.Fatal(err)
		}
		want := tensor.Shape{11, 2, 2, 3, 3}
		if layout == ops.NHD {
			want = tensor.Shape{11, 2, 3, 2, 3}
		}
		if got := c.Layer(1).Shape(); !slices.Equal(got, want) {
			t.Errorf("%v: layers of shape %v, want %v", layout, got, want)
		}
		if got := cfg.Bytes(); got != 2*int(c.Layer(0).MemSize()) {
			t.Errorf("%v: Bytes says %d, two layers have %d", layout, got, 2*c.Layer(0).MemSize())
		}
	}
}
