package graph_test

import (
	"bytes"
	"strings"
	"testing"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/gaze-ml/gaze/graph"
	"github.com/gaze-ml/gaze/ops"
)

// Whatever lies in the Machine's memory before a run doesn't matter.
func TestMachineMemoryIsWrittenBeforeItIsRead(t *testing.T) {
	for _, c := range nets {
		t.Run(c.name, func(t *testing.T) {
			n := newNet(t)
			outputs := c.build(n)
			if strings.HasPrefix(c.name, "append") {
				outputs = outputs[len(outputs)-1:]
			}
			m, _ := n.letAll(graph.Keep(outputs...))
			defer m.Close()
			var before []result
			for run := range 2 {
				m.Poison()
				if err := m.RunAll(); err != nil {
					t.Fatal(err)
				}
				for i, o := range outputs {
					v, err := m.Value(o)
					r := resultOf(t, must(t, v, err))
					if run == 0 {
						before = append(before, r)
					} else if !bytes.Equal(r.bytes, before[i].bytes) {
						t.Errorf("output %d differs", i)
					}
				}
			}
		})
	}
}

func TestMachineDoesNotAllocate(t *testing.T) {
	for _, c := range nets {
		if strings.HasPrefix(c.name, "Gorgonia") { // whose own ops allocate
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			n := newNet(t)
			c.build(n)
			m, vs := n.letAll()
			defer m.Close()
			others := n.clones()
			run := func() {
				if err := m.RunAll(); err != nil {
					t.Fatal(err)
				}
			}
			if a := testing.AllocsPerRun(20, run); a != 0 {
				t.Errorf("a run allocates %v times", a)
			}
			if a := testing.AllocsPerRun(20, func() {
				vs, others = others, vs
				for i, in := range n.inputs {
					if err := m.Let(in.node, vs[i]); err != nil {
						t.Fatal(err)
					}
				}
				run()
			}); a != 0 {
				t.Errorf("a run with new values allocates %v times", a)
			}
		})
	}
}

// A chain of n ops needs memory for what is in use at once, not for all results.
func TestMachineReusesMemory(t *testing.T) {
	n := newNet(t)
	x, w := n.random(tensor.Float32, 64, 64), n.random(tensor.Float32, 64)
	for range 20 {
		y, err := ops.RMSNorm(x, w, 1e-5)
		x = must(t, y, err)
	}
	m, _ := n.letAll()
	if want := 2 * 64 * 64 * 4; m.Memory() != want {
		t.Errorf("%d bytes, want %d: two buffers", m.Memory(), want)
	}
	all, _ := n.letAll(graph.Keep(n.g.AllNodes()...))
	if want := 20 * 64 * 64 * 4; all.Memory() != want {
		t.Errorf("%d bytes with everything kept, want %d", all.Memory(), want)
	}
}

// A result that Gorgonia's ops may have passed on is not overwritten while somebody reads it under another name.
func TestMachineKeepsWhatOthersPassOn(t *testing.T) {
	n := newNet(t)
	x, w := n.random(tensor.Float32, 4, 16), n.random(tensor.Float32, 16)
	a, err := ops.RMSNorm(x, w, 1e-5)
	must(t, a, err)
	same, err := gorgonia.ApplyOp(&foreign{"pass on", func(v gorgonia.Value) (gorgonia.Value, error) { return v, nil }}, a)
	must(t, same, err)
	b := n.random(tensor.Float32, 4, 16)
	for range 4 { // results that would like a's memory
		b, err = ops.RMSNorm(b, w, 1e-5)
		must(t, b, err)
	}
	out, err := ops.SiLUMul(b, same)
	must(t, out, err)
	got, _ := n.onMachine([]*gorgonia.Node{out}, 2)
	want, _ := n.onTape([]*gorgonia.Node{out}, 2)
	for run := range want {
		if !bytes.Equal(got[run][0].bytes, want[run][0].bytes) {
			t.Errorf("run %d differs from the TapeMachine's", run)
		}
	}
}

// Only ops whose operands lie elsewhere than in the run before are bound anew, those behind a Reshape too.
func TestMachineBindsOnlyWhatChanged(t *testing.T) {
	n := newNet(t)
	x, w := n.random(tensor.Float32, 4, 16), n.random(tensor.Float32, 16)
	y, err := ops.Reshape(x, 8, 8)
	must(t, y, err)
	y, err = ops.SiLUMul(y, y)
	must(t, y, err)
	z, err := ops.RMSNorm(n.random(tensor.Float32, 4, 16), w, 1e-5)
	must(t, z, err)
	m, vs := n.letAll()
	binds := m.CountBinds()
	for _, c := range []struct {
		what    string
		change  int // the input that gets other memory, or -1
		rebound int
	}{{"the first run", -1, 2}, {"the same again", -1, 0}, {"x, which Reshape renames", 0, 1}, {"w", 1, 1}, {"nothing", -1, 0}} {
		if c.change >= 0 {
			if err := m.Let(n.inputs[c.change].node, vs[c.change].Clone().(*tensor.Dense)); err != nil {
				t.Fatal(err)
			}
		}
		*binds = 0
		if err := m.RunAll(); err != nil {
			t.Fatal(err)
		}
		if *binds != c.rebound {
			t.Errorf("%s: %d calls were bound, want %d", c.what, *binds, c.rebound)
		}
	}
}

// A result whose memory later ones get can't be read, unless it is kept.
func TestMachineRefusesReusedResults(t *testing.T) {
	n := newNet(t)
	x, w := n.random(tensor.Float32, 4, 16), n.random(tensor.Float32, 16)
	a, err := ops.RMSNorm(x, w, 1e-5)
	must(t, a, err)
	flat, err := ops.Reshape(a, 8, 8)
	must(t, flat, err)
	b, err := ops.SiLUMul(flat, flat)
	must(t, b, err)
	for _, keep := range []bool{false, true} {
		var opts []graph.Option
		if keep {
			opts = append(opts, graph.Keep(a))
		}
		m, _ := n.letAll(opts...)
		if err := m.RunAll(); err != nil {
			t.Fatal(err)
		}
		for _, o := range []*gorgonia.Node{a, flat} {
			_, err := m.Value(o)
			if keep && o == a && err != nil {
				t.Error(err)
			}
			if !keep {
				wantError(t, err, ops.ErrArgument, "Keep")
			}
		}
		if _, err := m.Value(x); err != nil {
			t.Errorf("an input: %v", err)
		}
	}
}
