package cudaops

import (
	"math/rand/v2"
	"testing"

	"github.com/gaze-ml/gaze/cudaops/internal/driver"
)

// TestResident: what is remembered says what the allocations say, while these come, go and come back at the same addresses in other sizes.
func TestResident(t *testing.T) {
	const seed = 21
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, seed))
	var o owned
	var known resident
	held := 0
	for range 2000 {
		at := driver.Addr(1024 * (1 + r.IntN(40)))
		if _, taken := o.remove(at); !taken {
			o.add(block{at: at, bytes: 1 + r.IntN(1024)})
		}
		if r.IntN(500) == 0 {
			o.clear()
		}
		for range 100 {
			a := driver.Addr(1024*r.IntN(42) + 256*r.IntN(2))
			n := 1 + r.IntN(1024)
			want := o.holds(a, n)
			if got := known.holds(&o, a, n); got != want {
				t.Fatalf("%d bytes at %d: held %v, want %v, of %v", n, a, got, want, o.all())
			}
			if want {
				held++
			}
		}
	}
	if held == 0 {
		t.Error("nothing was ever held")
	}
}
