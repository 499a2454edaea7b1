//go:build gpu && linux && amd64 && cgo

package driver

import (
	"bytes"
	"encoding/binary"
	"errors"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/gaze-ml/gaze/cudaops/internal/fakecuda"
)

// scale is a kernel of the tests: x[i] *= by.
type scale struct {
	x  Addr
	n  int32
	by float32
}

var image = []byte(".entry scale(.param .align 8 .b8 p[16])\x00")

func install(t *testing.T) {
	t.Helper()
	if err := fakecuda.Install(fakecuda.Hopper); err != nil {
		t.Fatal(err)
	}
	fakecuda.Body("scale", func(m *fakecuda.Memory, l *fakecuda.Launch) error {
		p := fakecuda.As[scale](l)
		for i, x := range fakecuda.On[float32](m, uint64(p.x), int(p.n)) {
			fakecuda.On[float32](m, uint64(p.x), int(p.n))[i] = x * p.by
		}
		return nil
	})
}

func open(t *testing.T, n int) *Context {
	t.Helper()
	c, err := Open(n)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

func kernel(t *testing.T, c *Context) (*Module, *Function) {
	t.Helper()
	m, err := c.Load(image)
	must(t, err)
	f, err := c.Function(m, "scale")
	must(t, err)
	return m, f
}

func TestQuery(t *testing.T) {
	install(t)
	n, err := Count()
	if err != nil || n != 2 {
		t.Fatalf("%d devices, error %v, want 2", n, err)
	}
	p, err := Query(1)
	want := Properties{Ordinal: 1, Name: "Fake GPU 1", UUID: "00000000-0000-0000-0000-000000000001", Capability: 90, SMs: 132, Memory: 1 << 30,
		SharedMemory: 227 << 10, L2: 50 << 20, Driver: 13000}
	if err != nil || p != want {
		t.Errorf("%+v, error %v, want %+v", p, err, want)
	}
	for _, n := range []int{-1, 2} {
		_, err := Open(n)
		if e, ok := err.(*Error); !ok || !e.Absent() {
			t.Errorf("device %d: %v, want an absent device", n, err)
		}
	}
}

// TestLaunch: the driver gets the struct's bytes and the launch's shape; the kernel's effect shows after a wait.
func TestLaunch(t *testing.T) {
	install(t)
	c := open(t, 1)
	m, f := kernel(t, c)
	a, err := c.Alloc(16)
	must(t, err)
	host := make([]byte, 16)
	for i := range 4 {
		binary.LittleEndian.PutUint32(host[4*i:], uint32(i+1)<<23) // powers of two
	}
	l := &Launch{Grid: [3]uint32{4, 2, 1}, Block: [3]uint32{128, 1, 1}, Shared: 1 << 10, Cluster: 2, Overlap: 1}
	p := &scale{x: a, n: 4, by: 2}
	must(t, c.ToDevice(a, host), Run(c, f, l, p))
	got := make([]byte, 16)
	must(t, c.ToHost(got, a))
	for i := range 4 {
		if x := binary.LittleEndian.Uint32(got[4*i:]); x != uint32(i+2)<<23 {
			t.Errorf("element %d: bits %#x, want %#x", i, x, uint32(i+2)<<23)
		}
	}
	ls := fakecuda.Launches()
	if len(ls) != 1 {
		t.Fatalf("%d launches", len(ls))
	}
	var want bytes.Buffer
	binary.Write(&want, binary.LittleEndian, struct {
		X  uint64
		N  int32
		By float32
	}{uint64(a), 4, 2})
	if g := ls[0]; g.Device != 1 || g.Symbol != "scale" || g.Grid != l.Grid || g.Block != l.Block || g.Shared != l.Shared || g.Cluster != 2 ||
		!g.Overlap || !bytes.Equal(g.Params, want.Bytes()) {
		t.Errorf("launch %+v", g)
	}
	must(t, c.Unload(m), c.Free(a), c.Close())
	if l := fakecuda.Leaks(); l != nil {
		t.Errorf("left: %v", l)
	}
}

// TestLaunchRefused: a struct of another size never reaches the driver, and more shared memory than allowed is refused until asked for.
func TestLaunchRefused(t *testing.T) {
	install(t)
	c := open(t, 0)
	defer c.Close()
	_, f := kernel(t, c)
	l := &Launch{Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{32, 1, 1}}
	err := Run(c, f, l, &struct{ a, b, c uint64 }{})
	if err == nil || !strings.Contains(err.Error(), "24 bytes, the kernel takes 16") {
		t.Errorf("a larger struct: %v", err)
	}
	l.Shared = 100 << 10
	if err := Run(c, f, l, &scale{}); err == nil {
		t.Error("100 KiB of shared memory without asking: no error")
	}
	must(t, c.AllowShared(f, 100<<10), Run(c, f, l, &scale{}))
	if n := len(fakecuda.Launches()); n != 1 {
		t.Errorf("%d launches reached the driver, want 1", n)
	}
	if _, err := c.Load([]byte("nonsense\x00")); err == nil {
		t.Error("nonsense loaded as a module")
	}
	if _, err := c.Load(nil); err == nil {
		t.Error("nothing loaded as a module")
	}
	if m, err := c.Load(image); err != nil {
		t.Error(err)
	} else if _, err := c.Function(m, "absent"); err == nil || !strings.Contains(err.Error(), "absent") {
		t.Errorf("an absent kernel: %v", err)
	}
}

// TestAnyThread: a call sets its context whatever the thread had, so two devices may be used from goroutines that change threads.
func TestAnyThread(t *testing.T) {
	install(t)
	c := [2]*Context{open(t, 0), open(t, 1)}
	var f [2]*Function
	for i := range c {
		_, f[i] = kernel(t, c[i])
	}
	var wg sync.WaitGroup
	for i := range c {
		wg.Add(1)
		go func() {
			defer wg.Done()
			l, p := &Launch{Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{32, 1, 1}}, &scale{}
			for range 200 {
				if err := errors.Join(Run(c[i], f[i], l, p), c[1-i].Sync(), c[i].Sync()); err != nil {
					t.Error(err)
					return
				}
				runtime.Gosched()
			}
		}()
	}
	wg.Wait()
	must(t, c[0].Close(), c[1].Close())
}

// TestSticky: a kernel's failure shows at the next wait and from then on, and a new context is whole again.
func TestSticky(t *testing.T) {
	install(t)
	c := open(t, 0)
	_, f := kernel(t, c)
	l, p := &Launch{Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{32, 1, 1}}, &scale{}
	fakecuda.Fail("kernel", 0, 700)
	must(t, Run(c, f, l, p))
	for _, err := range []error{c.Sync(), Run(c, f, l, p), c.Fill(0, 0, 1)} {
		var e *Error
		if !errors.As(err, &e) || !e.Sticky() || !strings.Contains(err.Error(), "CUDA_ERROR_ILLEGAL_ADDRESS") {
			t.Errorf("%v, want the sticky error", err)
		}
	}
	c.Close()
	c = open(t, 0)
	must(t, c.Sync(), c.Close())
}

func TestOutOfMemory(t *testing.T) {
	install(t)
	c := open(t, 0)
	defer c.Close()
	_, err := c.Alloc(2 << 30)
	if e, ok := err.(*Error); !ok || !e.OutOfMemory() || e.Sticky() || e.Absent() {
		t.Fatalf("2 GiB of 1: %v", err)
	}
	a, err := c.Alloc(1 << 20)
	must(t, err)
	free, total, err := c.MemInfo()
	if err != nil || total != 1<<30 || free != total-1<<20 {
		t.Errorf("%d of %d bytes free, error %v", free, total, err)
	}
	must(t, c.Free(a))
	if err := c.Free(a); err == nil {
		t.Error("memory freed twice")
	}
}

// TestCapture: what is captured does not run, and a replay reads what pinned memory holds by then.
func TestCapture(t *testing.T) {
	install(t)
	c := open(t, 0)
	_, f := kernel(t, c)
	a, err := c.Alloc(4)
	must(t, err)
	in, err := c.AllocPinned(4)
	must(t, err)
	l, p := &Launch{Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{32, 1, 1}}, &scale{x: a, n: 1, by: 2}
	must(t, c.Capture(), c.ToDevice(a, in), Run(c, f, l, p))
	g, err := c.EndCapture()
	must(t, err)
	if n := len(fakecuda.Launches()); n != 0 {
		t.Errorf("%d launches while capturing", n)
	}
	for exp := range uint32(3) {
		binary.LittleEndian.PutUint32(in, (exp+1)<<23)
		got := make([]byte, 4)
		must(t, c.Replay(g), c.ToHost(got, a))
		if x := binary.LittleEndian.Uint32(got); x != (exp+2)<<23 {
			t.Errorf("replay %d: bits %#x, want %#x", exp, x, (exp+2)<<23)
		}
	}
	must(t, c.Discard(g), c.Capture())
	if err := c.Sync(); err == nil {
		t.Error("a wait while capturing: no error")
	}
	if _, err := c.EndCapture(); err == nil {
		t.Error("a spoilt capture gave a graph")
	}
	must(t, c.Sync())
}

func TestEvents(t *testing.T) {
	install(t)
	c := open(t, 0)
	defer c.Close()
	a, b := new(Event), new(Event)
	var err error
	if a, err = c.NewEvent(); err == nil {
		b, err = c.NewEvent()
	}
	must(t, err, c.Wait(a), c.Record(a), c.Record(b), c.Wait(b))
	if ms, err := c.Elapsed(a, b); err != nil || ms < 0 {
		t.Errorf("%v ms, error %v", ms, err)
	}
	must(t, c.Destroy(a), c.Destroy(b))
}

// TestNoAllocation: the calls of a decode step leave nothing to the garbage collector.
func TestNoAllocation(t *testing.T) {
	install(t)
	c := open(t, 0)
	defer c.Close()
	_, f := kernel(t, c)
	a, err := c.Alloc(16)
	must(t, err)
	in, err := c.AllocPinned(16)
	must(t, err)
	e, err := c.NewEvent()
	must(t, err)
	l, p := &Launch{Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{32, 1, 1}}, &scale{x: a, n: 4, by: 2}
	must(t, fakecuda.Idle())
	for what, call := range map[string]func() error{
		"Run": func() error { return Run(c, f, l, p) }, "ToDevice": func() error { return c.ToDevice(a, in) },
		"ToHost": func() error { return c.ToHost(in, a) }, "OnDevice": func() error { return c.OnDevice(a, a+8, 8) },
		"Fill": func() error { return c.Fill(a, 0, 8) }, "Record": func() error { return c.Record(e) },
		"Wait": func() error { return c.Wait(e) }, "Sync": c.Sync,
	} {
		if n := testing.AllocsPerRun(100, func() { must(t, call()) }); n != 0 {
			t.Errorf("%s: %v allocations a call", what, n)
		}
	}
}

func BenchmarkRun(b *testing.B) {
	if err := fakecuda.Install(fakecuda.Hopper); err != nil {
		b.Fatal(err)
	}
	c, err := Open(0)
	if err != nil {
		b.Fatal(err)
	}
	m, err := c.Load(image)
	if err != nil {
		b.Fatal(err)
	}
	f, err := c.Function(m, "scale")
	if err != nil {
		b.Fatal(err)
	}
	if err := fakecuda.Idle(); err != nil {
		b.Fatal(err)
	}
	l, p := &Launch{Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{32, 1, 1}}, &scale{}
	for b.Loop() {
		if err := Run(c, f, l, p); err != nil {
			b.Fatal(err)
		}
	}
}

func TestHost(t *testing.T) {
	b := []byte{1, 2, 3}
	if got := Host(Memory(b), 3); !slices.Equal(got, b) {
		t.Errorf("%v", got)
	}
	if a := Addr(0x7f0000001234); Of(a.Pointer()) != a {
		t.Errorf("%#x became %#x", a, Of(a.Pointer()))
	}
}
