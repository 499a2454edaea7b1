package opstest

import (
	"flag"
	"maps"
	"slices"
	"strings"
	"testing"
)

var (
	full = flag.Bool("opstest.full", false, "conformance suite: all points of the grids, not a sample")
	seed = flag.Uint64("opstest.seed", DefaultSeed, "conformance suite: seed of the inputs and of the sample")
)

// Run is Check as subtests: one for each case, failed with its reasons, skipped aloud with the backend's reasons where it doesn't
// support the call; at the end the log lists the skipped cases by reason. The flags -opstest.full and -opstest.seed choose the whole grids and other numbers.
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
	refused := map[string][]string{} // cases by reason
	for _, c := range Cases(f) {
		t.Run(string(c.List)+"/"+c.Name, func(t *testing.T) {
			switch r := c.Check(target, f.seed()); r.Status {
			case Fail:
				t.Errorf("%s\nwhy: %s", strings.Join(r.Reasons, "\n"), c.Why)
			case Unsupported:
				for _, reason := range r.Reasons {
					refused[reason] = append(refused[reason], c.Name)
				}
				t.Skipf("unsupported: %s", strings.Join(r.Reasons, "; "))
			}
		})
	}
	for _, reason := range slices.Sorted(maps.Keys(refused)) {
		cases := slices.Compact(refused[reason]) // a case may make several calls
		t.Logf("%d cases refused: %s\n\t%s", len(cases), reason, strings.Join(cases, "\n\t"))
	}
}
