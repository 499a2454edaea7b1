package cpu

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"

	"github.com/gaze-ml/gaze/internal/attn"
	"github.com/gaze-ml/gaze/internal/quant"
)

// everyCall gives at least one call of each kind, large enough to be divided among threads.
func everyCall(t testing.TB, r *rand.Rand) []attn.Call {
	s := shape{3, 700, 2, 8, 2, 64, 16}
	decode := s.decode(r, attn.BF16, attn.E4M3)
	decode.LSE = fresh(attn.F32, 6, 8)
	prefill := shape{2, 300, 200, 8, 2, 64, 16}.prefill(r, attn.F16)
	prefill.LSE = fresh(attn.F32, 2, 200, 8)
	short := shape{1, 900, 3, 8, 2, 64, 16}.prefill(r, attn.F32)
	x := random(r, attn.BF16, 64, 512)
	weight := fresh(attn.Q4_K, 1024, 2)
	quant.Quantize(attn.Q4_K, slice[byte](weight.Ptr, weight.Bytes()), normal(r, 1024*512))
	heads := random(r, attn.F32, 64, 8, 64)
	app := attn.NewAppendCall()
	app.Key, app.Value = random(r, attn.F32, 64, 8, 64), heads
	app.KeyCache, app.ValueCache = fresh(attn.E4M3, 4, 8, 16, 64), fresh(attn.E4M3, 4, 8, 16, 64)
	app.BlockTables, app.CumSeqLens, app.StartPositions = tables(r, 1, 4), ints(0, 64), ints(0)
	app.KScale = 2
	app.RoPEConfig, app.Query = attn.RoPEConfig{Base: 1e4}, heads
	calls := []attn.Call{decode, prefill, short, &app,
		&attn.RMSNormCall{X: x, Residual: x, Weight: random(r, attn.F32, 512), Eps: 1e-5},
		&attn.RoPECall{X: heads, Positions: repeat(64, 5), RoPEConfig: attn.RoPEConfig{Base: 1e4}},
		&attn.LinearCall{X: x, Weight: weight, Bias: random(r, attn.BF16, 1024)},
		&attn.LinearCall{X: random(r, attn.F32, 1, 512), Weight: weight},
		&attn.SiLUMulCall{Gate: x, Up: x},
		&attn.EmbeddingCall{IDs: repeat(64, 3), Weight: weight},
		&attn.CastCall{X: x, OutDType: attn.F32}, &attn.CastCall{X: heads, OutDType: attn.F16},
		&attn.ArgmaxCall{X: x},
		&attn.SoftmaxCall{Logits: x, Temperature: 0.5},
		&attn.TopKCall{Logits: x, K: 9},
		&attn.MergeLSECall{OutA: heads, OutB: heads, LSEA: random(r, attn.F32, 64, 8), LSEB: random(r, attn.F32, 64, 8)},
	}
	for _, c := range calls {
		if err := c.Infer(); err != nil {
			t.Fatal(err)
		}
		for _, o := range outputsOf(c) {
			allocate(o)
		}
	}
	return calls
}

func outputsOf(c attn.Call) []*attn.Tensor {
	switch c := c.(type) {
	case *attn.DecodeCall:
		return []*attn.Tensor{&c.Out, &c.LSE}
	case *attn.PrefillCall:
		return []*attn.Tensor{&c.Out, &c.LSE}
	case *attn.AppendCall:
		return []*attn.Tensor{&c.KeyCache, &c.ValueCache, &c.QueryOut}
	case *attn.MergeLSECall:
		return []*attn.Tensor{&c.Out, &c.LSE}
	case *attn.RMSNormCall:
		return []*attn.Tensor{&c.Out, &c.Sum}
	case *attn.RoPECall:
		return []*attn.Tensor{&c.Out}
	case *attn.LinearCall:
		return []*attn.Tensor{&c.Out}
	case *attn.SiLUMulCall:
		return []*attn.Tensor{&c.Out}
	case *attn.EmbeddingCall:
		return []*attn.Tensor{&c.Out}
	case *attn.CastCall:
		return []*attn.Tensor{&c.Out}
	case *attn.ArgmaxCall:
		return []*attn.Tensor{&c.Out}
	case *attn.SoftmaxCall:
		return []*attn.Tensor{&c.Out}
	case *attn.TopKCall:
		return []*attn.Tensor{&c.Values, &c.Indices}
	}
	panic("unknown call")
}

