package cpu

import (
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gaze-ml/gaze/internal/attn"
)

// A task is a parallel loop: run does item i, in any order and beside other items, with memory of its own in s.
type task interface {
	run(s *scratch, item int)
}

// A decode step is hundreds of tiny loops one behind the other. A worker that waits on a channel needs some ten microseconds to
// start, so it looks for the next loop for a while before it sleeps; a caller whose last item runs elsewhere does the same.
const spinTime = 50 * time.Microsecond

// crowdLoops is how many loops run without the workers once there were callers for every thread. Waking workers that compete with
// callers for the processors, and the time they then look for work, would be lost to all.
const crowdLoops = 64

// pool runs one loop at a time on its workers and the caller. A caller that finds it taken runs its loop alone: with several
// callers the processors are busy anyway.
type pool struct {
	workers []worker
	exited  sync.WaitGroup

	callers atomic.Int32 // in do
	crowd   atomic.Int32 // loops that still run alone after callers were as many as threads
	taken   atomic.Bool  // by the caller whose loop runs
	op      string
	task    task
	n       int32 // items of the loop

	_ [64]byte // what follows is written by everybody, each on a cache line of its own
	// ticket is the loop's number, 32 bits, above the count of items that nobody has claimed. Only the holder of a claimed item
	// may look at the loop: it can't end before that item was reported. A late worker finds no item and touches nothing.
	ticket   atomic.Uint64
	_        [56]byte
	done     atomic.Int32 // items finished
	waiting  atomic.Bool  // the caller sleeps until finished has a token
	closed   atomic.Bool
	failed   atomic.Pointer[attn.Error] // a panic inside a task: the process lives, the call fails
	finished chan struct{}
}

type worker struct {
	parked  atomic.Bool // sleeps, or is about to, until wake has a token; whoever clears it sends the token
	wake    chan struct{}
	scratch *scratch
	_       [40]byte
}

func newPool(threads int) *pool {
	p := &pool{workers: make([]worker, threads-1), finished: make(chan struct{}, 1)}
	p.exited.Add(len(p.workers))
	for i := range p.workers {
		w := &p.workers[i]
		w.wake, w.scratch = make(chan struct{}, 1), new(scratch)
		go p.work(w)
	}
	return p
}

// close ends the workers. Loops that come later run on their caller alone.
func (p *pool) close() {
	for !p.taken.CompareAndSwap(false, true) { // for good
		time.Sleep(spinTime)
		if p.closed.Load() {
			return
		}
	}
	p.closed.Store(true)
	for i := range p.workers {
		p.workers[i].rouse()
	}
	p.exited.Wait()
}

// do runs items 0 … n-1 of t and returns when all are done; s is the caller's scratch.
func (p *pool) do(op string, t task, n int, s *scratch) error {
	if n <= 0 {
		return nil
	}
	if n == 1 || len(p.workers) == 0 {
		return alone(op, t, n, s)
	}
	if int(p.callers.Add(1)) > len(p.workers) {
		p.crowd.Store(crowdLoops)
	}
	defer p.callers.Add(-1)
	if p.crowd.Load() > 0 {
		p.crowd.Add(-1)
		return alone(op, t, n, s)
	}
	if !p.taken.CompareAndSwap(false, true) {
		return alone(op, t, n, s)
	}
	return p.share(op, t, n, s)
}

// share is do with the workers, which the caller has taken.
func (p *pool) share(op string, t task, n int, s *scratch) error {
	p.op, p.task, p.n = op, t, int32(n)
	p.done.Store(0)
	p.failed.Store(nil)
	p.ticket.Store((p.ticket.Load()>>32+1)<<32 | uint64(n))
	for i := range min(n-1, len(p.workers)) {
		p.workers[i].rouse()
	}
	p.drain(s)
	p.wait()
	p.task = nil
	var err error
	if f := p.failed.Load(); f != nil {
		err = f
	}
	p.taken.Store(false)
	return err
}

// alone runs a loop on the caller.
func alone(op string, t task, n int, s *scratch) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = attn.Panicked(op, v, debug.Stack())
		}
	}()
	for i := range n {
		t.run(s, i)
	}
	return nil
}

// work is a worker's life.
func (p *pool) work(w *worker) {
	defer p.exited.Done()
	for p.await(w) {
		p.drain(w.scratch)
	}
}

// await returns true when there may be items to claim, false when the pool is closed.
func (p *pool) await(w *worker) bool {
	for {
		if spin(func() bool { return uint32(p.ticket.Load()) != 0 }) {
			return true
		}
		w.parked.Store(true)
		// Work that came between the last look and the flag sent no token.
		if (uint32(p.ticket.Load()) != 0 || p.closed.Load()) && w.parked.CompareAndSwap(true, false) {
			return !p.closed.Load()
		}
		<-w.wake
		if p.closed.Load() {
			return false
		}
	}
}

func (w *worker) rouse() {
	if w.parked.Load() && w.parked.CompareAndSwap(true, false) {
		w.wake <- struct{}{}
	}
}

// drain claims and runs items until there are none.
func (p *pool) drain(s *scratch) {
	for !p.claim(s) {
	}
}

// claim is drain up to the first panic; it reports whether it came to the end.
func (p *pool) claim(s *scratch) (end bool) {
	var ran int32
	defer func() {
		if ran == 0 {
			return
		}
		if v := recover(); v != nil {
			p.failed.CompareAndSwap(nil, attn.Panicked(p.op, v, debug.Stack()))
		}
		n := p.n // the loop may be gone after the report
		if p.done.Add(ran) == n && p.waiting.CompareAndSwap(true, false) {
			p.finished <- struct{}{}
		}
	}()
	for {
		v := p.ticket.Load()
		left := int32(uint32(v))
		if left == 0 {
			return true
		}
		if !p.ticket.CompareAndSwap(v, v-1) {
			continue
		}
		ran++
		if p.failed.Load() == nil {
			p.task.run(s, int(p.n-left))
		}
	}
}

// wait returns when every item is done.
func (p *pool) wait() {
	if spin(func() bool { return p.done.Load() == p.n }) {
		return
	}
	for p.done.Load() != p.n {
		p.waiting.Store(true)
		if p.done.Load() == p.n && p.waiting.CompareAndSwap(true, false) {
			return
		}
		<-p.finished // may be the late token of an earlier loop: look again
	}
}

// spin waits for ready, spinTime at most.
func spin(ready func() bool) bool {
	var start time.Time // from the second round on: reading the clock takes as long as a short wait
	for {
		for range 64 {
			if ready() {
				return true
			}
		}
		if now := time.Now(); start.IsZero() {
			start = now
		} else if now.Sub(start) > spinTime {
			return false
		}
	}
}
