package graph_test

import (
	"bytes"
	"errors"
	"testing"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/gaze-ml/gaze/graph"
	"github.com/gaze-ml/gaze/internal/fakedevice"
	"github.com/gaze-ml/gaze/ops"
)

// normNet is RMSNorm of inputs 0 and 1 on a device.
func normNet(t *testing.T, d *fakedevice.Device, opts func(x, w *gorgonia.Node) []graph.Option) (n *net, m *graph.Machine, y *gorgonia.Node) {
	t.Helper()
	n = newNet(t)
	x, w := n.random(tensor.Float32, 4, 16), n.random(tensor.Float32, 16)
	y, err := ops.RMSNorm(x, w, 1e-5)
	must(t, y, err)
	if opts == nil {
		return n, n.on(d), y
	}
	return n, n.on(d, opts(x, w)...), y
}

// doubled doubles a host tensor's values in place.
func doubled(v *tensor.Dense) {
	for i := range v.Data().([]float32) {
		v.Data().([]float32)[i] *= 2
	}
}

// What changes in a host tensor counts in the next run, unless its node is resident: then it counts when the tensor is given again, or
// another one is.
func TestDeviceUploads(t *testing.T) {
	d := newDevice(t)
	n, m, y := normNet(t, d, func(x, w *gorgonia.Node) []graph.Option { return []graph.Option{graph.Resident(w)} })
	x, w := n.inputs[0].node, n.inputs[1].node
	vs := n.letOn(d, m, false)
	run := func() []float32 {
		t.Helper()
		if err := m.RunAll(); err != nil {
			t.Fatal(err)
		}
		v, err := m.Host(y)
		f, err2 := ops.Float32s(must(t, v, err))
		return must(t, f, err2)
	}
	let := func(node *gorgonia.Node, v *tensor.Dense) {
		t.Helper()
		if err := m.Let(node, v); err != nil {
			t.Fatal(err)
		}
	}
	first := run()
	ratio := func(what string, want float32) {
		t.Helper()
		for i, v := range run() {
			if v != want*first[i] {
				t.Fatalf("%s: element %d is %v, want %v of %v", what, i, v, want, first[i])
			}
		}
	}
	writes := d.Counts().Writes
	ratio("the same again", 1)
	if got := d.Counts().Writes - writes; got != 1 {
		t.Errorf("%d uploads of the second run, want x alone", got)
	}
	doubled(vs[1])
	ratio("a resident changed in place", 1)
	let(w, vs[1])
	ratio("given again", 2)
	let(w, n.inputs[1].value)
	ratio("another tensor", 1)
	other := vs[1].Clone().(*tensor.Dense)
	tensor.WithBacking(other.Data())(vs[1])
	let(w, vs[1])
	ratio("the doubled one", 2)
	more := append([]float32(nil), other.Data().([]float32)...)
	for i := range more {
		more[i] *= 2
	}
	tensor.WithBacking(more)(vs[1])
	ratio("other memory under the header", 4)
	for i := range vs[0].Data().([]float32) {
		vs[0].Data().([]float32)[i] = 0
	}
	ratio("x changed in place", 0)
	if v, err := m.Value(x); err != nil || v != gorgonia.Value(vs[0]) {
		t.Errorf("the value of an input is %T (%v), want the tensor that was given", v, err)
	}
	v, err := m.Value(y)
	dense := must(t, v, err).(*tensor.Dense)
	if p, err := ops.View("test", "y", dense); err != nil || !d.Owns(p.Ptr, 256) || dense.IsNativelyAccessible() {
		t.Errorf("the value of a result on the device isn't there (%v)", err)
	}
}