func name(i int, c attn.Call) string { return fmt.Sprintf("%d-%s", i, c.Op()) }

// No call allocates after the first of its size.
func TestCallsAllocateNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	b := backend(t, 2)
	for i, c := range everyCall(t, rand.New(rand.NewPCG(27, 28))) {
		t.Run(name(i, c), func(t *testing.T) {
			for range 50 { // both threads have met the largest item
				run(t, b, c)
			}
			if n := testing.AllocsPerRun(20, func() {
				if err := c.Run(b); err != nil {
					t.Error(err)
				}
			}); n != 0 {
				t.Errorf("%v allocations a call, want 0", n)
			}
		})
	}
}

// Results are the same bits for any number of threads, for calls side by side, and after a panic.
func TestResultsDependOnTheCallAlone(t *testing.T) {
	one := backend(t, 1)
	var want [][]float32
	for _, c := range everyCall(t, rand.New(rand.NewPCG(29, 30))) {
		run(t, one, c)
		for _, o := range outputsOf(c) {
			if o.Valid() {
				want = append(want, values(o))
			}
		}
	}
	for _, threads := range []int{2, 5} {
		b := backend(t, threads)
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				calls := everyCall(t, rand.New(rand.NewPCG(29, 30)))
				for range 3 {
					n := 0
					for i, c := range calls {
						if err := c.Run(b); err != nil {
							t.Error(err)
							return
						}
						for _, o := range outputsOf(c) {
							if !o.Valid() {
								continue
							}
							for j, v := range values(o) {
								if w := want[n][j]; v != w && !(v != v && w != w) {
									t.Errorf("%d threads, %s: element %d is %v, alone %v", threads, name(i, c), j, v, w)
									return
								}
							}
							n++
						}
					}
				}
			})
		}
		wg.Wait()
	}
}

// A request gives the same bits alone and in a batch.
func TestResultsDependOnTheRequestAlone(t *testing.T) {
	b := backend(t, 3)
	s := shape{5, 1000, 1, 8, 2, 64, 16}
	c := s.decode(rand.New(rand.NewPCG(31, 32)), attn.BF16, attn.BF16)
	c.SeqLens = ints(1000, 3, 0, 511, 777)
	run(t, b, c)
	whole := values(&c.Out)
	for i := range 5 {
		one := *c
		row := 8 * 64
		one.Query, one.Out = attn.Of(attn.BF16, 1, 8, 64), fresh(attn.BF16, 1, 8, 64)
		one.Query.Ptr = c.Query.At(i * row)
		one.BlockTables, one.SeqLens = attn.Of(attn.I32, 1, c.BlockTables.Shape[1]), attn.Of(attn.I32, 1)
		one.BlockTables.Ptr, one.SeqLens.Ptr = c.BlockTables.At(i*c.BlockTables.Shape[1]), c.SeqLens.At(i)
		run(t, b, &one)
		close32(t, fmt.Sprintf("request %d", i), values(&one.Out), whole[i*row:][:row], 0)
	}
}

// Prefill of 32k tokens with one head needs no score matrix: all of the backend's memory stays far below its 4 GB, and one
// accumulator over that many keys is as exact as a short one.
func TestLongPrefillIsSmallAndExact(t *testing.T) {
	const tokens, d = 32768, 8
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	b := backend(t, 2)
	c := attn.PrefillCall{Scale: 1, MaxQLen: 256, MaxKVLen: tokens, QLens: ints(256), KVLens: ints(tokens)}
	c.Query, c.Key = fresh(attn.F32, 256, 1, d), fresh(attn.F32, tokens, 1, d)
	c.Value = of(attn.F32, filled(tokens*d, 100.1), tokens, 1, d)
	infer(t, &c)
	allocate(&c.Out)
	before := heap()
	run(t, b, &c)
	if used := int64(heap()) - int64(before); used > 8<<20 {
		t.Errorf("the backend keeps %d bytes, want less than 8 MiB", used)
	}
	for i, v := range values(&c.Out) {
		if math.Abs(float64(v)/float64(float32(100.1))-1) > 5e-6 {
			t.Fatalf("mean of %v is %v at %d", float32(100.1), v, i)
		}
	}
}

func TestDefaultIsShared(t *testing.T) {
	a, b := Default(), Default()
	if a != b || a.Threads() != runtime.GOMAXPROCS(0) {
		t.Errorf("Default gives %p and %p with %d threads, want one backend with %d", a, b, a.Threads(), runtime.GOMAXPROCS(0))
	}
}
