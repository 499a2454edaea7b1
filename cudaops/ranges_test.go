package cudaops

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gaze-ml/gaze/cudaops/internal/driver"
)

// TestBlocks holds the ordered allocations against a list of them.
func TestBlocks(t *testing.T) {
	const seed = 11
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, seed))
	var s blocks
	var list []block
	overlaps := func(b block) bool {
		return slices.ContainsFunc(list, func(o block) bool { return b.at < o.at+driver.Addr(o.bytes) && o.at < b.at+driver.Addr(b.bytes) })
	}
	for range 3000 {
		if b := (block{at: driver.Addr(1000 + r.IntN(4000)), bytes: 1 + r.IntN(60)}); r.IntN(3) > 0 && !overlaps(b) {
			s.add(b)
			list = append(list, b)
		} else if len(list) > 0 && r.IntN(2) == 0 {
			i := r.IntN(len(list))
			if got, ok := s.remove(list[i].at); !ok || got != list[i] {
				t.Fatalf("removed %v, %v, want %v", got, ok, list[i])
			}
			list = slices.Delete(list, i, i+1)
		}
		a, n := driver.Addr(950+r.IntN(4100)), r.IntN(70)
		want := slices.ContainsFunc(list, func(o block) bool { return a >= o.at && a+driver.Addr(n) <= o.at+driver.Addr(o.bytes) })
		if n == 0 { // the end of one allocation may be the start of the next, and either will do
			want = want || slices.ContainsFunc(list, func(o block) bool { return a >= o.at && a <= o.at+driver.Addr(o.bytes) })
		}
		if got := s.holds(a, n); got != want {
			t.Fatalf("%d bytes at %d: held %v, want %v, of %v", n, a, got, want, list)
		}
		if _, ok := s.remove(a); ok != slices.ContainsFunc(list, func(o block) bool { return o.at == a }) {
			t.Fatalf("removed what starts at %d: %v, of %v", a, ok, list)
		}
		list = slices.DeleteFunc(list, func(o block) bool { return o.at == a })
	}
	if len(list) == 0 || !slices.IsSortedFunc(s, func(a, b block) int { return int(a.at) - int(b.at) }) {
		t.Errorf("%d allocations left, not in order: %v", len(list), s)
	}
}
