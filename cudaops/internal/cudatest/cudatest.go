// Package cudatest holds what the tests of a CUDA Runtime share, on a GPU and on the recording driver.
package cudatest

import (
	"testing"
	"unsafe"

	"github.com/gaze-ml/gaze/internal/attn"
	"github.com/gaze-ml/gaze/ops/opstest"
)

// Runtime is what the suite needs of a cudaops.Runtime, whose own tests can't use a package that imports it.
type Runtime interface {
	Alloc(n int) (unsafe.Pointer, error)
	Free(unsafe.Pointer) error
	Write(dst unsafe.Pointer, src []byte) error
	Read(dst []byte, src unsafe.Pointer) error
	Sync() error
	Backend() attn.Backend
}

// Target is rt for the conformance suite. Values are checked before every launch and the launch is waited for, which is what the suite
// asks of refusals.
func Target(t testing.TB, rt Runtime, a opstest.Accuracy) opstest.Target {
	return opstest.Target{Backend: checked{rt.Backend(), rt}, Memory: memory{rt, t}, Accuracy: a}
}

type memory struct {
	Runtime
	t testing.TB
}

func (m memory) Free(p unsafe.Pointer) {
	if err := m.Runtime.Free(p); err != nil {
		m.t.Error(err)
	}
}

type checked struct {
	attn.Backend
	rt Runtime
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
