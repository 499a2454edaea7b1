package graph

import (
	"errors"
	"fmt"
	"math"
	"sync"
	"unsafe"

	"gorgonia.org/tensor"

	"github.com/gaze-ml/gaze/internal/attn"
	"github.com/gaze-ml/gaze/ops"
)

// KVCacheConfig sizes a [KVCache].
type KVCacheConfig struct {
	Layers   int
	KVHeads  int
	HeadDim  int
	PageSize int          // tokens a page
	Pages    int          // pages in the pool of each layer
	DType    tensor.Dtype // tensor.Float32, ops.Float16, ops.BFloat16 or ops.Float8E4M3
	Layout   ops.Layout   // of a page
}

// Bytes is the memory that the cache takes, K and V of every layer.
func (c KVCacheConfig) Bytes() int { return c.Layers * c.Pages * c.pageBytes() }

func (c KVCacheConfig) pageBytes() int {
	return 2 * c.KVHeads * c.PageSize * c.HeadDim * ops.DTypeOf(c.DType).Size()
}

// KVCache is a pool of pages that hold the keys and values of many sequences: page p of a sequence has the same number in every
// layer, and sequences with a common prefix share its pages. Kwon et al., "Efficient Memory Management for Large Language Model
// Serving with PagedAttention", 2023.
//
// On a device its memory is there, and copies of pages are made there.
//
// The cache only keeps the books and hands out memory; [ops.AppendKV] writes keys and values. A page that several sequences
// hold is never written: the cache copies a part-filled one before it gives a slot in it away.
//
// Methods may be called from several goroutines. A call that returns an error has changed nothing.
type KVCache struct {
	cfg    KVCacheConfig
	dev    Device
	layers []*tensor.Dense
	bases  []unsafe.Pointer

	mu     sync.Mutex
	closed bool
	blocks []unsafe.Pointer // what the batches have on the device
	refs   []int32          // sequences that hold each page
	free   []int32          // pages that nobody holds; the last one goes next
}

// Sequence is the pages of one request's tokens, made by [KVCache.NewSequence] or [KVCache.Fork].
type Sequence struct {
	cache *KVCache
	freed bool
	pages []int32
	n     int  // slots given out
	split bool // the last page must be copied before it is written: during KVCache.reserve only
	seen  bool // twice in one call: during KVCache.reserve only
}

// NewKVCache allocates a cache on a device. Bad sizes are ErrArgument, dtypes that attention can't read ErrDType, too large ones
// ErrOutOfMemory.
func NewKVCache(dev Device, cfg KVCacheConfig) (*KVCache, error) {
	if dev == nil {
		return nil, attn.Errorf(ops.ErrNoDevice, "kv_cache", "device", "a device", "nil")
	}
	if err := cfg.check(); err != nil {
		return nil, err
	}
	c := &KVCache{cfg: cfg, dev: dev}
	shape := []int{cfg.Pages, 2, cfg.KVHeads, cfg.PageSize, cfg.HeadDim}
	if cfg.Layout == ops.NHD {
		shape[2], shape[3] = shape[3], shape[2]
	}
	t := attn.Of(ops.DTypeOf(cfg.DType), shape...)
	for range cfg.Layers {
		var err error
		if t.Ptr, err = dev.Alloc(t.Bytes()); err != nil {
			return nil, errors.Join(err, c.Close())
		}
		c.bases = append(c.bases, t.Ptr)
		c.layers = append(c.layers, headerOf(dev, &t))
	}
	c.refs, c.free = make([]int32, cfg.Pages), make([]int32, cfg.Pages)
	for i := range c.free {
		c.free[i] = int32(cfg.Pages - 1 - i)
	}
	return c, nil
}

// Close gives back the memory of the cache and of its batches. A second Close does nothing; every other use afterwards is ErrArgument.
// Machines must not run on it any more.
func (c *KVCache) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil
	}
	c.closed = true
	var errs []error
	for _, p := range append(c.bases, c.blocks...) {
		errs = append(errs, c.dev.Free(p))
	}
	c.bases, c.blocks = nil, nil
	return errors.Join(errs...)
}

// open refuses a closed cache.
func (c *KVCache) open() error {
	if c.closed {
		return attn.Errorf(ops.ErrArgument, "kv_cache", "kv_cache", "an open cache", "a closed one")
	}
	return nil
}