// Where a tensor lies is told by its address: not by its engine or flags, which Gorgonia's machines change.
func TestDeviceKnowsMemoryByAddress(t *testing.T) {
	d := newDevice(t)
	n, m, y := normNet(t, d, nil)
	x, w := n.inputs[0].node, n.inputs[1].node
	want, _ := n.onMachine([]*gorgonia.Node{y}, 1)
	up := func(dev *fakedevice.Device, v *tensor.Dense) *tensor.Dense {
		u, err := graph.Upload(dev, v)
		return must(t, u, err)
	}
	there := up(d, n.inputs[0].value)
	tensor.WithEngine(tensor.StdEng{})(there)
	here := n.inputs[1].value.Clone().(*tensor.Dense)
	tensor.WithEngine(d.TensorEngine())(here)
	if err := errors.Join(m.Let(x, there), m.Let(w, here), m.RunAll()); err != nil {
		t.Fatal(err)
	}
	v, err := m.Host(y)
	if got := raw(must(t, v, err)); !bytes.Equal(got, want[0][0].bytes) {
		t.Error("relabelled tensors give another result")
	}
	if v, err := m.Host(x); err != nil || !bytes.Equal(raw(v), raw(n.inputs[0].value)) {
		t.Errorf("the copy of an input on the device differs (%v)", err)
	}
	other, err := fakedevice.New("other", 1<<20)
	must(t, other, err)
	defer other.Close()
	foreign := up(other, n.inputs[0].value)
	wantError(t, m.Let(x, foreign), ops.ErrDevice, "input0", "of fake", "of other")
	cpu, err := graph.NewMachine(n.g)
	must(t, cpu, err)
	wantError(t, cpu.Let(x, there), ops.ErrDevice, "input0", "of the host", "of fake")
	if err := gorgonia.Let(x, foreign); err != nil {
		t.Fatal(err)
	}
	bound := n.on(d)
	if err := bound.Let(w, here); err != nil {
		t.Fatal(err)
	}
	wantError(t, bound.RunAll(), ops.ErrDevice, "of other")
	if err := graph.Release(d, there); err != nil {
		t.Fatal(err)
	}
	wantError(t, m.Let(x, there), ops.ErrDevice, "input0", "freed")
}

// Views are packed on their way to the device and back.
func TestDeviceTakesViews(t *testing.T) {
	d := newDevice(t)
	n, m, y := normNet(t, d, nil)
	wide := n.inputs[0].value
	big := tensor.New(tensor.WithShape(4, 40), tensor.WithBacking(tensor.Range(tensor.Float32, 0, 160)))
	slice := func(v *tensor.Dense) *tensor.Dense {
		s, err := v.Slice(nil, tensor.S(3, 19))
		return must(t, s, err).(*tensor.Dense)
	}
	for i := range 4 {
		copy(big.Data().([]float32)[i*40+3:], wide.Data().([]float32)[i*16:][:16])
	}
	want, _ := n.onMachine([]*gorgonia.Node{y}, 1)
	there, err := graph.Upload(d, big)
	must(t, there, err)
	defer graph.Release(d, there)
	packed, err := graph.Upload(d, slice(big))
	must(t, packed, err)
	defer graph.Release(d, packed)
	for what, x := range map[string]*tensor.Dense{"a view on the host": slice(big), "a view on the device": slice(there), "an uploaded view": packed} {
		if err := errors.Join(m.Let(n.inputs[0].node, x), m.Let(n.inputs[1].node, n.inputs[1].value), m.RunAll()); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if v, err := m.Host(y); err != nil || !bytes.Equal(raw(v), want[0][0].bytes) {
			t.Errorf("%s gives another result (%v)", what, err)
		}
		if v, err := m.Host(n.inputs[0].node); err != nil || !bytes.Equal(raw(v), raw(wide)) {
			t.Errorf("%s comes back otherwise (%v)", what, err)
		}
	}
}

