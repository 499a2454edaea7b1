package graph_test

import (
	"bytes"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/gaze-ml/gaze/graph"
	"github.com/gaze-ml/gaze/internal/attn"
	"github.com/gaze-ml/gaze/internal/fakedevice"
	"github.com/gaze-ml/gaze/ops"
)

// newDevice opens a fake device, which must have nothing allocated when the test ends.
func newDevice(t testing.TB) *fakedevice.Device {
	t.Helper()
	d, err := fakedevice.New("fake", 8<<20)
	if errors.Is(err, ops.ErrNoDevice) {
		t.Skipf("SKIPPED: no test of placement runs on %s: %v", runtime.GOOS, err)
	}
	must(t, d, err)
	t.Cleanup(func() {
		if c := d.Counts(); c.Blocks != 0 && !t.Failed() {
			t.Errorf("%d blocks of the device, %d bytes, were not given back", c.Blocks, c.UsedBytes)
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// letOn gives the inputs of a Machine on d values: on the host, unless all shall be on the device or the input is written in place.
func (n *net) letOn(d *fakedevice.Device, m *graph.Machine, onDevice bool) []*tensor.Dense {
	n.t.Helper()
	vs := n.clones()
	for i, in := range n.inputs {
		err := m.Let(in.node, vs[i])
		if err != nil && !errors.Is(err, ops.ErrDevice) {
			n.t.Fatal(err)
		}
		if err == nil && !onDevice {
			continue
		}
		vs[i], err = graph.Upload(d, vs[i])
		must(n.t, vs[i], err)
		n.t.Cleanup(func() {
			if err := graph.Release(d, vs[i]); err != nil {
				n.t.Error(err)
			}
		})
		if err := m.Let(in.node, vs[i]); err != nil {
			n.t.Fatal(err)
		}
	}
	return vs
}

// on makes a Machine on d that is closed when the test ends.
func (n *net) on(d *fakedevice.Device, opts ...graph.Option) *graph.Machine {
	n.t.Helper()
	m, err := graph.NewMachine(n.g, append(opts, graph.On(d))...)
	must(n.t, m, err)
	n.t.Cleanup(func() {
		if err := m.Close(); err != nil {
			n.t.Error(err)
		}
	})
	return m
}

// hostOf is a value's bytes, wherever it lies.
func hostOf(t testing.TB, d *fakedevice.Device, v *tensor.Dense) []byte {
	t.Helper()
	view, err := ops.View("test", "value", v)
	must(t, view, err)
	if !d.Owns(view.Ptr, view.Bytes()) {
		return raw(v)
	}
	b := make([]byte, view.Bytes())
	if err := d.Read(b, view.Ptr); err != nil {
		t.Fatal(err)
	}
	return b
}

// poisoned runs a Machine whose memory says nothing and gives the bytes of its outputs.
func poisoned(t testing.TB, m *graph.Machine, outputs []*gorgonia.Node) (after [][]byte) {
	t.Helper()
	m.Poison()
	if err := m.RunAll(); err != nil {
		t.Fatalf("%v\n%v", err, m.Placement())
	}
	for _, o := range outputs {
		v, err := m.Host(o)
		after = append(after, raw(must(t, v, err)))
	}
	return after
}

// kinds are the calls that a device may refuse.
var kinds = []string{"none", "decode", "prefill", "merge_lse", "rms_norm", "rope", "linear", "silu_mul", "embedding", "all but append_kv"}

// refusing makes d refuse a kind, for two reasons.
func refusing(d *fakedevice.Device, kind string) {
	d.Refuse(func(c attn.Call) []error {
		if c.Op() != kind && (kind != "all but append_kv" || c.Op() == "append_kv") {
			return nil
		}
		return []error{attn.Errorf(ops.ErrUnsupported, c.Op(), "one", "first want", "first got"), attn.Errorf(ops.ErrUnsupported, c.Op(), "two", "second want", "second got")}
	})
}

// Every net gives on a device, bit by bit, what it gives on the CPU: with its values on the host or on the device, and whatever the
// device refuses, unless that writes in place. Where nothing is refused every op of gaze runs there.
func TestDeviceEqualsCPU(t *testing.T) {
	for _, c := range nets {
		t.Run(c.name, func(t *testing.T) {
			reference := newNet(t)
			outputs := c.build(reference)
			onCPU, wantIn := reference.letAll(graph.Keep(outputs...))
			var want [][][]byte
			for range 2 {
				want = append(want, poisoned(t, onCPU, outputs))
			}
			for _, kind := range kinds {
				for _, onDevice := range []bool{false, true} {
					d := newDevice(t)
					refusing(d, kind)
					n := newNet(t)
					outputs := c.build(n)
					m, err := graph.NewMachine(n.g, graph.On(d), graph.Keep(outputs...))
					if err != nil {
						wantError(t, err, ops.ErrUnsupported, "in place", "first got", "second got")
						if kind == "none" || !strings.Contains(c.name, "into") && !strings.Contains(c.name, "append") {
							t.Errorf("%s refused: %v", kind, err)
						}
						continue
					}
					vs := n.letOn(d, m, onDevice)
					for run := range 2 {
						for i, got := range poisoned(t, m, outputs) {
							if !bytes.Equal(got, want[run][i]) {
								t.Errorf("%s refused, on the device %v, run %d: output %d differs", kind, onDevice, run, i)
							}
						}
					}
					for i, v := range vs {
						if !bytes.Equal(hostOf(t, d, v), raw(wantIn[i])) {
							t.Errorf("%s refused: input %d differs afterwards", kind, i)
						}
					}
					for _, p := range m.Placement().Nodes {
						if _, ok := p.Node.Op().(ops.Planned); ok && kind == "none" && (p.Device != "fake" || p.Reasons != nil) {
							t.Errorf("%v is on the %s", p.Node, p.Device)
						}
					}
					if err := m.Close(); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
}

// An op that the device refuses runs on the CPU, with every reason; what it takes and gives is copied once, for all readers, also
// under another shape.
func TestPlacement(t *testing.T) {
	d := newDevice(t)
	refusing(d, "silu_mul")
	n := newNet(t)
	x, w := n.random(tensor.Float32, 4, 16), n.random(tensor.Float32, 16)
	a, err := ops.RMSNorm(x, w, 1e-5) // device
	must(t, a, err)
	b, err := ops.SiLUMul(a, x) // host: a crosses, x is there
	must(t, b, err)
	flat, err := ops.Reshape(a, 8, 8)
	must(t, flat, err)
	c, err := ops.SiLUMul(flat, flat) // host: a is there already
	must(t, c, err)
	e, err := ops.RMSNorm(b, w, 1e-5) // device: b crosses
	must(t, e, err)
	f, err := ops.RMSNorm(b, n.random(tensor.Float32, 16), 1e-5) // device: b is there already
	must(t, f, err)
	named, err := ops.Reshape(c, 4, 16)
	must(t, named, err)
	same, err := ops.Reshape(x, 2, 32)
	must(t, same, err)
	there, err := ops.RMSNorm(same, n.random(tensor.Float32, 32), 1e-5)
	must(t, there, err)
	m := n.on(d, graph.Resident(w))
	p := m.Placement()
	where := map[*gorgonia.Node]string{}
	for _, q := range p.Nodes {
		where[q.Node] = q.Device
		if refused := q.Device == "cpu"; refused != (len(q.Reasons) == 2) {
			t.Errorf("%v on the %s for the reasons %v", q.Node, q.Device, q.Reasons)
		}
	}
	for node, want := range map[*gorgonia.Node]string{a: "fake", b: "cpu", flat: "fake", c: "cpu", named: "cpu", same: "fake", e: "fake", f: "fake"} {
		if where[node] != want {
			t.Errorf("%v on the %q, want %s", node, where[node], want)
		}
	}
	var steps []graph.Move
	inputs := map[*gorgonia.Node]graph.Move{}
	for _, v := range p.Moves {
		if v.When == graph.EveryRun {
			steps = append(steps, v)
		} else {
			inputs[v.Node] = v
		}
	}
	if len(steps) != 2 || steps[0].Node != a || steps[0].To != "cpu" || steps[0].From != "fake" || steps[1].Node != b || steps[1].To != "fake" || steps[0].Bytes != 256 {
		t.Errorf("moves %v, want a to the cpu and b to the device", steps)
	}
	if inputs[w].When != graph.InputOnce || inputs[w].To != "fake" || inputs[x].When != graph.InputEvery {
		t.Errorf("moves of inputs %v", inputs)
	}
	for _, words := range []string{"rms_norm): fake", "silu_mul): cpu", "first got", "second got", "fake to cpu, 256 bytes, in every run", "once for each value"} {
		if !strings.Contains(p.String(), words) {
			t.Errorf("%q is not in\n%v", words, p)
		}
	}
	n.letOn(d, m, false)
	before := d.Counts()
	for range 3 {
		if err := m.RunAll(); err != nil {
			t.Fatal(err)
		}
	}
	after := d.Counts()
	// each run: x and two weights up, which are not resident, and b; a down. Once: w.
	if writes, reads := after.Writes-before.Writes, after.Reads-before.Reads; writes != 3*4+1 || reads != 3 {
		t.Errorf("%d writes and %d reads in three runs, want 13 and 3", writes, reads)
	}
}

// Gorgonia's own Add, Sub, HadamardProd, HadamardDiv, Mul and Transpose of float32 run on a device with an engine, others on the CPU.
func TestDeviceRunsGorgoniasOps(t *testing.T) {
	build := func(n *net) (there, here []*gorgonia.Node) {
		x, y := n.random(tensor.Float32, 3, 4), n.random(tensor.Float32, 3, 4)
		v, s := n.random(tensor.Float32, 3), gorgonia.NewConstant(float32(0.5))
		k := gorgonia.NewTensor(n.g, tensor.Float32, 3, gorgonia.WithShape(2, 3, 4), gorgonia.WithName("k"))
		n.inputs = append(n.inputs, input{k, tensor.New(tensor.WithShape(2, 3, 4), tensor.WithBacking(tensor.Range(tensor.Float32, 0, 24)))})
		node := func(x *gorgonia.Node, err error) *gorgonia.Node { return must(t, x, err) }
		sum := node(gorgonia.Add(x, y))
		turned := node(gorgonia.Transpose(sum))
		there = []*gorgonia.Node{sum, turned, node(gorgonia.Sub(x, sum)), node(gorgonia.HadamardProd(x, y)), node(gorgonia.HadamardDiv(x, y)),
			node(gorgonia.Mul(x, turned)), node(gorgonia.Mul(turned, v)), node(gorgonia.Transpose(k, 2, 0, 1)), node(gorgonia.Add(x, s)), node(gorgonia.Sub(s, x))}
		d := n.node(tensor.Float64, 2, 2)
		n.inputs = append(n.inputs, input{d, tensor.New(tensor.WithShape(2, 2), tensor.WithBacking([]float64{1, 2, 3, 4}))})
		here = []*gorgonia.Node{node(gorgonia.Tanh(sum)), node(gorgonia.Add(d, d)), node(gorgonia.Sum(sum, 0)), node(gorgonia.Mul(v, v))}
		return there, here
	}
	reference := newNet(t)
	there, here := build(reference)
	want, _ := reference.letAll(graph.Keep(append(there, here...)...))
	if err := want.RunAll(); err != nil {
		t.Fatal(err)
	}
	for _, onDevice := range []bool{false, true} {
		d := newDevice(t)
		n := newNet(t)
		there2, here2 := build(n)
		all := append(there2, here2...)
		m := n.on(d, graph.Keep(all...))
		if onDevice { // a tensor of float64 can't be there
			last := len(n.inputs) - 1
			if err := m.Let(n.inputs[last].node, n.inputs[last].value); err != nil {
				t.Fatal(err)
			}
			n.inputs = n.inputs[:last]
		}
		n.letOn(d, m, onDevice)
		for range 2 {
			if err := m.RunAll(); err != nil {
				t.Fatal(err)
			}
		}
		for i, o := range append(there, here...) {
			w, err := want.Host(o)
			must(t, w, err)
			g, err := m.Host(all[i])
			if must(t, g, err); values(g) != values(w) {
				t.Errorf("%v: %s, want %s", o, values(g), values(w))
			}
		}
		where := map[*gorgonia.Node]graph.NodePlacement{}
		for _, p := range m.Placement().Nodes {
			where[p.Node] = p
		}
		for i, o := range all {
			dev := "fake"
			if i >= len(there) {
				dev = "cpu"
			}
			if p := where[o]; p.Device != dev || (len(p.Reasons) > 0) != (dev == "cpu") {
				t.Errorf("%v on the %q (%v), want %s", o, p.Device, p.Reasons, dev)
			}
		}
		if c := d.Counts(); c.EngineOps != 2*len(there) {
			t.Errorf("%d ops by the engine, want %d", c.EngineOps, 2*len(there))
		}
	}
}

// values are a tensor's elements as text, of any dtype.
func values(d *tensor.Dense) string { return fmt.Sprint(d.Data()) }
