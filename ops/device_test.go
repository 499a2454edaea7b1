package ops_test

import (
	"errors"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/gaze-ml/gaze/internal/fakedevice"
	"github.com/gaze-ml/gaze/ops"
)

func newDevice(t *testing.T, name string) *fakedevice.Device {
	t.Helper()
	d, err := fakedevice.New(name, 1<<20)
	if errors.Is(err, ops.ErrNoDevice) {
		t.Skipf("SKIPPED: no test of devices runs on %s: %v", runtime.GOOS, err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}

// upload copies a host tensor to a device.
func upload(t *testing.T, d *fakedevice.Device, v *tensor.Dense) *tensor.Dense {
	t.Helper()
	view, err := ops.View("test", "v", v)
	if err != nil {
		t.Fatal(err)
	}
	p, err := d.Alloc(view.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Write(p, unsafe.Slice((*byte)(view.Ptr), view.Bytes())); err != nil {
		t.Fatal(err)
	}
	view.Ptr = p
	return ops.DeviceTensor(d, &view)
}

// download gives a device tensor's values.
func download(t *testing.T, d *fakedevice.Device, v *tensor.Dense) []float32 {
	t.Helper()
	view, err := ops.View("test", "v", v)
	if err != nil {
		t.Fatal(err)
	}
	if !d.Owns(view.Ptr, view.Bytes()) {
		t.Fatal("not the device's memory")
	}
	x := make([]float32, view.Len())
	if err := d.Read(unsafe.Slice((*byte)(unsafe.Pointer(&x[0])), view.Bytes()), view.Ptr); err != nil {
		t.Fatal(err)
	}
	return x
}

// hostDecode is a small decode on the host.
func hostDecode() ops.DecodeArgs {
	f := func(n int, shape ...int) *tensor.Dense {
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(math.Sin(float64(i * i)))
		}
		return tensor.New(tensor.WithShape(shape...), tensor.WithBacking(x))
	}
	return ops.DecodeArgs{Query: f(32, 2, 2, 8), KV: ops.StackedKV(f(3*2*1*4*8, 3, 2, 1, 4, 8), ops.HND), MaxSeqLen: 8,
		BlockTables: tensor.New(tensor.WithShape(2, 2), tensor.WithBacking([]int32{0, 2, 1, -1})), SeqLens: tensor.New(tensor.WithShape(2), tensor.WithBacking([]int32{7, 3})),
		Out: tensor.New(tensor.Of(tensor.Float32), tensor.WithShape(2, 2, 8))}
}

// A direct call runs where its tensors lie: lengths and tables may be the host's. Everything else elsewhere is ErrDevice, which names
// the argument and both places.
func TestDirectCallOnDevice(t *testing.T) {
	d, other := newDevice(t, "fake"), newDevice(t, "other")
	want := hostDecode()
	if err := ops.Decode(want); err != nil {
		t.Fatal(err)
	}
	on := func(change func(a *ops.DecodeArgs)) (ops.DecodeArgs, error) {
		a := hostDecode()
		a.Query, a.KV, a.Out = upload(t, d, a.Query), ops.StackedKV(upload(t, d, a.KV.Tensors()[0]), ops.HND), upload(t, d, a.Out)
		change(&a)
		return a, ops.Decode(a)
	}
	for what, change := range map[string]func(a *ops.DecodeArgs){
		"tables on the host": func(*ops.DecodeArgs) {},
		"tables on the device": func(a *ops.DecodeArgs) {
			a.BlockTables, a.SeqLens = upload(t, d, a.BlockTables), upload(t, d, a.SeqLens)
		},
		"relabelled tables": func(a *ops.DecodeArgs) { tensor.WithEngine(d.TensorEngine())(a.SeqLens) },
	} {
		a, err := on(change)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if got := download(t, d, a.Out); !slices.Equal(got, want.Out.Data().([]float32)) {
			t.Errorf("%s: another result than on the CPU", what)
		}
	}
	for _, c := range []struct {
		arg, got string
		change   func(a *ops.DecodeArgs)
	}{
		{"out", "the host", func(a *ops.DecodeArgs) { a.Out = hostDecode().Out }},
		{"kv_cache", "the host", func(a *ops.DecodeArgs) { a.KV = hostDecode().KV }},
		{"kv_cache", "fake", func(a *ops.DecodeArgs) { a.Query = hostDecode().Query }},
		{"out", "other", func(a *ops.DecodeArgs) { a.Out = upload(t, other, hostDecode().Out) }},
		{"block_tables", "other", func(a *ops.DecodeArgs) { a.BlockTables = upload(t, other, a.BlockTables) }},
		{"seq_lens", "fake", func(a *ops.DecodeArgs) { b := hostDecode(); b.SeqLens = upload(t, d, b.SeqLens); *a = b }},
		{"sinks", "the host", func(a *ops.DecodeArgs) {
			a.Sinks = tensor.New(tensor.WithShape(2), tensor.WithBacking([]float32{1, 2}))
		}},
		{"query", "freed", func(a *ops.DecodeArgs) {
			v, _ := ops.View("test", "q", a.Query)
			if err := d.Free(v.Ptr); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		_, err := on(c.change)
		var e *ops.Error
		if !errors.Is(err, ops.ErrDevice) || !errors.As(err, &e) || e.Arg != c.arg || !strings.Contains(e.Got, c.got) || e.Want == "" {
			t.Errorf("%s: %v, want ErrDevice that says %s", c.arg, err, c.got)
		}
	}
}

// An output of integers is no table: it lies where the operands do.
func TestGreedyOnDevice(t *testing.T) {
	d := newDevice(t, "fake")
	x := tensor.New(tensor.WithShape(2, 3), tensor.WithBacking([]float32{1, 5, 2, 7, 0, 3}))
	out := tensor.New(tensor.WithShape(2), tensor.WithBacking([]int32{-1, -1}))
	there := upload(t, d, out)
	if err := ops.Greedy(upload(t, d, x), out); !errors.Is(err, ops.ErrDevice) || !strings.Contains(err.Error(), "out") {
		t.Errorf("an output on the host: %v", err)
	}
	if err := ops.Greedy(x, there); !errors.Is(err, ops.ErrDevice) {
		t.Errorf("an output on the device: %v", err)
	}
	if err := ops.Greedy(upload(t, d, x), there); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 8)
	view, err := ops.View("test", "out", there)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Read(got, view.Ptr); err != nil || !slices.Equal(got, []byte{1, 0, 0, 0, 0, 0, 0, 0}) {
		t.Errorf("%v (%v), want 1 and 0", got, err)
	}
}

// What a CUDA graph may hold takes no lengths of the host, directly and in a graph; on the CPU they are where everything is.
func TestCUDAGraphWantsLengthsOnDevice(t *testing.T) {
	d := newDevice(t, "fake")
	h := hostDecode()
	lens := func(x ...int32) *tensor.Dense { return tensor.New(tensor.WithShape(len(x)), tensor.WithBacking(x)) }
	a := ops.PrefillArgs{Query: h.Query, KV: h.KV, Scale: 1, QLens: lens(1, 1), KVLens: h.SeqLens, MaxQLen: 1, MaxKVLen: 8, BlockTables: h.BlockTables, Out: h.Out}
	if err := ops.Prefill(a, ops.WithCUDAGraphCompatible()); err != nil {
		t.Errorf("on the host: %v", err)
	}
	want := slices.Clone(floats(a.Out))
	g := gorgonia.NewGraph()
	in := func(name string, v *tensor.Dense) *gorgonia.Node {
		return gorgonia.NewTensor(g, v.Dtype(), v.Dims(), gorgonia.WithShape(v.Shape()...), gorgonia.WithName(name))
	}
	kv := a.KV.Tensors()[0]
	out, err := ops.BatchPrefill(in("q", a.Query), ops.StackedKV(in("kv", kv), ops.HND), 1, in("q_lens", a.QLens), in("kv_lens", a.KVLens), 1, 8, false,
		ops.WithBlockTables(in("tables", a.BlockTables)), ops.WithCUDAGraphCompatible())
	if err != nil {
		t.Fatal(err)
	}
	a.Query, a.KV, a.Out = upload(t, d, a.Query), ops.StackedKV(upload(t, d, kv), ops.HND), upload(t, d, a.Out)
	var e *ops.Error
	if err := ops.Prefill(a, ops.WithCUDAGraphCompatible()); !errors.Is(err, ops.ErrDevice) || !errors.As(err, &e) || !strings.Contains(e.Want, "is_cuda_graph_compatible") {
		t.Errorf("lengths on the host: %v", err)
	}
	if err := ops.Prefill(a); err != nil {
		t.Errorf("without the option: %v", err)
	}
	if _, err := out.Op().Do(a.Query, a.KV.Tensors()[0], a.QLens, a.KVLens, a.BlockTables); !errors.Is(err, ops.ErrDevice) {
		t.Errorf("lengths of a node on the host: %v", err)
	}
	a.QLens, a.KVLens, a.BlockTables = upload(t, d, a.QLens), upload(t, d, a.KVLens), upload(t, d, a.BlockTables)
	if err := ops.Prefill(a, ops.WithCUDAGraphCompatible()); err != nil {
		t.Errorf("on the device: %v", err)
	}
	if got := download(t, d, a.Out); !slices.Equal(got, want) {
		t.Error("another result than on the CPU")
	}
	if _, err := out.Op().Do(a.Query, a.KV.Tensors()[0], a.QLens, a.KVLens, a.BlockTables); err != nil {
		t.Errorf("a node's on the device: %v", err)
	}
}

// Under the TapeMachine an op runs where its operands lie, and so does the next one; moved operands move its output.
func TestTapeMachineOnDevice(t *testing.T) {
	d := newDevice(t, "fake")
	g := gorgonia.NewGraph()
	x := gorgonia.NewMatrix(g, tensor.Float32, gorgonia.WithShape(3, 8), gorgonia.WithName("x"))
	w := gorgonia.NewVector(g, tensor.Float32, gorgonia.WithShape(8), gorgonia.WithName("w"))
	a, err := ops.RMSNorm(x, w, 1e-5)
	if err != nil {
		t.Fatal(err)
	}
	b, sum, err := ops.AddRMSNorm(a, x, w, 1e-5)
	if err != nil {
		t.Fatal(err)
	}
	vx := tensor.New(tensor.WithShape(3, 8), tensor.WithBacking(tensor.Range(tensor.Float32, 1, 25)))
	vw := tensor.New(tensor.WithShape(8), tensor.WithBacking(tensor.Range(tensor.Float32, 2, 10)))
	run := func(x0, w0 *tensor.Dense) (gorgonia.Value, gorgonia.Value, error) {
		if err := errors.Join(gorgonia.Let(x, x0), gorgonia.Let(w, w0)); err != nil {
			t.Fatal(err)
		}
		m := gorgonia.NewTapeMachine(g, gorgonia.WithEngine(d.TensorEngine()))
		defer m.Close()
		err := m.RunAll()
		return b.Value(), sum.Value(), err
	}
	vb, vs, err := run(vx.Clone().(*tensor.Dense), vw.Clone().(*tensor.Dense))
	if err != nil {
		t.Fatal(err)
	}
	wantB, wantS := slices.Clone(floats(vb)), slices.Clone(floats(vs))
	for range 3 {
		vb, vs, err = run(upload(t, d, vx), upload(t, d, vw))
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(download(t, d, vb.(*tensor.Dense)), wantB) || !slices.Equal(download(t, d, vs.(*tensor.Dense)), wantS) {
			t.Error("another result than on the CPU")
		}
	}
	if c := d.Counts(); c.Allocs != 6+3 {
		t.Errorf("%d allocations for 6 inputs and 3 results", c.Allocs)
	}
	if _, _, err = run(upload(t, d, vx), vw.Clone().(*tensor.Dense)); !errors.Is(errors.Unwrap(err), ops.ErrDevice) && !strings.Contains(err.Error(), "wrong device") {
		t.Errorf("operands in two places: %v", err)
	}
	vb, _, err = run(vx.Clone().(*tensor.Dense), vw.Clone().(*tensor.Dense))
	if err != nil || !slices.Equal(floats(vb), wantB) {
		t.Errorf("on the host again: %v", err)
	}
	if c := d.Counts(); c.Frees != 3 {
		t.Errorf("%d results on the device given back, want 3", c.Frees)
	}
}

// floats are a host tensor's values, whatever it is labelled.
func floats(v gorgonia.Value) []float32 {
	view, err := ops.View("test", "v", v)
	if err != nil {
		panic(err)
	}
	return unsafe.Slice((*float32)(view.Ptr), view.Len())
}

// Without a device nothing is looked up; a direct call allocates no more with one than without.
func TestRegistry(t *testing.T) {
	a := hostDecode()
	calls := func() float64 {
		return testing.AllocsPerRun(50, func() {
			if err := ops.Decode(a); err != nil {
				t.Fatal(err)
			}
		})
	}
	before := calls()
	d := newDevice(t, "fake")
	ops.Register(d) // twice is once
	p, err := d.Alloc(64)
	if err != nil {
		t.Fatal(err)
	}
	if ops.Owner(p, 64) != ops.Device(d) || ops.Owner(p, 65) != nil || ops.Owner(unsafe.Pointer(&a), 1) != nil {
		t.Error("memory has another owner")
	}
	if with := calls(); with != before {
		t.Errorf("a direct call allocates %v times with a device, %v without", with, before)
	}
	ops.Unregister(d)
	if ops.Owner(p, 64) != nil {
		t.Error("an unregistered device owns memory")
	}
}

// The header of a device without an engine copies, and does nothing else.
func TestDeviceTensor(t *testing.T) {
	d := newDevice(t, "fake")
	plain := ops.Device(bare{d})
	v := upload(t, d, tensor.New(tensor.WithShape(2, 2), tensor.WithBacking([]float32{1, 2, 3, 4})))
	view, err := ops.View("test", "v", v)
	if err != nil {
		t.Fatal(err)
	}
	h := ops.DeviceTensor(plain, &view)
	if h.IsNativelyAccessible() || !h.Shape().Eq(tensor.Shape{2, 2}) || h.Uintptr() != uintptr(view.Ptr) {
		t.Error("not a header of the device's memory")
	}
	clone := h.Clone().(*tensor.Dense)
	if got := download(t, d, clone); !slices.Equal(got, []float32{1, 2, 3, 4}) || clone.Uintptr() == h.Uintptr() {
		t.Errorf("the clone holds %v", got)
	}
	if _, err := tensor.Add(h, h); err == nil {
		t.Error("an engine without Add adds")
	}
	scalar := view
	scalar.Rank = 0
	if s := ops.DeviceTensor(plain, &scalar); !s.IsScalar() {
		t.Errorf("%v is no scalar", s.Shape())
	}
}

// bare hides a device's engine.
type bare struct{ ops.Device }
