package graph

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// Buffers in use at the same step never overlap, all are aligned, and the arena ends with the last.
func TestArrange(t *testing.T) {
	const seed = 5
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, seed))
	for range 300 {
		bs := make([]buffer, r.IntN(40))
		for i := range bs {
			first := r.IntN(30)
			bs[i] = buffer{bytes: r.IntN(500), first: first, last: first + r.IntN(8)}
		}
		total, end, busiest := arrange(bs, host), 0, 0
		both := slices.Clone(bs)
		for range r.IntN(20) { // another place's buffers change nothing
			first := r.IntN(30)
			both = append(both, buffer{place: onDevice, bytes: r.IntN(500), first: first, last: first + r.IntN(8)})
		}
		if arrange(both, host); !slices.Equal(both[:len(bs)], bs) || arrange(both, onDevice) != arrange(both[len(bs):], onDevice) {
			t.Fatal("places share memory")
		}
		for i, a := range bs {
			if a.offset%alignment != 0 {
				t.Fatalf("offset %d", a.offset)
			}
			end = max(end, a.offset+aligned(a.bytes))
			for _, b := range bs[:i] {
				if a.first <= b.last && b.first <= a.last && a.offset < b.offset+b.bytes && b.offset < a.offset+a.bytes {
					t.Fatalf("%+v and %+v overlap", a, b)
				}
			}
		}
		for step := range 40 {
			live := 0
			for _, b := range bs {
				if b.first <= step && step <= b.last {
					live += aligned(b.bytes)
				}
			}
			busiest = max(busiest, live)
		}
		if total != end || total < busiest || total > busiest*2 {
			t.Fatalf("%d bytes, buffers end at %d, the busiest step has %d", total, end, busiest)
		}
	}
}
