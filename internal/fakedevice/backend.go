package fakedevice

import (
	"reflect"

	"github.com/gaze-ml/gaze/internal/attn"
	"github.com/gaze-ml/gaze/ops"
)

// backend is the Go backend inside of the arena.
type backend struct{ dev *Device }

func (b *backend) Name() string { return b.dev.name }

func (b *backend) Supports(c attn.Call) []error {
	b.dev.mu.Lock()
	defer b.dev.mu.Unlock()
	if f := b.dev.refuse; f != nil {
		if why := f(c); why != nil {
			return why
		}
	}
	return b.dev.cpu.Supports(c)
}

func (b *backend) WorkspaceSize(attn.Call) (int, error) { return 0, nil }

func (b *backend) Decode(c *attn.DecodeCall) error       { return b.launch(c) }
func (b *backend) Prefill(c *attn.PrefillCall) error     { return b.launch(c) }
func (b *backend) Append(c *attn.AppendCall) error       { return b.launch(c) }
func (b *backend) MergeLSE(c *attn.MergeLSECall) error   { return b.launch(c) }
func (b *backend) RMSNorm(c *attn.RMSNormCall) error     { return b.launch(c) }
func (b *backend) RoPE(c *attn.RoPECall) error           { return b.launch(c) }
func (b *backend) Linear(c *attn.LinearCall) error       { return b.launch(c) }
func (b *backend) SiLUMul(c *attn.SiLUMulCall) error     { return b.launch(c) }
func (b *backend) Embedding(c *attn.EmbeddingCall) error { return b.launch(c) }
func (b *backend) Cast(c *attn.CastCall) error           { return b.launch(c) }
func (b *backend) Argmax(c *attn.ArgmaxCall) error       { return b.launch(c) }
func (b *backend) Softmax(c *attn.SoftmaxCall) error     { return b.launch(c) }
func (b *backend) TopK(c *attn.TopKCall) error           { return b.launch(c) }

// launch runs a call whose operands are all the arena's, but for lengths and tables.
func (b *backend) launch(c attn.Call) error {
	d := b.dev
	if why := b.Supports(c); why != nil { // a launch that Supports has refused is a mistake of the caller
		return why[0]
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.enter("launch"); err != nil {
		return err
	}
	v := reflect.ValueOf(c).Elem()
	for i := range v.NumField() {
		f := v.Field(i)
		if !f.CanAddr() || !f.CanInterface() {
			continue
		}
		t, ok := f.Addr().Interface().(*attn.Tensor)
		if !ok || !t.Valid() || ops.Span(t) == 0 || d.owns(t.Ptr, ops.Span(t)) {
			continue
		}
		name := v.Type().Field(i).Name
		table := name != "Out" && name != "Indices" && (t.DType == attn.I32 || t.DType == attn.U32 || t.DType == attn.I64)
		if !table || d.within(t.Ptr) {
			return d.foreign(c.Op(), name)
		}
	}
	if d.record != nil {
		later := frozen(c)
		d.record.note(func() error { return d.run(later) })
		return nil
	}
	defer d.open()()
	return d.run(c)
}

// run runs a call, with the lock held and the arena open.
func (d *Device) run(c attn.Call) error {
	d.counts.Launches++
	return c.Run(d.cpu)
}
