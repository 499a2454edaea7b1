//go:build gpu && linux && amd64 && cgo

package cudaops

import (
	"errors"
	"slices"
	"testing"

	"github.com/gaze-ml/gaze/cudaops/internal/driver"
	"github.com/gaze-ml/gaze/cudaops/internal/fakecuda"
	"github.com/gaze-ml/gaze/internal/attn"
	"github.com/gaze-ml/gaze/ops"

	"gorgonia.org/tensor"
)

// TestRecord: recorded work runs at each replay, with what device memory and pinned memory then hold, and not before.
func TestRecord(t *testing.T) {
	rt := fake(t, fakecuda.Hopper)
	c := decodeOf(t, rt)
	var lens []int32
	fakecuda.Body("decode_h64_r8_bf16_kvbf16_sm90a", func(m *fakecuda.Memory, l *fakecuda.Launch) error {
		lens = append(lens, fakecuda.On[int32](m, uint64(fakecuda.As[decodeParams](l).SeqLens), 2)...)
		return nil
	})
	must(t, rt.Backend().Decode(c), rt.Sync())
	pinned, err := rt.Pinned(8)
	must(t, err)
	rec, err := rt.Record(func() error { return errors.Join(rt.WriteAsync(c.SeqLens.Ptr, pinned), rt.Backend().Decode(c)) })
	must(t, err)
	must(t, rt.Sync())
	lens, _ = nil, fakecuda.Launches()
	for i := range int32(3) {
		copy(pinned, bytesOf([]int32{10 + i, 20 + i}))
		must(t, rec.Run(), rt.Sync())
	}
	if !slices.Equal(lens, []int32{10, 20, 11, 21, 12, 22}) || len(fakecuda.Launches()) != 3 {
		t.Errorf("replays saw lengths %v", lens)
	}
	must(t, rec.Close(), rec.Close())
	want(t, "Run after Close", rec.Run(), ErrClosed)
}

// TestRecordRefuses: what a recording can't hold is refused by name, and the Runtime is as before.
func TestRecordRefuses(t *testing.T) {
	rt := fake(t, fakecuda.Hopper)
	c := decodeOf(t, rt)
	must(t, rt.Backend().Decode(c))
	p, b := c.Out.Ptr, make([]byte, 4)
	other, err := rt.Record(func() error { return rt.Backend().Decode(c) })
	must(t, err)
	for what, f := range map[string]func() error{
		"Sync": rt.Sync, "Read": func() error { return rt.Read(b, p) }, "Write": func() error { return rt.Write(p, b) },
		"Alloc": func() error { _, err := rt.Alloc(1); return err }, "Free": func() error { return rt.Free(p) },
		"Run":         other.Run,
		"Record":      func() error { _, err := rt.Record(func() error { return nil }); return err },
		"CheckValues": func() error { d := *c; d.CheckValues = true; return rt.Backend().Decode(&d) },
	} {
		_, err := rt.Record(f)
		want(t, what, err, ops.ErrUnsupported, "recording")
		must(t, rt.Backend().Decode(c), rt.Sync())
	}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic was lost")
			}
		}()
		rt.Record(func() error { panic("in a recording") })
	}()
	must(t, rt.Write(p, b), rt.Sync())
}

// TestRecordFreed: what names memory that was given back does not run any more, and what names other memory does.
func TestRecordFreed(t *testing.T) {
	rt := fake(t, fakecuda.Hopper)
	c := decodeOf(t, rt)
	bytes, other := new([4]byte), device(t, rt, attn.F32, 16)
	from, to := device(t, rt, attn.F32, 16), device(t, rt, attn.F32, 16)
	pinned, err := rt.Pinned(8)
	must(t, err)
	x, err := rt.Upload(tensor.New(tensor.WithShape(4), tensor.WithBacking([]float32{1, 2, 3, 4})))
	must(t, err)
	must(t, rt.Backend().Decode(c), rt.Sync())
	if _, err := tensor.Add(x, x); err != nil { // makes room for the sum
		t.Fatal(err)
	}
	works := map[string]func() error{
		"decode": func() error { return rt.Backend().Decode(c) },
		"copy":   func() error { return rt.Copy(to.At(4), from.At(8), 32) }, // amid their allocations
		"write":  func() error { return rt.WriteAsync(to.Ptr, pinned[4:]) },
		"engine": func() error { _, err := tensor.Add(x, x); return err },
	}
	_, err = rt.Record(func() error { return rt.Copy(to.Ptr, from.At(8), 64) })
	want(t, "a copy past the end", err, ops.ErrDevice, "32 past the end")
	recs := map[string]ops.Recording{}
	for name, f := range works {
		recs[name], err = rt.Record(f)
		must(t, err)
	}
	run := func(after string, gone ...string) {
		t.Helper()
		for name, r := range recs {
			if err := r.Run(); slices.Contains(gone, name) {
				want(t, name+" after "+after, err, ops.ErrDevice, "memory of the recording")
			} else if err != nil {
				t.Errorf("%s after %s: %v", name, after, err)
			}
		}
		must(t, rt.Sync())
	}
	run("nothing")
	must(t, rt.Free(other.Ptr), rt.Read(bytes[:], to.Ptr))
	run("other memory was freed")
	must(t, rt.Free(from.Ptr))
	run("the source was freed", "copy")
	must(t, rt.FreePinned(pinned))
	run("pinned memory was freed", "copy", "write")
	must(t, rt.Free(c.BlockTables.Ptr))
	run("the table was freed", "copy", "write", "decode")
	must(t, rt.FreeTensor(x))
	run("the tensor was freed", "copy", "write", "decode", "engine")
	for _, r := range recs {
		must(t, r.Close())
	}
}

// TestRecordBroken: a kernel that fails in a replay is named by its recording.
func TestRecordBroken(t *testing.T) {
	fake(t, fakecuda.Hopper)
	rt, err := Open(1)
	must(t, err)
	x := device(t, rt, attn.F16, 2, 64)
	c := &attn.SiLUMulCall{Gate: x, Up: x, Out: x}
	rec, err := rt.Record(func() error { return rt.Backend().SiLUMul(c) })
	must(t, err)
	must(t, rt.Sync())
	fakecuda.Fail("kernel", 0, 719)
	must(t, rec.Run())
	want(t, "Sync", rt.Sync(), ErrBroken, "a recording that ends with silu_mul_f16_sm90a")
	must(t, rt.Close(), rec.Close())
}

// TestEmbeddedImages: the driver takes every image that programs carry and finds every kernel in it, on each generation of GPU.
func TestEmbeddedImages(t *testing.T) {
	forReal(t)
	for _, capability := range []int{80, 89, 90, 100} {
		gpu := fakecuda.Hopper
		gpu.Capability = capability
		rt := fake(t, gpu)
		if len(rt.choices.all) == 0 {
			t.Errorf("%d: no kernels", capability)
		}
		for _, k := range rt.choices.all {
			if _, err := rt.images.function(rt.ctx, k, capability); err != nil {
				t.Errorf("%d: %s: %v", capability, k.Symbol, err)
			}
		}
		must(t, rt.Close())
	}
	if driver.Of(nil) != 0 {
		t.Error("nil has an address")
	}
}
