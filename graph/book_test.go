package graph

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"unsafe"

	"gorgonia.org/tensor"

	"github.com/gaze-ml/gaze/ops"
)

// small is a cache whose every corner a few random operations reach.
var small = KVCacheConfig{Layers: 2, KVHeads: 2, HeadDim: 3, PageSize: 3, Pages: 11, DType: tensor.Float32}

// book is a model of the cache: sequences of tokens in pages that are shared by pointer, without counts, lists or memory.
type book struct {
	t      testing.TB
	dev    Device
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

func newBook(t testing.TB, dev Device) *book {
	c, err := NewKVCache(dev, small)
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
	return &book{t: t, dev: dev, cache: c, freed: freed, decode: b}
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
		mem, back := b.layer(l)
		for kv := range 2 {
			for h := range small.KVHeads {
				for d := range small.HeadDim {
					i := (((page*2+kv)*small.KVHeads+h)*small.PageSize+at)*small.HeadDim + d
					f(&mem[i], float32(((l*2+kv)*small.KVHeads+h)*small.HeadDim+d)/64)
				}
			}
		}
		back()
	}
}

// layer is the elements of a layer, and what brings back what was changed there.
func (b *book) layer(l int) (mem []float32, back func()) {
	t := b.cache.Layer(l)
	if t.IsNativelyAccessible() {
		return t.Data().([]float32), func() {}
	}
	mem = make([]float32, t.Shape().TotalSize())
	bytes := bytesAt(unsafe.Pointer(&mem[0]), 4*len(mem))
	if err := b.dev.Read(bytes, b.cache.bases[l]); err != nil {
		b.t.Fatal(err)
	}
	before := slices.Clone(mem)
	return mem, func() {
		if !slices.Equal(mem, before) {
			if err := b.dev.Write(b.cache.bases[l], bytes); err != nil {
				b.t.Fatal(err)
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

// tables compares the batch's tensors, as the device has them, with the sequences.
func (b *book) tables(reqs []Request) {
	d := b.decode
	if d.staged != nil {
		there := make([]byte, len(d.staged))
		if err := b.dev.Read(there, d.block); err != nil || !slices.Equal(there, d.staged) {
			b.t.Fatalf("the device has another batch (%v)", err)
		}
	}
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
