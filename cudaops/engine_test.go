//go:build gpu && linux && amd64 && cgo

package cudaops

import (
	"math/rand/v2"
	"strings"
	"testing"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/gaze-ml/gaze/cudaops/internal/fakecuda"
	"github.com/gaze-ml/gaze/ops"
)

func floats32(r *rand.Rand, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(r.IntN(64))/8 + 0.5 // sums and products of a few are exact
	}
	return x
}

func host(shape []int, x []float32) *tensor.Dense {
	return tensor.New(tensor.WithShape(shape...), tensor.WithBacking(x))
}

func upload(t *testing.T, rt *Runtime, h *tensor.Dense) *tensor.Dense {
	t.Helper()
	d, err := rt.Upload(h)
	must(t, err)
	return d
}

func same(t *testing.T, what string, rt *Runtime, got tensor.Tensor, want *tensor.Dense) {
	t.Helper()
	h, err := rt.Download(got.(*tensor.Dense))
	must(t, err)
	a, b := h.Data().([]float32), want.Data().([]float32)
	if !h.Shape().Eq(want.Shape()) {
		t.Errorf("%s: shape %v, want %v", what, h.Shape(), want.Shape())
		return
	}
	for i := range b {
		if a[i] != b[i] {
			t.Errorf("%s: element %d is %v, want %v", what, i, a[i], b[i])
			return
		}
	}
}

// TestEngineAgainstStandard: every op gives on device tensors what the standard engine gives on host tensors.
func TestEngineAgainstStandard(t *testing.T) {
	const seed = 5
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, seed))
	rt := fake(t, fakecuda.Hopper)
	binaries := map[string]function{"Add": tensor.Add, "Sub": tensor.Sub, "Mul": tensor.Mul,
		"Div": tensor.Div}
	for _, shape := range [][]int{{7}, {3, 5}, {2, 3, 4}, {2, 1, 3, 2}} {
		n := tensor.Shape(shape).TotalSize()
		ha, hb := host(shape, floats32(r, n)), host(shape, floats32(r, n))
		da, db := upload(t, rt, ha), upload(t, rt, hb)
		for name, f := range binaries {
			got, err := f(da, db)
			must(t, err)
			same(t, name, rt, got, expect(t, f, ha, hb))
			for _, left := range []bool{true, false} {
				args := func(x *tensor.Dense) (any, any) {
					if left {
						return x, float32(2.5)
					}
					return float32(2.5), x
				}
				a, b := args(da)
				got, err := f(a, b)
				must(t, err)
				a, b = args(ha)
				same(t, name+" with a scalar", rt, got, expect(t, f, a, b))
			}
			for what, s := range map[string]any{"a device scalar": upload(t, rt, host([]int{1}, []float32{2.5})), "Gorgonia's": gorgonia.NewF32(2.5),
				"a host tensor": host([]int{1}, []float32{2.5})} {
				got, err := scalarOps(rt.Engine(), name)(da, s, true)
				must(t, err)
				same(t, name+" with "+what, rt, got, expect(t, f, ha, float32(2.5)))
			}
			into, err := rt.NewTensor(tensor.Float32, shape...)
			must(t, err)
			got, err = f(da, db, tensor.WithReuse(into))
			must(t, err)
			if got != tensor.Tensor(into) {
				t.Errorf("%s: the reused tensor is not the result", name)
			}
			same(t, name+" with reuse", rt, got, expect(t, f, ha, hb))
			over := upload(t, rt, ha)
			got, err = f(over, db, tensor.UseUnsafe())
			must(t, err)
			same(t, name+" in place", rt, got, expect(t, f, ha, hb))
			if got.(*tensor.Dense).Uintptr() != over.Uintptr() {
				t.Errorf("%s in place wrote elsewhere", name)
			}
		}
	}
	same(t, "copy", rt, upload(t, rt, host([]int{2, 2}, []float32{1, 2, 3, 4})).Clone().(*tensor.Dense), host([]int{2, 2}, []float32{1, 2, 3, 4}))
}

// function is one of package tensor's functions.
type function = func(a, b any, o ...tensor.FuncOpt) (tensor.Tensor, error)

// expect is what the standard engine gives.
func expect(t *testing.T, f function, a, b any) *tensor.Dense {
	t.Helper()
	w, err := f(a, b)
	must(t, err)
	return w.(*tensor.Dense)
}

func scalarOps(e *Engine, name string) func(t tensor.Tensor, s any, left bool, o ...tensor.FuncOpt) (tensor.Tensor, error) {
	return map[string]func(t tensor.Tensor, s any, left bool, o ...tensor.FuncOpt) (tensor.Tensor, error){"Add": e.AddScalar, "Sub": e.SubScalar,
		"Mul": e.MulScalar, "Div": e.DivScalar}[name]
}

