package cpu

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gaze-ml/gaze/internal/attn"
	"github.com/gaze-ml/gaze/internal/simd"
)

// counting adds up its items and panics at one of them.
type counting struct {
	seen    []atomic.Int32
	panicAt int
	work    time.Duration
}

func (c *counting) run(_ *scratch, item int) {
	c.seen[item].Add(1)
	if item == c.panicAt {
		panic("item went wrong")
	}
	for start := time.Now(); time.Since(start) < c.work; {
	}
}

func (c *counting) reset(n int) {
	c.seen, c.panicAt = make([]atomic.Int32, n), -1
}

// Every item runs once, however the loops of several callers fall together and whether workers sleep, spin or finish last.
func TestPoolRunsEachItemOnce(t *testing.T) {
	for _, c := range [][2]int{{1, 3}, {2, 1}, {2, 3}, {5, 1}, {5, 3}} {
		threads, callers := c[0], c[1]
		p := newPool(threads)
		var wg sync.WaitGroup
		for caller := range callers {
			wg.Go(func() {
				var c counting
				var s scratch
				for round := range 300 {
					n := (round*7 + caller) % 23
					c.reset(n)
					if round%50 == 0 {
						time.Sleep(time.Millisecond) // the workers go to sleep
						c.work = 200 * time.Microsecond
					} else {
						c.work = 0
					}
					if err := p.do("test", &c, n, &s); err != nil {
						t.Error(err)
					}
					for i := range c.seen {
						if got := c.seen[i].Load(); got != 1 {
							t.Errorf("threads %d, callers %d, round %d: item %d of %d ran %d times", threads, callers, round, i, n, got)
							return
						}
					}
				}
			})
		}
		wg.Wait()
		p.close()
		var c counting
		c.reset(9)
		if err := p.do("test", &c, 9, new(scratch)); err != nil || c.seen[8].Load() != 1 {
			t.Errorf("after close: error %v, last item ran %d times", err, c.seen[8].Load())
		}
	}
}

// A panic in any item, on a worker or on the caller, is the call's error, and the next call works.
func TestPoolPanicIsAnError(t *testing.T) {
	for _, threads := range []int{1, 3} {
		p := newPool(threads)
		var s scratch
		for at := range 8 {
			var c counting
			c.reset(8)
			c.panicAt, c.work = at, 20*time.Microsecond
			err := p.do("decode", &c, 8, &s)
			var e *attn.Error
			if !errors.As(err, &e) || e.Kind != attn.ErrArgument || e.Op != "decode" || !strings.Contains(e.Got, "panic: item went wrong") {
				t.Fatalf("threads %d: got error %v, want the panic", threads, err)
			}
			c.reset(8)
			if err := p.do("decode", &c, 8, &s); err != nil {
				t.Fatalf("threads %d: the call after a panic: %v", threads, err)
			}
		}
		p.close()
	}
}

// Workers without work sleep.
func TestPoolParks(t *testing.T) {
	p := newPool(3)
	defer p.close()
	var c counting
	c.reset(4)
	if err := p.do("test", &c, 4, new(scratch)); err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(10 * time.Second)
	for i := range p.workers {
		for !p.workers[i].parked.Load() {
			if time.Now().After(deadline) {
				t.Fatalf("worker %d still spins", i)
			}
			time.Sleep(time.Millisecond)
		}
	}
}

// busy is some microseconds of arithmetic an item.
type busy struct{ x []float32 }

func (t busy) run(*scratch, int) {
	for range 100 {
		simd.Dot(t.x, t.x)
	}
}

// BenchmarkHandOff runs one item on each thread, from a goroutine that is and that isn't bound to its thread: what more than
// one thread takes longer than one is the price of a parallel loop.
func BenchmarkHandOff(b *testing.B) {
	for _, locked := range []bool{false, true} {
		for _, threads := range []int{1, 2} {
			b.Run(fmt.Sprintf("locked=%v/threads=%d", locked, threads), func(b *testing.B) {
				if locked {
					runtime.LockOSThread()
					defer runtime.UnlockOSThread()
				}
				p := newPool(threads)
				defer p.close()
				var s scratch
				t := busy{make([]float32, 2048)}
				for b.Loop() {
					if err := p.do("test", t, threads, &s); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
