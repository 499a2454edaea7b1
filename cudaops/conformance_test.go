//go:build gpu && linux && amd64 && cgo

package cudaops

import (
	"testing"

	"github.com/gaze-ml/gaze/cudaops/internal/cudatest"
	"github.com/gaze-ml/gaze/cudaops/internal/fakecuda"
	"github.com/gaze-ml/gaze/ops/opstest"
)

// TestConformance runs the suite through the launch code: kernels are the CPU's, on what the driver was given.
func TestConformance(t *testing.T) {
	big := fakecuda.Hopper
	big.Memory = 4 << 30
	rt := fake(t, big)
	if err := refBodies(); err != nil {
		t.Fatal(err)
	}
	opstest.Run(t, cudatest.Target(t, rt, opstest.Exact))
}