// TestEngineViews: slices and lazy transposes are read through their strides.
func TestEngineViews(t *testing.T) {
	const seed = 6
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, seed))
	rt := fake(t, fakecuda.Hopper)
	h := host([]int{6, 8}, floats32(r, 48))
	d := upload(t, rt, h)
	cut := func(x *tensor.Dense, cols tensor.Slice) *tensor.Dense {
		v, err := x.Slice(nil, cols)
		must(t, err)
		return v.(*tensor.Dense)
	}
	// Not against the standard engine, whose sum of two views of columns is wrong.
	x, sums := h.Data().([]float32), make([]float32, 18)
	for i := range sums {
		at := i/3*8 + i%3
		sums[i] = x[at+1] + x[at+4]
	}
	got, err := tensor.Add(cut(d, tensor.S(1, 4)), cut(d, tensor.S(4, 7)))
	must(t, err)
	same(t, "columns", rt, got, host([]int{6, 3}, sums))

	ht, dt := h.Clone().(*tensor.Dense), upload(t, rt, h)
	must(t, ht.T(), dt.T())
	wanted, err := tensor.MatMul(ht, h)
	must(t, err)
	got, err = tensor.MatMul(dt, d)
	must(t, err)
	same(t, "aᵀ·a", rt, got, wanted.(*tensor.Dense))
	v := floats32(r, 8)
	wantv, err := tensor.MatVecMul(h, host([]int{8}, v))
	must(t, err)
	gotv, err := tensor.MatVecMul(d, upload(t, rt, host([]int{8}, v)))
	must(t, err)
	same(t, "a·v", rt, gotv, wantv.(*tensor.Dense))

	must(t, ht.Transpose(), dt.Transpose())
	same(t, "transpose", rt, dt, ht)
	h3 := host([]int{2, 3, 4}, floats32(r, 24))
	d3 := upload(t, rt, h3)
	must(t, h3.T(2, 0, 1), d3.T(2, 0, 1), h3.Transpose(), d3.Transpose())
	same(t, "transpose of three", rt, d3, h3)
}

// TestEngineInGraph: a graph of Gorgonia's own ops gives the same under a TapeMachine on device tensors, run after run, with scratch
// at the same addresses each time.
func TestEngineInGraph(t *testing.T) {
	const seed = 8
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, seed))
	rt := fake(t, fakecuda.Hopper)
	x0, w0, b0 := host([]int{4, 6}, floats32(r, 24)), host([]int{6, 5}, floats32(r, 30)), host([]int{4, 5}, floats32(r, 20))
	build := func() (g *gorgonia.ExprGraph, x, w, b, out *gorgonia.Node) {
		g = gorgonia.NewGraph()
		x = gorgonia.NewMatrix(g, tensor.Float32, gorgonia.WithShape(4, 6), gorgonia.WithName("x"))
		w = gorgonia.NewMatrix(g, tensor.Float32, gorgonia.WithShape(6, 5), gorgonia.WithName("w"))
		b = gorgonia.NewMatrix(g, tensor.Float32, gorgonia.WithShape(4, 5), gorgonia.WithName("b"))
		y := gorgonia.Must(gorgonia.Add(gorgonia.Must(gorgonia.Mul(x, w)), b))
		out = gorgonia.Must(gorgonia.HadamardDiv(gorgonia.Must(gorgonia.Sub(gorgonia.Must(gorgonia.HadamardProd(y, y)), b)), b))
		return
	}
	run := func(m gorgonia.VM, x, w, b *gorgonia.Node, xv, wv, bv *tensor.Dense) {
		t.Helper()
		must(t, gorgonia.Let(x, xv), gorgonia.Let(w, wv), gorgonia.Let(b, bv), m.RunAll())
	}
	g, x, w, b, out := build()
	m := gorgonia.NewTapeMachine(g)
	run(m, x, w, b, x0, w0, b0)
	wanted := out.Value().(*tensor.Dense).Clone().(*tensor.Dense)
	must(t, m.Close())

	g, x, w, b, out = build()
	m = gorgonia.NewTapeMachine(g, gorgonia.WithEngine(rt.Engine()))
	defer m.Close()
	dx, dw, db := upload(t, rt, x0), upload(t, rt, w0), upload(t, rt, b0)
	var at uintptr
	for range 3 {
		rt.Engine().Reset()
		run(m, x, w, b, dx, dw, db)
		got := out.Value().(*tensor.Dense)
		same(t, "graph", rt, got, wanted)
		if at != 0 && got.Uintptr() != at {
			t.Errorf("the result lies at %#x, before at %#x", got.Uintptr(), at)
		}
		at = got.Uintptr()
		m.Reset()
	}
	must(t, rt.Sync())
	same(t, "the weights afterwards", rt, dw, w0)
}

