//go:build gpu && linux && amd64 && cgo

// Package hardware holds the tests that need a GPU; `make gpu-test` builds and runs them. They are skipped aloud where there is none,
// and fail there with GAZE_REQUIRE_GPU=1.
package hardware

import (
	"errors"
	"os"
	"testing"

	"github.com/gaze-ml/gaze/cudaops"
	"github.com/gaze-ml/gaze/cudaops/internal/cudatest"
	"github.com/gaze-ml/gaze/ops"
	"github.com/gaze-ml/gaze/ops/opstest"
)

func open(t testing.TB, n int, opts ...cudaops.Option) *cudaops.Runtime {
	t.Helper()
	rt, err := cudaops.Open(n, opts...)
	if errors.Is(err, ops.ErrNoDevice) && os.Getenv("GAZE_REQUIRE_GPU") == "" {
		t.Skip(err)
	}
	must(t, err)
	t.Cleanup(func() {
		if err := rt.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return rt
}

func must(t testing.TB, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// TestConformance is the whole suite.
func TestConformance(t *testing.T) {
	rt := open(t, 0)
	t.Log(rt.Properties())
	opstest.Run(t, cudatest.Target(t, rt, opstest.Tensor))
}

// TestLinearWithoutCuBLAS is its Linear part on our own kernels.
func TestLinearWithoutCuBLAS(t *testing.T) {
	rt := open(t, 0, cudaops.WithoutCuBLAS())
	opstest.RunFilter(t, cudatest.Target(t, rt, opstest.Tensor), opstest.Filter{Ops: []string{"linear"}})
}
