//go:build gpu && linux && amd64 && cgo

package cudaops

import (
	"errors"
	"testing"

	"github.com/gaze-ml/gaze/cudaops/internal/fakecuda"
	"github.com/gaze-ml/gaze/internal/attn"

	"gorgonia.org/tensor"
)

// TestFreeOwn: Free takes back what Alloc gave and nothing that the Runtime keeps for itself, results of its engine among it.
func TestFreeOwn(t *testing.T) {
	rt := fake(t, fakecuda.Hopper)
	a, err := rt.Upload(tensor.New(tensor.WithShape(4), tensor.WithBacking([]float32{1, 2, 3, 4})))
	must(t, err)
	sum, err := tensor.Add(a, a) // the first in a chunk of the engine's
	must(t, err)
	if err := rt.FreeTensor(sum.(*tensor.Dense)); !errors.Is(err, attn.ErrDevice) {
		t.Errorf("a result of the engine: %v, want ErrDevice", err)
	}
	for _, b := range rt.memory.all() {
		if err := rt.Free(b.at.Pointer()); errors.Is(err, attn.ErrDevice) == b.given {
			t.Errorf("block of %d bytes, given: %v: %v", b.bytes, b.given, err)
		}
	}
	must(t, rt.Sync())
}

// TestCloseInRecord: neither the Runtime nor another Recording can be closed while something is recorded, and the recording goes on.
func TestCloseInRecord(t *testing.T) {
	rt := fake(t, fakecuda.Hopper)
	c := decodeOf(t, rt)
	must(t, rt.Backend().Decode(c))
	old, err := rt.Record(func() error { return rt.Backend().Decode(c) })
	must(t, err)
	r, err := rt.Record(func() error {
		for what, err := range map[string]error{"the Runtime": rt.Close(), "a Recording": old.Close()} {
			if !errors.Is(err, attn.ErrUnsupported) {
				t.Errorf("Close of %s: %v, want ErrUnsupported", what, err)
			}
		}
		return rt.Backend().Decode(c)
	})
	must(t, err)
	must(t, r.Run(), old.Run(), rt.Sync(), r.Close(), old.Close())
}

// TestNothingLeaks: neither of a block that can't be cleared nor of a recording that panics anything is left.
func TestNothingLeaks(t *testing.T) {
	rt := fake(t, fakecuda.Hopper)
	fakecuda.Fail("cuMemsetD8Async", 0, 1)
	before, n := fakecuda.Used(0), len(rt.memory.all())
	if p, err := rt.Alloc(1 << 20); err == nil || p != nil || fakecuda.Used(0) != before || len(rt.memory.all()) != n {
		t.Errorf("Alloc: %v, %v, and %d bytes in %d blocks more", p, err, fakecuda.Used(0)-before, len(rt.memory.all())-n)
	}
	func() {
		defer func() {
			if recover() != "f" {
				t.Error("the panic is lost")
			}
		}()
		rt.Record(func() error { panic("f") })
	}()
	if len(rt.recordings) != 0 {
		t.Errorf("%d recordings are left", len(rt.recordings))
	}
}

// TestAppendNothing: without rows cum_seq_lens is checked all the same.
func TestAppendNothing(t *testing.T) {
	rt := fake(t, fakecuda.Hopper)
	d := decodeOf(t, rt)
	c := attn.NewAppendCall()
	c.KeyCache, c.ValueCache, c.BlockTables = d.Key, d.Value, d.BlockTables
	c.Key, c.Value = device(t, rt, attn.BF16, 0, 2, 64), device(t, rt, attn.BF16, 0, 2, 64)
	c.CumSeqLens, c.StartPositions = int32s(t, rt, []int{3}, 0, 5, 9), int32s(t, rt, []int{2}, 0, 0)
	c.CheckValues = true
	must(t, c.Infer())
	if err := rt.Backend().Append(&c); !errors.Is(err, attn.ErrArgument) {
		t.Errorf("%v, want ErrArgument of cum_seq_lens", err)
	}
	c.CheckValues = false // then the kernel looks at them
	fakecuda.Launches()
	must(t, rt.Backend().Append(&c))
	if n := len(fakecuda.Launches()); n != 1 {
		t.Errorf("%d launches without rows", n)
	}
}
