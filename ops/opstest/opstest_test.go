package opstest_test

import (
	"strings"
	"testing"

	"github.com/gaze-ml/gaze/internal/cpu"
	"github.com/gaze-ml/gaze/ops/opstest"
)

// The Go backend passes the suite.
func TestCPU(t *testing.T) {
	opstest.Run(t, opstest.Target{Backend: cpu.Default()})
}

// The oracle passes its own suite as a backend, which reads tensors through the call's strides and tables while the expected
// values come from the logical inputs. (The longest contexts would take it half a minute.)
func TestReference(t *testing.T) {
	for _, c := range opstest.Cases(opstest.Filter{}) {
		if strings.Contains(c.Name, "/grid/long/") {
			continue
		}
		if r := c.Check(opstest.Target{Backend: &opstest.Reference{}}, opstest.DefaultSeed); r.Status != opstest.Pass {
			t.Error(r)
		}
	}
}

func BenchmarkCPU(b *testing.B) { opstest.Bench(b, opstest.Target{Backend: cpu.Default()}) }
