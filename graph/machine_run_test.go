package graph_test

import (
	"bytes"
	"strings"
	"sync"
	"testing"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/gaze-ml/gaze/graph"
	"github.com/gaze-ml/gaze/ops"
)

// letAll makes a Machine with clones of the net's values.
func (n *net) letAll(opts ...graph.Option) (*graph.Machine, []*tensor.Dense) {
	n.t.Helper()
	m, err := graph.NewMachine(n.g, opts...)
	must(n.t, m, err)
	vs := n.clones()
	for i, in := range n.inputs {
		if err := m.Let(in.node, vs[i]); err != nil {
			n.t.Fatal(err)
		}
	}
	return m, vs
}

// The second run sees new values, in place or by Let, without Reset; a host copy of the first run's result stays.
func TestMachineRunsAgain(t *testing.T) {
	n := newNet(t)
	x, w := n.random(tensor.Float32, 3, 16), n.random(tensor.Float32, 16)
	y, err := ops.RMSNorm(x, w, 1e-5)
	must(t, y, err)
	m, vs := n.letAll()
	run := func() (copied *tensor.Dense) {
		t.Helper()
		if err := m.RunAll(); err != nil {
			t.Fatal(err)
		}
		d, err := m.Host(y)
		return must(t, d, err)
	}
	first := run()
	before := bytes.Clone(raw(first))
	for i := range vs[1].Data().([]float32) {
		vs[1].Data().([]float32)[i] *= 2
	}
	second := run()
	if !bytes.Equal(raw(first), before) {
		t.Error("the first run's copy was overwritten")
	}
	for i, v := range second.Data().([]float32) {
		if v != 2*first.Data().([]float32)[i] {
			t.Fatalf("element %d is %v after its weight was doubled in place, %v before", i, v, first.Data().([]float32)[i])
		}
	}
	if err := m.Let(w, n.inputs[1].value); err != nil {
		t.Fatal(err)
	}
	if third := run(); !bytes.Equal(raw(third), before) {
		t.Error("a value given by Let again didn't count")
	}
	m.Reset()
	if fourth := run(); !bytes.Equal(raw(fourth), before) {
		t.Error("Reset changed a result")
	}
}

// Let wins over the node's own value, which is the value otherwise, also when it is bound after NewMachine. The Machine binds
// nothing itself.
func TestMachineReadsBoundValues(t *testing.T) {
	n := newNet(t)
	x, w := n.random(tensor.Float32, 3, 16), n.random(tensor.Float32, 16)
	y, err := ops.RMSNorm(x, w, 1e-5)
	must(t, y, err)
	m, err := graph.NewMachine(n.g)
	must(t, m, err)
	vs := n.clones()
	for i, in := range n.inputs {
		if err := gorgonia.Let(in.node, vs[i]); err != nil {
			t.Fatal(err)
		}
	}
	if err := m.RunAll(); err != nil {
		t.Fatal(err)
	}
	own, err := m.Host(y)
	must(t, own, err)
	zeros := tensor.New(tensor.Of(tensor.Float32), tensor.WithShape(16))
	if err := m.Let(w, zeros); err != nil {
		t.Fatal(err)
	}
	if err := m.RunAll(); err != nil {
		t.Fatal(err)
	}
	let, err := m.Host(y)
	must(t, let, err)
	for i, v := range let.Data().([]float32) {
		if v != 0 || own.Data().([]float32)[i] == 0 {
			t.Fatalf("element %d is %v with a weight of 0 by Let, %v with the node's own", i, v, own.Data().([]float32)[i])
		}
	}
	if x.Value() != gorgonia.Value(vs[0]) || w.Value() != gorgonia.Value(vs[1]) || y.Value() != nil {
		t.Error("the Machine bound a value to a node")
	}
}

// A header that got other memory after Let is followed there.
func TestMachineFollowsHeaders(t *testing.T) {
	n := newNet(t)
	x, w := n.random(tensor.Float32, 3, 16), n.random(tensor.Float32, 16)
	y, err := ops.RMSNorm(x, w, 1e-5)
	must(t, y, err)
	m, vs := n.letAll()
	run := func() []float32 {
		t.Helper()
		if err := m.RunAll(); err != nil {
			t.Fatal(err)
		}
		d, err := m.Host(y)
		return must(t, d, err).Data().([]float32)
	}
	first := run()
	doubled := append([]float32(nil), vs[1].Data().([]float32)...)
	for i := range doubled {
		doubled[i] *= 2
	}
	tensor.WithBacking(doubled)(vs[1])
	for i, v := range run() {
		if v != 2*first[i] {
			t.Fatalf("element %d is %v, want %v", i, v, 2*first[i])
		}
	}
}

