package cudaops

import (
	"slices"
	"sync/atomic"

	"github.com/gaze-ml/gaze/cudaops/internal/driver"
)

// block is one allocation.
type block struct {
	at    driver.Addr
	bytes int
	given bool // by Alloc: the caller's to give back, not the Runtime's own
}

// blocks are the allocations of a device in the order of their addresses. Whose memory a pointer names is looked up here, never taken
// from a tensor's engine or flags, which Gorgonia's machines change.
type blocks []block

// add puts in an allocation, which overlaps none.
func (s *blocks) add(b block) {
	i, _ := s.search(b.at)
	*s = slices.Insert(*s, i, b)
}

// remove takes out the allocation that starts at a.
func (s *blocks) remove(a driver.Addr) (block, bool) {
	i, found := s.search(a)
	if !found {
		return block{}, false
	}
	b := (*s)[i]
	*s = slices.Delete(*s, i, i+1)
	return b, true
}

// holds tells whether n bytes from a on lie in one allocation.
func (s blocks) holds(a driver.Addr, n int) bool {
	b, ok := s.at(a)
	return ok && b.holds(a, n)
}

// holds tells whether n bytes from a on, which lies in b, do.
func (b block) holds(a driver.Addr, n int) bool {
	return n >= 0 && uint64(n) <= uint64(b.bytes)-uint64(a-b.at)
}

// at is the allocation in which a lies. The end of an allocation lies in it too: it is where an empty tensor may point.
func (s blocks) at(a driver.Addr) (block, bool) {
	i, found := s.search(a)
	if found {
		return s[i], true
	}
	if i == 0 || a > s[i-1].at+driver.Addr(s[i-1].bytes) {
		return block{}, false
	}
	return s[i-1], true
}

// search is where a is among the addresses, or would be: slices.BinarySearchFunc without the calls, for every operand of every launch.
func (s blocks) search(a driver.Addr) (i int, found bool) {
	n := len(s)
	for i < n {
		if m := (i + n) / 2; s[m].at < a {
			i = m + 1
		} else {
			n = m
		}
	}
	return i, i < len(s) && s[i].at == a
}

// owned is blocks that one goroutine at a time changes while others look: nobody who asks whose memory a pointer names waits for a
// Runtime that is waiting for its device.
type owned struct{ now atomic.Pointer[blocks] }

func (o *owned) all() blocks {
	if s := o.now.Load(); s != nil {
		return *s
	}
	return nil
}

func (o *owned) holds(a driver.Addr, n int) bool { return o.all().holds(a, n) }

func (o *owned) at(a driver.Addr) (block, bool) { return o.all().at(a) }

func (o *owned) add(b block) {
	s := slices.Clone(o.all())
	s.add(b)
	o.now.Store(&s)
}

func (o *owned) remove(a driver.Addr) (block, bool) {
	s := slices.Clone(o.all())
	b, ok := s.remove(a)
	o.now.Store(&s)
	return b, ok
}

func (o *owned) clear() { o.now.Store(nil) }