// TestEngineRefuses: what it can't do is a typed error that names what it got, and never prints a tensor.
func TestEngineRefuses(t *testing.T) {
	rt := fake(t, fakecuda.Hopper)
	other, err := Open(1)
	must(t, err)
	defer other.Close()
	h := host([]int{2, 3}, make([]float32, 6))
	d, theirs := upload(t, rt, h), upload(t, other, h)
	half, err := rt.NewTensor(ops.Float16, 2, 3)
	must(t, err)
	three := upload(t, rt, host([]int{3, 2}, make([]float32, 6)))
	e := rt.Engine()
	stale := upload(t, rt, h)
	must(t, rt.FreeTensor(stale))
	for what, c := range map[string]struct {
		run  func() error
		kind error
		word string
	}{
		"another device's tensor": {func() error { _, err := e.Add(d, theirs); return err }, ops.ErrDevice, "cuda:0"},
		"a host tensor":           {func() error { _, err := e.Add(h, d); return err }, ops.ErrDevice, "add: a"},
		"a freed tensor":          {func() error { _, err := e.Add(d, stale); return err }, ops.ErrDevice, "add: b"},
		"another dtype":           {func() error { _, err := e.Add(d, half); return err }, ops.ErrDType, "float16"},
		"another shape":           {func() error { _, err := e.Mul(d, three); return err }, ops.ErrShape, "float32[3 2]"},
		"a scalar of float64":     {func() error { _, err := e.AddScalar(d, 1.0, true); return err }, ops.ErrDType, "float64"},
		"incr":                    {func() error { _, err := e.Add(d, d, tensor.WithIncr(d)); return err }, ops.ErrUnsupported, "WithIncr"},
		"a reuse of another size": {func() error { _, err := e.Add(d, d, tensor.WithReuse(half)); return err }, ops.ErrShape, "reuse"},
		"another's reuse":         {func() error { _, err := e.Add(d, d, tensor.WithReuse(theirs)); return err }, ops.ErrDevice, "reuse"},
		"matmul of 2x3 and 2x3":   {func() error { return e.MatMul(d, d, d) }, ops.ErrShape, "matmul: b"},
		"memset of a string":      {func() error { return e.Memset(d, "x") }, ops.ErrDType, "string"},
		"memcpy to another's":     {func() error { return e.Memcpy(theirs, d) }, ops.ErrDevice, "dst"},
		"memory for the host":     {func() error { _, err := e.Accessible(d); return err }, ops.ErrDevice, "cuda:0"},
		"scratch too large":       {func() error { _, err := e.Alloc(2 << 30); return err }, ops.ErrOutOfMemory, "2147483648"},
	} {
		want(t, what, c.run(), c.kind, c.word)
	}
	must(t, rt.Sync())
	e.Memclr(theirs)
	want(t, "the wait after a bad Memclr", rt.Sync(), ops.ErrDevice, "memclr")
	if err := e.Transpose(theirs, nil); err == nil {
		t.Error("a transpose of another's tensor: no error")
	}
	want(t, "the wait after a bad Transpose", rt.Sync(), ops.ErrDevice, "transpose")
	must(t, rt.Sync(), e.Memset(d, float32(2)))
	same(t, "memset", rt, d, host([]int{2, 3}, []float32{2, 2, 2, 2, 2, 2}))
	e.Memclr(d)
	same(t, "memclr", rt, d, h)
}

// TestTensors: what is copied in comes out, for every dtype, and bad sides are refused.
func TestTensors(t *testing.T) {
	rt := fake(t, fakecuda.Hopper)
	for _, dt := range []tensor.Dtype{tensor.Float32, ops.Float16, ops.BFloat16, ops.Float8E4M3, tensor.Int32, tensor.Uint8} {
		h, err := ops.NewTensor(dt, tensor.Shape{3, 4}, []float32{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12})
		must(t, err)
		back, err := rt.Download(upload(t, rt, h))
		must(t, err)
		if !back.Eq(h) {
			t.Errorf("%v came back changed", dt)
		}
	}
	h := host([]int{2, 3}, make([]float32, 6))
	d := upload(t, rt, h)
	v, err := h.Slice(nil, tensor.S(0, 2))
	must(t, err)
	_, err = rt.Upload(v.(*tensor.Dense))
	want(t, "a view", err, ops.ErrShape, "contiguous")
	want(t, "another shape", rt.CopyIn(d, host([]int{3, 2}, make([]float32, 6))), ops.ErrShape, "float32[2 3]")
	want(t, "device for host", rt.CopyOut(d, d), ops.ErrDevice, "host")
	want(t, "host for device", rt.CopyIn(h, h), ops.ErrDevice, "cuda:0")
	_, err = rt.NewTensor(tensor.Complex64, 2)
	want(t, "complex64", err, ops.ErrDType)
	_, err = rt.NewTensor(tensor.Float32, -1)
	want(t, "a negative size", err, ops.ErrShape)
	_, err = rt.Download(nil)
	want(t, "nil", err, ops.ErrArgument)
	if s := d.Engine(); s != tensor.Engine(rt.Engine()) || strings.Contains(d.Info().String(), "panic") {
		t.Error("a device tensor has another engine")
	}
}
