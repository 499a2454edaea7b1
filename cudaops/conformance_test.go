//go:build gpu && linux && amd64 && cgo

package cudaops

import (
	"testing"

	"github.com/gaze-ml/gaze/cudaops/internal/driver"
	"github.com/gaze-ml/gaze/cudaops/internal/fakecuda"
	"github.com/gaze-ml/gaze/internal/attn"
	"github.com/gaze-ml/gaze/ops/opstest"
)

// memoryOf is a Runtime's memory for the suite.
type memoryOf struct {
	rt *Runtime
	t  *testing.T
}

func (m memoryOf) Alloc(n int) (driver.Pointer, error)        { return m.rt.Alloc(n) }
func (m memoryOf) Write(dst driver.Pointer, src []byte) error { return m.rt.Write(dst, src) }
func (m memoryOf) Read(dst []byte, src driver.Pointer) error  { return m.rt.Read(dst, src) }
func (m memoryOf) Free(p driver.Pointer) {
	if err := m.rt.Free(p); err != nil {
		m.t.Error(err)
	}
}

// strict is the backend with every call's values checked before its launch, and waited for.
type strict struct{ *Backend }

func (b strict) sync(err error) error {
	if err != nil {
		return err
	}
	return b.rt.Sync()
}

func (b strict) Decode(c *attn.DecodeCall) error {
	c.CheckValues = true
	return b.sync(b.Backend.Decode(c))
}

func (b strict) Prefill(c *attn.PrefillCall) error {
	c.CheckValues = true
	return b.sync(b.Backend.Prefill(c))
}

func (b strict) Append(c *attn.AppendCall) error {
	c.CheckValues = true
	return b.sync(b.Backend.Append(c))
}

func (b strict) Embedding(c *attn.EmbeddingCall) error {
	c.CheckValues = true
	return b.sync(b.Backend.Embedding(c))
}

func (b strict) RoPE(c *attn.RoPECall) error {
	c.CheckValues = true
	return b.sync(b.Backend.RoPE(c))
}

// TestConformance runs the suite through the launch code: kernels are the CPU's, on what the driver was given.
func TestConformance(t *testing.T) {
	big := fakecuda.Hopper
	big.Memory = 4 << 30
	rt := fake(t, big)
	if err := refBodies(); err != nil {
		t.Fatal(err)
	}
	opstest.Run(t, opstest.Target{Backend: strict{&rt.backend}, Memory: memoryOf{rt, t}})
}