// Views give what their copies give, and a header that was changed after Let is seen as it is now.
func TestMachineTakesViews(t *testing.T) {
	n := newNet(t)
	x, w := n.node(tensor.Float32, 3, 8), n.random(tensor.Float32, 8)
	y, err := ops.RMSNorm(x, w, 1e-5)
	must(t, y, err)
	flat, err := ops.Reshape(x, 24)
	must(t, flat, err)
	wide := make([]float32, 3*20)
	for i := range wide {
		wide[i] = float32(i*i%17) - 5
	}
	base := tensor.New(tensor.WithShape(3, 20), tensor.WithBacking(wide))
	v, err := base.Slice(nil, tensor.S(4, 12))
	view := must(t, v, err).(*tensor.Dense)
	run := func(x0 *tensor.Dense, opts ...graph.Option) ([]byte, error) {
		m, err := graph.NewMachine(n.g, opts...)
		must(t, m, err)
		if err := m.Let(x, x0); err != nil {
			return nil, err
		}
		if err := m.Let(w, n.inputs[0].value); err != nil {
			return nil, err
		}
		if err := m.RunAll(); err != nil {
			return nil, err
		}
		d, err := m.Host(y)
		if err != nil {
			return nil, err
		}
		in, err := m.Host(x)
		if err != nil {
			return nil, err
		}
		if !bytes.Equal(raw(in), raw(view.Materialize().(*tensor.Dense))) {
			t.Error("the host's copy of a view isn't the view")
		}
		return raw(d), nil
	}
	got, err := run(view, graph.Outputs(y))
	must(t, got, err)
	want, err := run(view.Materialize().(*tensor.Dense), graph.Outputs(y))
	if must(t, want, err); !bytes.Equal(got, want) {
		t.Error("a view's result is not its copy's")
	}
	if _, err := run(view); err == nil || !strings.Contains(err.Error(), "contiguous") {
		t.Errorf("reshape of a view: %v, want an error", err)
	}
}

// Dtypes that only Gorgonia's own ops take, and scalars, can be read too.
func TestMachineHostsOtherDtypes(t *testing.T) {
	n := newNet(t)
	x := n.node(tensor.Float64, 2, 3)
	n.inputs = append(n.inputs, input{x, tensor.New(tensor.WithShape(2, 3), tensor.WithBacking([]float64{1, 2, 3, 4, 5, 6}))})
	double, err := gorgonia.Add(x, x)
	must(t, double, err)
	sum, err := gorgonia.Sum(double)
	must(t, sum, err)
	m, _ := n.letAll(graph.Keep(double))
	if err := m.RunAll(); err != nil {
		t.Fatal(err)
	}
	d, err := m.Host(double)
	if got := must(t, d, err).Data().([]float64); got[5] != 12 || d == must1(m.Value(double)) {
		t.Errorf("%v, want doubles in memory of their own", got)
	}
	d, err = m.Host(sum)
	if got := must(t, d, err).Data(); got != 42.0 || !d.IsScalar() {
		t.Errorf("%v, want the scalar 42", got)
	}
}

func must1[T any](x T, err error) T {
	if err != nil {
		panic(err)
	}
	return x
}

func TestMachineOutputs(t *testing.T) {
	n := newNet(t)
	x, w := n.random(tensor.Float32, 3, 16), n.random(tensor.Float32, 16)
	a, err := ops.RMSNorm(x, w, 1e-5)
	must(t, a, err)
	unbound := n.node(tensor.Float32, 3, 16)
	b, err := ops.SiLUMul(a, unbound)
	must(t, b, err)
	m, _ := n.letAll(graph.Outputs(a))
	if err := m.RunAll(); err != nil {
		t.Errorf("only a was asked for: %v", err)
	}
	if _, err := m.Value(a); err != nil {
		t.Error(err)
	}
	if _, err := m.Value(b); err == nil {
		t.Error("b has a value, although it didn't run")
	}
	all, _ := n.letAll()
	if err := all.RunAll(); err == nil || !strings.Contains(err.Error(), unbound.Name()) {
		t.Errorf("%v, want an error about %q", err, unbound.Name())
	}
}

// An attention node is readable although its LSE takes it: the LSE is only a second name.
func TestMachineKeepsWhatOnlyProjectionsTake(t *testing.T) {
	n := newNet(t)
	nodes := nets[0].build(n)
	m, _ := n.letAll()
	if err := m.RunAll(); err != nil {
		t.Fatal(err)
	}
	for _, o := range nodes {
		if _, err := m.Host(o); err != nil {
			t.Error(err)
		}
	}
}

// One graph under many Machines at once, made and run by goroutines, and graphs of their own beside it.
func TestMachinesAtOnce(t *testing.T) {
	shared, reference := newNet(t), newNet(t)
	nodes := nets[0].build(shared)
	shared.node(tensor.Float32, 3) // Gorgonia indexes a node without edges when somebody first asks for it
	for _, in := range shared.inputs {
		if err := gorgonia.Let(in.node, in.value); err != nil {
			t.Fatal(err)
		}
	}
	want, _ := reference.onMachine(nets[0].build(reference), 1)
	runs := 100
	if testing.Short() {
		runs = 10
	}
	var wg sync.WaitGroup
	for i := range 64 {
		wg.Go(func() {
			n, nodes := shared, nodes
			if i%2 == 1 {
				n = newNet(t)
				nodes = nets[0].build(n)
			}
			m, err := graph.NewMachine(n.g)
			if err != nil {
				t.Error(err)
				return
			}
			defer m.Close()
			if i%2 == 1 {
				for j, v := range n.clones() {
					if err := m.Let(n.inputs[j].node, v); err != nil {
						t.Error(err)
						return
					}
				}
			}
			for range runs {
				if err := m.RunAll(); err != nil {
					t.Error(err)
					return
				}
				for j, o := range nodes {
					v, err := m.Host(o)
					if err != nil || !bytes.Equal(raw(v), want[0][j].bytes) {
						t.Errorf("output %d differs (%v)", j, err)
						return
					}
				}
			}
		})
	}
	wg.Wait()
}
