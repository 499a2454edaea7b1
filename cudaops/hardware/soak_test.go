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
	names []string
	calls []func(t testing.TB) made
	bytes int // that the largest wants for a workspace
}

// made is a call with outputs of its own, on a workspace or, without one, on the Runtime's.
type made struct {
	run     func(workspace attn.Tensor) error
	outputs []*attn.Tensor
}

func (l *lot) add(name string, call func(t testing.TB) made) {
	l.names, l.calls = append(l.names, name), append(l.calls, call)
}

func (l *lot) decode(t testing.TB, rt *cudaops.Runtime, s shape, lse bool) {
	c := s.decode(t, rt)
	n, err := rt.Backend().WorkspaceSize(c)
	must(t, err)
	l.bytes = max(l.bytes, n)
	l.add("decode/"+s.String(), func(t testing.TB) made {
		c := *c
		c.Out = device(t, rt, c.Out.DType, nil, c.Out.Shape[:3]...)
		if c.OutScale.Valid() {
			c.OutScale = device(t, rt, attn.E4M3, nil, c.OutScale.Shape[:2]...)
		}
		if c.LSE = (attn.Tensor{}); lse {
			c.LSE = device(t, rt, attn.F32, nil, c.Out.Shape[:2]...)
		}
		return made{func(w attn.Tensor) error {
			c.Workspace = w
			return rt.Backend().Decode(&c)
		}, []*attn.Tensor{&c.Out, &c.OutScale, &c.LSE}}
	})
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
	l.add("prefill", func(t testing.TB) made {
		p := *p
		p.Out, p.LSE = device(t, rt, attn.BF16, nil, p.Out.Shape[:3]...), device(t, rt, attn.F32, nil, p.LSE.Shape[:3]...)
		return made{func(attn.Tensor) error { return rt.Backend().Prefill(&p) }, []*attn.Tensor{&p.Out, &p.LSE}}
	})
	l.decode(t, rt, sized(wide, 64, 50, 1), false)
	l.decode(t, rt, sized(wide, 3, 3000, 4), true)
	rows := device(t, rt, attn.BF16, encode(attn.BF16, 2*2*64, func(i int) float64 { return float64(i) / 3 }), 2, 2, 64)
	zeros, at := ints(t, rt, func(int) int { return 0 }, 2), ints(t, rt, func(i int) int { return 3 * i }, 2)
	table := ints(t, rt, func(int) int { return 0 }, 1, 1)
	l.add("append", func(t testing.TB) made {
		c := attn.NewAppendCall()
		c.Key, c.Value, c.BlockTables, c.Positions, c.Requests = rows, rows, table, at, zeros
		c.KeyCache, c.ValueCache = device(t, rt, attn.E4M3, nil, 1, 2, 16, 64), device(t, rt, attn.E4M3, nil, 1, 2, 16, 64)
		must(t, c.Infer())
		return made{func(attn.Tensor) error { return rt.Backend().Append(&c) }, []*attn.Tensor{&c.KeyCache, &c.ValueCache}}
	})
	for _, s := range []shape{sized(mixedTypes, 3, 5000, 1), sized(narrow, 64, 700, 1)} {
		if why := rt.Backend().Supports(s.describe(t)); why != nil {
			t.Log("without", why) // not every build has these
			continue
		}
		l.decode(t, rt, s, true)
	}
	return l
}

// make gives every call outputs of its own.
func (l *lot) make(t testing.TB) (all []made) {
	for _, call := range l.calls {
		all = append(all, call(t))
	}
	return all
}

// results are what each call writes on the Runtime's own workspace.
func (l *lot) results(t testing.TB, rt *cudaops.Runtime) (want [][]byte) {
	t.Helper()
	for _, m := range l.make(t) {
		must(t, m.run(attn.Tensor{}))
		want = append(want, results(t, rt, m.outputs...))
	}
	return want
}

// TestSoak: 1,000 rounds of mixed calls on one workspace, which holds NaN, other calls' leavings or garbage before each, give bit for
// bit what they give on a workspace of their own.
func TestSoak(t *testing.T) {
	rt := open(t, 0)
	l := mixed(t, rt)
	want, calls := l.results(t, rt), l.make(t)
	w := device(t, rt, attn.U8, nil, l.bytes)
	garbage := []attn.Tensor{poisoned(t, rt, attn.U8, l.bytes),
		device(t, rt, attn.U8, encode(attn.F32, l.bytes/4, func(i int) float64 { return float64(i%1000) * 1e30 }), l.bytes)}
	for round := range 1000 {
		for i, m := range calls {
			if g := (round + i) % 3; g < 2 { // the third time as it was left
				must(t, rt.Copy(w.Ptr, garbage[g].Ptr, l.bytes))
			}
			must(t, m.run(w))
			if !bytes.Equal(results(t, rt, m.outputs...), want[i]) {
				t.Fatalf("round %d: %s differs from its result on a fresh workspace", round, l.names[i])
			}
		}
	}
}

// gives makes the call and holds what it writes against want, on any goroutine.
func (m made) gives(rt *cudaops.Runtime, want []byte) error {
	if err := m.run(attn.Tensor{}); err != nil {
		return err
	}
	for _, o := range m.outputs {
		if !o.Valid() {
			continue
		}
		got := make([]byte, o.Bytes())
		if err := rt.Read(got, o.Ptr); err != nil {
			return err
		}
		if !bytes.HasPrefix(want, got) {
			return errors.New("another result")
		}
		want = want[len(got):]
	}
	return nil
}

// TestStreams: 64 goroutines on two Runtimes of one GPU, and on one of every other GPU there is, give what one alone gives.
func TestStreams(t *testing.T) {
	rts := []*cudaops.Runtime{open(t, 0), open(t, 0)}
	devices, err := cudaops.Devices()
	must(t, err)
	for n := 1; n < len(devices); n++ {
		rts = append(rts, open(t, n))
	}
	t.Logf("%d Runtimes on %d GPUs", len(rts), len(devices))
	lots := make([]*lot, len(rts))
	for i, rt := range rts {
		lots[i] = mixed(t, rt)
	}
	want := lots[0].results(t, rts[0])
	var wg sync.WaitGroup
	for g := range 64 {
		rt, l := rts[g%len(rts)], lots[g%len(rts)]
		calls := l.make(t)
		wg.Go(func() {
			for round := range 10 {
				for i, m := range calls {
					if err := m.gives(rt, want[i]); err != nil {
						t.Errorf("goroutine %d on %s, round %d: %s: %v", g, rt.Name(), round, l.names[i], err)
						return
					}
				}
			}
		})
	}
	wg.Wait()
}
