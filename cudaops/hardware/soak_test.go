//go:build gpu && linux && amd64 && cgo

package hardware

import (
	"bytes"
	"errors"
	"sync"
	"testing"

	"github.com/gaze-ml/gaze/cudaops"
	"github.com/gaze-ml/gaze/internal/attn"
)

// lot is calls of several kinds and sizes on one Runtime.
type lot struct {
	names   []string
	run     []func(workspace attn.Tensor) error
	outputs [][]*attn.Tensor
	bytes   int // that the largest wants for a workspace
}

func (l *lot) decode(t testing.TB, rt *cudaops.Runtime, s shape, lse bool) {
	c := s.decode(t, rt)
	if !lse {
		c.LSE = attn.Tensor{}
	}
	n, err := rt.Backend().WorkspaceSize(c)
	must(t, err)
	l.bytes = max(l.bytes, n)
	l.add("decode/"+s.String(), func(w attn.Tensor) error {
		c.Workspace = w
		return rt.Backend().Decode(c)
	}, &c.Out, &c.OutScale, &c.LSE)
}

func (l *lot) add(name string, run func(attn.Tensor) error, outputs ...*attn.Tensor) {
	l.names, l.run, l.outputs = append(l.names, name), append(l.run, run), append(l.outputs, outputs)
}

// mixed are decode calls of batches 1, 64 and 3, long and short, with and without LSE, of several dtypes, prefill and an append.
func mixed(t testing.TB, rt *cudaops.Runtime) *lot {
	l := new(lot)
	repeat := func(n, x int) []int {
		all := make([]int, n)
		for i := range all {
			all[i] = x - i%7
		}
		return all
	}
	sized := func(s shape, batch, keys, rows int) shape {
		s.kvLens, s.qLens = repeat(batch, keys), []int{rows}
		return s
	}
	wide, mixedTypes, narrow := small, small, small
	wide.d, wide.hq = 128, 16
	mixedTypes.kv = attn.E4M3
	narrow.q, narrow.kv, narrow.out = attn.E4M3, attn.E4M3, attn.U8
	l.decode(t, rt, sized(small, 1, 8192, 1), true)
	l.decode(t, rt, sized(small, 64, 50, 1), true)
	pre := small
	pre.qLens, pre.kvLens = []int{17, 40}, []int{33, 70}
	p := pre.prefill(t, rt)
	l.add("prefill", func(attn.Tensor) error { return rt.Backend().Prefill(p) }, &p.Out, &p.LSE)
	l.decode(t, rt, sized(wide, 64, 50, 1), false)
	l.decode(t, rt, sized(wide, 3, 3000, 4), true)
	a := attn.NewAppendCall()
	a.Key = device(t, rt, attn.BF16, encode(attn.BF16, 2*2*64, func(i int) float64 { return float64(i) / 3 }), 2, 2, 64)
	a.Value = a.Key
	a.KeyCache, a.ValueCache = device(t, rt, attn.E4M3, nil, 1, 2, 16, 64), device(t, rt, attn.E4M3, nil, 1, 2, 16, 64)
	a.BlockTables, a.Positions, a.Requests = ints(t, rt, func(int) int { return 0 }, 1, 1), ints(t, rt, func(i int) int { return 3 * i }, 2), ints(t, rt, func(int) int { return 0 }, 2)
	must(t, a.Infer())
	l.add("append", func(attn.Tensor) error { return rt.Backend().Append(&a) }, &a.KeyCache, &a.ValueCache)
	for _, s := range []shape{sized(mixedTypes, 3, 5000, 1), sized(narrow, 64, 700, 1)} {
		if why := rt.Backend().Supports(s.describe(t)); why != nil {
			t.Log("without", why) // not every build has these
			continue
		}
		l.decode(t, rt, s, true)
	}
	return l
}

// first gives the results on the Runtime's own workspace.
func (l *lot) first(t testing.TB, rt *cudaops.Runtime) [][]byte {
	t.Helper()
	want := make([][]byte, len(l.run))
	for i, run := range l.run {
		must(t, run(attn.Tensor{}))
		want[i] = results(t, rt, l.outputs[i]...)
	}
	return want
}

// TestSoak: 1,000 rounds of mixed calls on one workspace, which holds NaN, other calls' leavings or garbage before each, give bit for
// bit what they give on a workspace of their own.
func TestSoak(t *testing.T) {
	rt := open(t, 0)
	l := mixed(t, rt)
	want := l.first(t, rt)
	w := device(t, rt, attn.U8, nil, l.bytes)
	garbage := []attn.Tensor{poisoned(t, rt, attn.U8, l.bytes), device(t, rt, attn.U8, encode(attn.F32, (l.bytes+3)/4, func(i int) float64 { return float64(i%1000) * 1e30 })[:l.bytes], l.bytes)}
	for round := range 1000 {
		for i, run := range l.run {
			if g := (round + i) % 3; g < 2 { // the third time as it was left
				must(t, rt.Copy(w.Ptr, garbage[g].Ptr, l.bytes))
			}
			must(t, run(w))
			if !bytes.Equal(results(t, rt, l.outputs[i]...), want[i]) {
				t.Fatalf("round %d: %s differs from its result on a fresh workspace", round, l.names[i])
			}
		}
	}
}

// TestStreams: 64 goroutines on two Runtimes of one GPU, and of every other GPU there is, give what one alone gives.
func TestStreams(t *testing.T) {
	first := open(t, 0)
	devices, err := cudaops.Devices()
	must(t, err)
	rts := []*cudaops.Runtime{first, open(t, 0)}
	for n := 1; n < len(devices); n++ {
		rts = append(rts, open(t, n))
	}
	t.Logf("%d Runtimes on %d GPUs", len(rts), len(devices))
	want := mixed(t, first).first(t, first)
	var lots []*lot // one for each goroutine: what a call writes is its own
	for g := range 64 {
		lots = append(lots, mixed(t, rts[g%len(rts)]))
	}
	var wg sync.WaitGroup
	for g, l := range lots {
		rt := rts[g%len(rts)]
		wg.Go(func() {
			for round := range 10 {
				for i, run := range l.run {
					err := run(attn.Tensor{})
					for at, x := 0, 0; x < len(l.outputs[i]) && err == nil; x++ {
						o := l.outputs[i][x]
						if !o.Valid() {
							continue
						}
						got := make([]byte, o.Bytes())
						if err = rt.Read(got, o.Ptr); err == nil && !bytes.Equal(got, want[i][at:at+len(got)]) {
							err = errors.New("another result")
						}
						at += len(got)
					}
					if err != nil {
						t.Errorf("goroutine %d on %s, round %d: %s: %v", g, rt.Name(), round, l.names[i], err)
						return
					}
				}
			}
		})
	}
	wg.Wait()
}
