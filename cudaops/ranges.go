package cudaops

import (
	"slices"

	"github.com/gaze-ml/gaze/cudaops/internal/driver"
)

// block is one allocation.
type block struct {
	at    driver.Addr
	bytes int
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
	return ok && n >= 0 && uint64(n) <= uint64(b.bytes)-uint64(a-b.at)
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

func (s blocks) search(a driver.Addr) (int, bool) {
	return slices.BinarySearchFunc(s, a, func(b block, a driver.Addr) int {
		switch {
		case b.at < a:
			return -1
		case b.at > a:
			return 1
		}
		return 0
	})
}
