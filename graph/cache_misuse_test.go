package graph

import (
	"errors"
	"math"
	"sync"
	"testing"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/gaze-ml/gaze/ops"
)

func TestAbsurdSizesAreRefused(t *testing.T) {
	cfg := KVCacheConfig{Layers: 1, KVHeads: 1, HeadDim: 8, PageSize: 4, Pages: 4, DType: tensor.Float32}
	for name, c := range map[string]struct {
		change func(*KVCacheConfig)
		want   error
	}{
		"a pebibyte":       {func(c *KVCacheConfig) { c.Layers, c.Pages = 1<<20, 1<<23 }, ops.ErrOutOfMemory},
		"no dtype":         {func(c *KVCacheConfig) { c.DType = tensor.Dtype{} }, ops.ErrDType},
		"a dtype of ints":  {func(c *KVCacheConfig) { c.DType = tensor.Int32 }, ops.ErrDType},
		"no such layout":   {func(c *KVCacheConfig) { c.Layout = 9 }, ops.ErrArgument},
		"a negative count": {func(c *KVCacheConfig) { c.Pages = -1 }, ops.ErrArgument},
	} {
		bad := cfg
		c.change(&bad)
		if _, err := NewKVCache(CPU, bad); !errors.Is(err, c.want) {
			t.Errorf("%s: got %v, want %v", name, err, c.want)
		}
	}
	cache, err := NewKVCache(CPU, cfg)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := cache.PrefillBatch(math.MaxInt32, math.MaxInt32, math.MaxInt32); err == nil {
		b, _ := cache.PrefillBatch(1, 1, math.MaxInt32)
		t.Errorf("got tensors for 2^31 requests; block tables of one: %v", b.BlockTables.Shape())
	}
	b, err := cache.DecodeBatch(2, math.MaxInt32)
	if err != nil {
		t.Fatal(err)
	}
	if got := b.BlockTables.Shape(); got[1] != cfg.Pages {
		t.Errorf("block tables %v: want a column for each page of the pool, %d", got, cfg.Pages)
	}
	if cache.Layer(-1) != nil || cache.Layer(1) != nil || cache.Layer(0) == nil {
		t.Error("Layer must be nil for layers that the cache doesn't have, and only for them")
	}
	if _, err := NewMachine(gorgonia.NewGraph(), nil); !errors.Is(err, ops.ErrArgument) {
		t.Errorf("a nil option: got %v, want ErrArgument", err)
	}
}

// TestFreeBesideLen is for the race detector: any method of a sequence beside its end.
func TestFreeBesideLen(t *testing.T) {
	cache, err := NewKVCache(CPU, KVCacheConfig{Layers: 1, KVHeads: 1, HeadDim: 8, PageSize: 4, Pages: 4, DType: tensor.Float32})
	if err != nil {
		t.Fatal(err)
	}
	for range 200 {
		s, err := cache.NewSequence(5)
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		wg.Go(func() {
			if n := s.Len(); n != 5 && n != 0 {
				t.Errorf("length %d: want 5, or 0 once freed", n)
			}
		})
		wg.Go(func() {
			if err := cache.Free(s); err != nil {
				t.Error(err)
			}
		})
		wg.Wait()
		if _, err := cache.Fork(s, 0); !errors.Is(err, ops.ErrArgument) {
			t.Fatalf("a freed sequence: got %v, want ErrArgument", err)
		}
	}
}
