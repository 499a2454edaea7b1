package opstest

import (
	"flag"
	"strings"
	"testing"
)

var (
	full = flag.Bool("opstest.full", false, "conformance suite: all points of the grids, not a sample")
	seed = flag.Uint64("opstest.seed", DefaultSeed, "conformance suite: seed of the inputs and of the sample")
)

// Run is Check as subtests: one for each case, failed with its reasons, skipped aloud with the backend's reasons where it doesn't
// support the call. The flags -opstest.full and -opstest.seed choose the whole grids and other numbers.
func Run(t *testing.T, target Target) { RunFilter(t, target, Filter{}) }

// RunFilter is Run for some of the cases.
func RunFilter(t *testing.T, target Target, f Filter) {
	if f.Seed == 0 {
		f.Seed = *seed
	}
	if *full && f.Grid == 0 {
		f.Grid = AllPoints
	}
	t.Logf("%s: inputs from seed %d", target.Backend.Name(), f.seed())
	for _, c := range Cases(f) {
		t.Run(string(c.List)+"/"+c.Name, func(t *testing.T) {
			switch r := c.Check(target, f.seed()); r.Status {
			case Fail:
				t.Errorf("%s\nwhy: %s", strings.Join(r.Reasons, "\n"), c.Why)
			case Unsupported:
				t.Skipf("unsupported: %s", strings.Join(r.Reasons, "; "))
			}
		})
	}
}
