package graph

import (
	"errors"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"

	"gorgonia.org/tensor"

	"github.com/gaze-ml/gaze/internal/fakedevice"
	"github.com/gaze-ml/gaze/ops"
)

func newFake(t *testing.T) *fakedevice.Device {
	t.Helper()
	d, err := fakedevice.New("fake", 1<<20)
	if errors.Is(err, ops.ErrNoDevice) {
		t.Skipf("SKIPPED: no test of a cache on a device runs on %s: %v", runtime.GOOS, err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}

// A cache on a device keeps the same books, and its pages are copied there: no layer crosses to the host.
func TestKVCacheOnDevice(t *testing.T) {
	const seed = 4
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, seed))
	d := newFake(t)
	b := newBook(t, d)
	for range 1000 {
		b.step(func() int { return r.IntN(256) })
		b.verify()
	}
	if n := d.Counts().Copies; n < 20 || n%small.Layers != 0 {
		t.Errorf("%d copies on the device", n)
	}
	if err := b.cache.Close(); err != nil {
		t.Fatal(err)
	}
	if c := d.Counts(); c.Blocks != 0 {
		t.Errorf("%d blocks after Close", c.Blocks)
	}
}

// A copy that fails leaves the books as they were, however far the call had come; the batch is one write a Set, without an allocation.
func TestKVCacheCopyFails(t *testing.T) {
	boom := errors.New("boom")
	for after := range 2 * small.Layers {
		d := newFake(t)
		b := newBook(t, d)
		var seqs []*Sequence
		b.seqs = []*entry{{}}
		b.reserve(4, []int{0}, func() (*Sequence, error) {
			s, err := b.cache.NewSequence(4)
			seqs = append(seqs, s)
			return s, err
		})
		for range 2 {
			s, err := b.cache.Fork(seqs[0], 4)
			if err != nil {
				t.Fatal(err)
			}
			seqs = append(seqs, s)
			b.seqs = append(b.seqs, &entry{s, slices.Clone(b.seqs[0].pages), slices.Clone(b.seqs[0].tokens)})
		}
		d.FailAfter("copy", after, boom)
		if err := b.cache.Advance(seqs...); !errors.Is(err, boom) {
			t.Errorf("copy %d: %v", after, err)
		}
		b.verify()
		b.reserve(1, []int{0, 1, 2}, func() (*Sequence, error) { return nil, b.cache.Advance(seqs...) })
		b.verify()
		reqs := []Request{{seqs[0], 1}, {seqs[1], 1}}
		writes := d.Counts().Writes
		const sets = 20
		if n := testing.AllocsPerRun(sets, func() { _ = b.decode.Set(reqs...) }); n != 0 {
			t.Errorf("Set allocates %v times", n)
		}
		if n := d.Counts().Writes - writes; n != sets+1 { // AllocsPerRun warms up
			t.Errorf("%d writes for %d batches", n, sets+1)
		}
		d.FailAfter("write", 0, boom)
		if err := b.decode.Set(reqs...); !errors.Is(err, boom) {
			t.Errorf("a failing write: %v", err)
		}
		b.verify()
	}
}

// A cache that doesn't fit gives back what it had.
func TestKVCacheOutOfMemory(t *testing.T) {
	d := newFake(t)
	cfg := KVCacheConfig{Layers: 4, KVHeads: 2, HeadDim: 16, PageSize: 16, Pages: 80, DType: tensor.Float32} // three layers fit
	if _, err := NewKVCache(d, cfg); !errors.Is(err, ops.ErrOutOfMemory) {
		t.Errorf("%v, want ErrOutOfMemory", err)
	}
	if c := d.Counts(); c.Blocks != 0 || c.Allocs != 3 {
		t.Errorf("%+v", c)
	}
}