// What is written in place must be the device's; ops on the CPU see it as it is when their turn comes, before the write or after.
func TestDeviceWritesInPlace(t *testing.T) {
	build := func(n *net) []*gorgonia.Node {
		x, w := n.random(tensor.Float32, 3, 64), n.random(tensor.Float32, 64)
		into := n.random(tensor.Float32, 3, 4, 16)
		flat, err := ops.Reshape(into, 3, 64)
		must(n.t, flat, err)
		before, err := ops.SiLUMul(flat, x) // reads what was given
		must(n.t, before, err)
		p := n.pool()
		out, err := ops.BatchDecode(n.random(tensor.Float32, 3, 4, 16), n.stacked(tensor.Float32, 2, 16), p.tables, p.lens, 16, ops.WithOut(into))
		must(n.t, out, err)
		after, err := ops.SiLUMul(flat, x) // reads what was written
		must(n.t, after, err)
		again, err := ops.RMSNorm(flat, w, 1e-5)
		must(n.t, again, err)
		named, err := ops.Reshape(out, 12, 16)
		must(n.t, named, err)
		last, err := ops.SiLUMul(named, named)
		return []*gorgonia.Node{before, out, after, again, must(n.t, last, err)}
	}
	for _, kind := range []string{"none", "silu_mul"} {
		reference := newNet(t)
		want, _ := reference.onMachine(build(reference), 2)
		d := newDevice(t)
		refusing(d, kind)
		n := newNet(t)
		outputs := build(n)
		m := n.on(d, graph.Keep(outputs...))
		wantError(t, m.Let(n.inputs[2].node, n.inputs[2].value), ops.ErrDevice, n.inputs[2].node.Name(), "in place", "of fake", "of the host")
		if err := gorgonia.Let(n.inputs[2].node, n.inputs[2].value); err != nil {
			t.Fatal(err)
		}
		n.letOn(d, m, false)
		for run := range 2 {
			for i, got := range poisoned(t, m, outputs) {
				if !bytes.Equal(got, want[run][i].bytes) {
					t.Errorf("%s refused, run %d: output %d differs", kind, run, i)
				}
			}
		}
	}
}

// A result on the CPU is not written in place on the device, where it would be a copy that is written; why it is on the CPU is said.
func TestDeviceRefusesToWriteCopies(t *testing.T) {
	d := newDevice(t)
	n := newNet(t)
	p := n.pool()
	tanh, err := gorgonia.Tanh(n.random(tensor.Float32, 3, 4, 16))
	must(t, tanh, err)
	into, err := ops.Reshape(tanh, 3, 4, 16)
	must(t, into, err)
	out, err := ops.BatchDecode(n.random(tensor.Float32, 3, 4, 16), n.stacked(tensor.Float32, 2, 16), p.tables, p.lens, 16, ops.WithOut(into))
	must(t, out, err)
	_, err = graph.NewMachine(n.g, graph.On(d))
	wantError(t, err, ops.ErrUnsupported, "decode", "in place", "a result on the cpu", "tanh", "HadamardProd")
}

func TestResidentRefuses(t *testing.T) {
	n := newNet(t)
	y, err := ops.RMSNorm(n.random(tensor.Float32, 4, 16), n.random(tensor.Float32, 16), 1e-5)
	must(t, y, err)
	for what, node := range map[string]*gorgonia.Node{"nil": nil, "input": y, "not in it": newNet(t).random(tensor.Float32, 2)} {
		_, err := graph.NewMachine(n.g, graph.Resident(node))
		wantError(t, err, ops.ErrArgument, what)
	}
}

func TestUploadRefuses(t *testing.T) {
	d := newDevice(t)
	v := tensor.New(tensor.WithShape(2), tensor.WithBacking([]float32{1, 2}))
	_, err := graph.Upload(nil, v)
	wantError(t, err, ops.ErrNoDevice, "device")
	_, err = graph.Upload(d, nil)
	wantError(t, err, ops.ErrArgument, "tensor", "nil")
	_, err = graph.Upload(d, tensor.New(tensor.Of(tensor.Float64), tensor.WithShape(2)))
	wantError(t, err, ops.ErrDType, "tensor", "float64")
	there, err := graph.Upload(d, v)
	must(t, there, err)
	_, err = graph.Upload(d, there)
	wantError(t, err, ops.ErrDevice, "of fake")
	d.FailAfter("write", 0, errors.New("boom"))
	if _, err = graph.Upload(d, v); err == nil {
		t.Error("a failed write is no error")
	}
	if err := graph.Release(d, there); err != nil {
		t.Error(err)
	}
	if err := graph.Release(d, there); !errors.Is(err, ops.ErrDevice) {
		t.Errorf("released twice: %v", err)
	}
}
