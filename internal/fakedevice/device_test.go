package fakedevice_test

import (
	"errors"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"unsafe"

	"github.com/gaze-ml/gaze/internal/attn"
	"github.com/gaze-ml/gaze/internal/fakedevice"
	"github.com/gaze-ml/gaze/ops"
)

func open(t *testing.T, bytes int) *fakedevice.Device {
	t.Helper()
	d, err := fakedevice.New("fake", bytes)
	if errors.Is(err, ops.ErrNoDevice) {
		t.Skipf("SKIPPED: no fake device on %s: %v", runtime.GOOS, err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}

func alloc(t *testing.T, d *fakedevice.Device, bytes int) unsafe.Pointer {
	t.Helper()
	p, err := d.Alloc(bytes)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// touch reads through a pointer in Go and tells whether that faults.
func touch(p unsafe.Pointer) (faults bool) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			faults = true
		}
	}()
	sink = *(*byte)(p)
	return false
}

var sink byte

// Go code that follows a device pointer faults: of memory that is there, that was given back, and of a closed device, also after calls
// and failures.
func TestFaults(t *testing.T) {
	d := open(t, 1<<16)
	p, q := alloc(t, d, 100), alloc(t, d, 100)
	check := func(when string) {
		t.Helper()
		if !touch(p) {
			t.Errorf("%s: Go reads device memory", when)
		}
	}
	check("at first")
	if err := d.Write(p, []byte{1, 2, 3}); err != nil {
		t.Fatal(err)
	}
	check("after a write")
	d.PanicAfter("launch", 0, "ouch")
	func() {
		defer func() { _ = recover() }()
		c := attn.SiLUMulCall{Gate: attn.Of(attn.F32, 1, 1), Up: attn.Of(attn.F32, 1, 1)}
		_ = d.Backend().SiLUMul(&c)
		t.Error("no panic")
	}()
	check("after a panic")
	if err := d.Free(q); err != nil {
		t.Fatal(err)
	}
	check("after a free")
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	check("after Close")
}

// Blocks don't overlap and are aligned; a gap is given out again, zeroed; the rest is accounted for.
func TestAlloc(t *testing.T) {
	d := open(t, 4096)
	a, b := alloc(t, d, 1000), alloc(t, d, 1000)
	if uintptr(a)%64 != 0 || uintptr(b)%64 != 0 || uintptr(b) < uintptr(a)+1000 {
		t.Errorf("blocks at %v and %v", a, b)
	}
	if _, err := d.Alloc(3000); !errors.Is(err, ops.ErrOutOfMemory) {
		t.Errorf("too much: %v", err)
	}
	if err := d.Write(a, []byte(strings.Repeat("x", 1000))); err != nil {
		t.Fatal(err)
	}
	if err := d.Free(a); err != nil {
		t.Fatal(err)
	}
	c := alloc(t, d, 900)
	got := make([]byte, 900)
	if err := d.Read(got, c); err != nil || c != a || strings.Trim(string(got), "\x00") != "" {
		t.Errorf("the gap is not given out again, or not zeroed (%v)", err)
	}
	if n := d.Counts(); n.Blocks != 2 || n.UsedBytes != 1900 || n.Allocs != 3 || n.Frees != 1 {
		t.Errorf("%+v", n)
	}
	host := make([]byte, 2000)
	for what, err := range map[string]error{
		"free twice":       errors.Join(d.Free(b), d.Free(b)),
		"free of the host": d.Free(unsafe.Pointer(&host[0])),
		"read of freed":    d.Read(host[:1], b),
		"read past an end": d.Read(host[:901], c),
		"write to host":    d.Write(unsafe.Pointer(&host[0]), host[:1]),
		"copy to host":     d.Copy(unsafe.Pointer(&host[0]), c, 1),
	} {
		if !errors.Is(err, ops.ErrDevice) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// A call with an operand that isn't the device's is refused, unless it is a length or a table.
func TestLaunchChecksOperands(t *testing.T) {
	d := open(t, 1<<16)
	ids, w, out := attn.Of(attn.I32, 1), attn.Of(attn.F32, 1, 1), attn.Of(attn.F32, 1, 1)
	host := []float32{0, 7}
	w.Ptr, out.Ptr = alloc(t, d, 4), alloc(t, d, 4)
	ids.Ptr = unsafe.Pointer(&host[0])
	c := attn.EmbeddingCall{IDs: ids, Weight: w, Out: out}
	if err := d.Backend().Embedding(&c); err != nil {
		t.Errorf("ids on the host: %v", err)
	}
	for _, at := range []*unsafe.Pointer{&c.Weight.Ptr, &c.Out.Ptr} {
		was := *at
		*at = unsafe.Pointer(&host[1])
		if err := d.Backend().Embedding(&c); !errors.Is(err, ops.ErrDevice) {
			t.Errorf("an operand on the host: %v", err)
		}
		*at = was
	}
	if d.Counts().Launches != 1 {
		t.Errorf("%d launches", d.Counts().Launches)
	}
}