func (c KVCacheConfig) check() error {
	total := 2.0
	for _, s := range []struct {
		name string
		n    int
	}{{"layers", c.Layers}, {"kv_heads", c.KVHeads}, {"head_dim", c.HeadDim}, {"page_size", c.PageSize}, {"pages", c.Pages}} {
		if s.n < 1 || s.n > math.MaxInt32 {
			return attn.Errorf(ops.ErrArgument, "kv_cache", s.name, "1 or more, within int32", "%d", s.n)
		}
		total *= float64(s.n)
	}
	switch ops.DTypeOf(c.DType) {
	case attn.F32, attn.F16, attn.BF16, attn.E4M3:
	default:
		return attn.Errorf(ops.ErrDType, "kv_cache", "dtype", "float32, Float16, BFloat16 or Float8E4M3", "%v", c.DType.Type)
	}
	if c.Layout != ops.HND && c.Layout != ops.NHD {
		return attn.Errorf(ops.ErrArgument, "kv_cache", "kv_layout", "HND or NHD", "%v", c.Layout)
	}
	if total *= float64(ops.DTypeOf(c.DType).Size()); total > maxBytes {
		return attn.Errorf(ops.ErrOutOfMemory, "kv_cache", "pages", "a cache that fits into memory", "%.0f bytes", total)
	}
	return nil
}

// Config is what the cache was made with.
func (c *KVCache) Config() KVCacheConfig { return c.cfg }

// maxBytes is what an amd64 program can address, with room to spare: what asks for more is a mistake.
const maxBytes = 1 << 46

// Layer is the stacked cache of layer i, for [ops.StackedKV] with the cache's layout: [Pages, 2, KVHeads, PageSize, HeadDim], or
// [Pages, 2, PageSize, KVHeads, HeadDim] in NHD. It stays the same tensor for the life of the cache.
// A layer that the cache doesn't have is nil.
func (c *KVCache) Layer(i int) *tensor.Dense {
	if i < 0 || i >= len(c.layers) {
		return nil
	}
	return c.layers[i]
}

// FreePages is the number of pages that no sequence holds.
func (c *KVCache) FreePages() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.free)
}

// Len is the number of tokens whose slots the sequence has.
func (s *Sequence) Len() int {
	if s == nil || s.cache == nil {
		return 0
	}
	s.cache.mu.Lock()
	defer s.cache.mu.Unlock()
	return s.n
}

// NewSequence makes a sequence with slots for n tokens at positions 0 … n-1. ErrCacheFull names the pages wanted and free.
func (c *KVCache) NewSequence(n int) (*Sequence, error) {
	s := &Sequence{cache: c}
	if err := c.Append(s, n); err != nil {
		return nil, err
	}
	return s, nil
}

// Append gives s slots for n more tokens. ErrCacheFull names the pages wanted and free.
func (c *KVCache) Append(s *Sequence, n int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n < 0 || n > math.MaxInt32 {
		return attn.Errorf(ops.ErrArgument, "kv_cache", "tokens", "0 or more, within int32", "%d", n)
	}
	return c.reserve(n, s)
}

// Advance gives every sequence the slot of its next token, or none of them: ErrCacheFull names the pages wanted and free.
func (c *KVCache) Advance(seqs ...*Sequence) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.reserve(1, seqs...)
}

// reserve gives each sequence n slots. It first counts what all of them take, as if it were done, and takes it back if that is
// too much.
func (c *KVCache) reserve(n int, seqs ...*Sequence) (err error) {
	wanted, counted := 0, 0
	for _, s := range seqs {
		if err = c.holds(s); err != nil {
			break
		}
		if s.seen {
			err = attn.Errorf(ops.ErrArgument, "kv_cache", "sequence", "each sequence once", "one twice")
			break
		}
		if s.n > math.MaxInt32-n {
			err = attn.Errorf(ops.ErrArgument, "kv_cache", "tokens", "positions within int32", "%d after %d", n, s.n)
			break
		}
		s.seen = true
		counted++
		if s.split = n > 0 && s.n%c.cfg.PageSize != 0 && c.refs[s.last()] > 1; s.split {
			c.refs[s.last()]-- // so that the last holder of a page may write it
			wanted++
		}
		wanted += c.pagesFor(s.n+n) - len(s.pages)
	}
	if err == nil && wanted > len(c.free) {
		err = attn.Errorf(ops.ErrCacheFull, "kv_cache", "pages", fmt.Sprintf("%d pages", wanted), "%d of %d pages free", len(c.free), c.cfg.Pages)
	}
	if err == nil {
		err = c.copySplit(seqs)
	}
	for _, s := range seqs[:counted] {
		if err == nil {
			for len(s.pages) < c.pagesFor(s.n+n) {
				s.pages = append(s.pages, c.take())
			}
			s.n += n
		} else if s.split {
			c.refs[s.last()]++
		}
		s.split, s.seen = false, false
	}
	return err
}

