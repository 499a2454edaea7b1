package graph

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"gorgonia.org/tensor"

	"github.com/gaze-ml/gaze/ops"
)

func TestKVCacheRandomOperations(t *testing.T) {
	const seed = 3
	r := rand.New(rand.NewPCG(seed, seed))
	t.Logf("seed %d", seed)
	b := newBook(t, CPU)
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
		b := newBook(t, CPU)
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
		{"seq_lens", b.seqLens, []int32{5, 0, 4, 0}},
		{"q_lens", b.qLens, []int32{2, 0, 4, 2}},
		{"cum_q_lens", b.cumQLens, []int32{0, 2, 2, 6, 8}},
		{"positions", b.positions, []int32{3, 4, 0, 1, 2, 3, -1, -1}},
		{"requests", b.requests, []int32{0, 0, 2, 2, 2, 2, 3, 3}},
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
