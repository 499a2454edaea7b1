//go:build gpu && linux && amd64 && cgo

// Package hardware holds the tests that need a GPU; `make gpu-test` builds and runs them. They are skipped aloud where there is none,
// and fail there with GAZE_REQUIRE_GPU=1.
package hardware

import (
	"errors"
	"os"
	"testing"

	"github.com/gaze-ml/gaze/cudaops"
	"github.com/gaze-ml/gaze/cudaops/internal/driver"
	"github.com/gaze-ml/gaze/internal/attn"
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

// memory is a Runtime's for the suite.
type memory struct {
	rt *cudaops.Runtime
	t  testing.TB
}

func (m memory) Alloc(n int) (driver.Pointer, error)        { return m.rt.Alloc(n) }
func (m memory) Write(dst driver.Pointer, src []byte) error { return m.rt.Write(dst, src) }
func (m memory) Read(dst []byte, src driver.Pointer) error  { return m.rt.Read(dst, src) }
func (m memory) Free(p driver.Pointer) {
	if err := m.rt.Free(p); err != nil {
		m.t.Error(err)
	}
}

// checked is the backend with every call's values checked before its launch, and waited for: what the suite asks of refusals.
type checked struct {
	attn.Backend
	rt *cudaops.Runtime
}

func (b checked) sync(err error) error {
	if err != nil {
		return err
	}
	return b.rt.Sync()
}

func (b checked) Decode(c *attn.DecodeCall) error {
	c.CheckValues = true
	return b.sync(b.Backend.Decode(c))
}

func (b checked) Prefill(c *attn.PrefillCall) error {
	c.CheckValues = true
	return b.sync(b.Backend.Prefill(c))
}

func (b checked) Append(c *attn.AppendCall) error {
	c.CheckValues = true
	return b.sync(b.Backend.Append(c))
}

func (b checked) Embedding(c *attn.EmbeddingCall) error {
	c.CheckValues = true
	return b.sync(b.Backend.Embedding(c))
}

func (b checked) RoPE(c *attn.RoPECall) error {
	c.CheckValues = true
	return b.sync(b.Backend.RoPE(c))
}

func target(t testing.TB, rt *cudaops.Runtime) opstest.Target {
	return opstest.Target{Backend: checked{rt.Backend(), rt}, Memory: memory{rt, t}, Accuracy: opstest.Tensor}
}

// TestConformance is the whole suite.
func TestConformance(t *testing.T) {
	rt := open(t, 0)
	t.Log(rt.Properties())
	opstest.Run(t, target(t, rt))
}

// TestLinearWithoutCuBLAS is its Linear part on our own kernels.
func TestLinearWithoutCuBLAS(t *testing.T) {
	rt := open(t, 0, cudaops.WithoutCuBLAS())
	opstest.RunFilter(t, target(t, rt), opstest.Filter{Ops: []string{"linear"}})
}
