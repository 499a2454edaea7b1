package opstest_test

import (
	"testing"

	"github.com/gaze-ml/gaze/internal/cpu"
	"github.com/gaze-ml/gaze/internal/simd"
	"github.com/gaze-ml/gaze/ops/opstest"
)

// The Go backend passes the suite with the instruction set that it picks, and all but the grids with every other one.
func TestCPU(t *testing.T) {
	for _, isa := range simd.Available() {
		t.Run(isa.String(), func(t *testing.T) {
			f := opstest.Filter{}
			if isa != simd.Active() {
				defer simd.Use(isa)()
				f.Grid = -1
			}
			opstest.RunFilter(t, opstest.Target{Backend: cpu.Default()}, f)
		})
	}
}

// The oracle passes its own suite as a backend, which reads tensors through the call's strides and tables while the expected
// values come from the logical inputs.
func TestReference(t *testing.T) {
	for _, r := range opstest.Check(opstest.Target{Backend: &opstest.Reference{}}, opstest.Filter{Grid: 10}) {
		if r.Status != opstest.Pass {
			t.Error(r)
		}
	}
}

func BenchmarkCPU(b *testing.B) { opstest.Bench(b, opstest.Target{Backend: cpu.Default()}) }