// copySplit gives sequences that are about to write a shared page one of their own with the same content in every layer. It
// changes the books only when all copies were made.
func (c *KVCache) copySplit(seqs []*Sequence) error {
	next := len(c.free)
	for _, s := range seqs {
		if s.split {
			next--
			if err := c.copyPage(c.free[next], s.last()); err != nil {
				return err
			}
		}
	}
	for _, s := range seqs {
		if s.split {
			s.pages[len(s.pages)-1] = c.take()
		}
	}
	return nil
}

func (c *KVCache) copyPage(dst, src int32) error {
	n := c.cfg.pageBytes()
	for _, base := range c.bases {
		if err := c.dev.Copy(unsafe.Add(base, int(dst)*n), unsafe.Add(base, int(src)*n), n); err != nil {
			return err
		}
	}
	return nil
}

// Truncate takes back all but the first n tokens' slots; n beyond the sequence's length, or below 0, is ErrArgument.
func (c *KVCache) Truncate(s *Sequence, n int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.holds(s); err != nil {
		return err
	}
	if n < 0 || n > s.n {
		return attn.Errorf(ops.ErrArgument, "kv_cache", "tokens", fmt.Sprintf("0 to %d, the sequence's length", s.n), "%d", n)
	}
	c.truncate(s, n)
	return nil
}

func (c *KVCache) truncate(s *Sequence, n int) {
	keep := c.pagesFor(n)
	for i := len(s.pages) - 1; i >= keep; i-- {
		c.drop(s.pages[i])
	}
	s.pages, s.n = s.pages[:keep], n
}

// Free gives the sequence's pages back. Every later use of it is ErrArgument.
func (c *KVCache) Free(s *Sequence) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.holds(s); err != nil {
		return err
	}
	c.truncate(s, 0)
	s.freed = true
	return nil
}

// Fork makes a sequence of the first n tokens of s, which share their pages until one of the two writes into a part-filled one; n beyond
// the length of s, or below 0, is ErrArgument.
func (c *KVCache) Fork(s *Sequence, n int) (*Sequence, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.holds(s); err != nil {
		return nil, err
	}
	if n < 0 || n > s.n {
		return nil, attn.Errorf(ops.ErrArgument, "kv_cache", "tokens", fmt.Sprintf("0 to %d, the sequence's length", s.n), "%d", n)
	}
	f := &Sequence{cache: c, n: n, pages: append([]int32(nil), s.pages[:c.pagesFor(n)]...)}
	for _, p := range f.pages {
		c.refs[p]++
	}
	return f, nil
}

// holds refuses sequences that are not this cache's, and every one once that is closed.
func (c *KVCache) holds(s *Sequence) error {
	if err := c.open(); err != nil {
		return err
	}
	switch {
	case s == nil:
		return attn.Errorf(ops.ErrArgument, "kv_cache", "sequence", "a sequence of this cache", "nil")
	case s.cache != c: // never changes; the rest of another cache's sequence is not ours to look at
		return attn.Errorf(ops.ErrArgument, "kv_cache", "sequence", "a sequence of this cache", "one of another cache")
	case s.freed:
		return attn.Errorf(ops.ErrArgument, "kv_cache", "sequence", "a sequence of this cache", "one that was freed")
	}
	return nil
}

func (c *KVCache) pagesFor(n int) int { return (n + c.cfg.PageSize - 1) / c.cfg.PageSize }

// last is the page of the sequence's last token.
func (s *Sequence) last() int32 { return s.pages[len(s.pages)-1] }

// take hands out a free page.
func (c *KVCache) take() int32 {
	p := c.free[len(c.free)-1]
	c.free = c.free[:len(c.free)-1]
	c.refs[p] = 1
	return p
}

// drop ends one sequence's hold on a page.
func (c *KVCache) drop(p int32) {
	if c.refs[p]--; c.refs[p] == 0 {
		c.free = append(c.free, p)
	}
}
