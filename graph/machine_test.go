package graph_test

import (
	"bytes"
	"testing"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/gaze-ml/gaze/graph"
)

// onMachine runs the net so many times on a Machine and gives the outputs after each run and the inputs after the last.
func (n *net) onMachine(outputs []*gorgonia.Node, runs int, opts ...graph.Option) (after [][]result, inputs []*tensor.Dense) {
	n.t.Helper()
	m, err := graph.NewMachine(n.g, append(opts, graph.Keep(outputs...))...)
	must(n.t, m, err)
	defer m.Close()
	inputs = n.clones()
	for i, in := range n.inputs {
		if err := m.Let(in.node, inputs[i]); err != nil {
			n.t.Fatal(err)
		}
	}
	for range runs {
		if err := m.RunAll(); err != nil {
			n.t.Fatal(err)
		}
		var rs []result
		for _, o := range outputs {
			v, err := m.Value(o)
			rs = append(rs, resultOf(n.t, must(n.t, v, err)))
		}
		after = append(after, rs)
	}
	return after, inputs
}

// onTape does the same on Gorgonia's TapeMachine.
func (n *net) onTape(outputs []*gorgonia.Node, runs int) (after [][]result, inputs []*tensor.Dense) {
	n.t.Helper()
	inputs = n.clones()
	for i, in := range n.inputs {
		if err := gorgonia.Let(in.node, inputs[i]); err != nil {
			n.t.Fatal(err)
		}
	}
	m := gorgonia.NewTapeMachine(n.g)
	defer m.Close()
	for range runs {
		if err := m.RunAll(); err != nil {
			n.t.Fatal(err)
		}
		m.Reset()
		var rs []result
		for _, o := range outputs {
			rs = append(rs, resultOf(n.t, o.Value()))
		}
		after = append(after, rs)
	}
	return after, inputs
}

func TestMachineEqualsTapeMachine(t *testing.T) {
	for _, c := range nets {
		t.Run(c.name, func(t *testing.T) {
			n := newNet(t)
			outputs := c.build(n)
			got, gotIn := n.onMachine(outputs, 2)
			want, wantIn := n.onTape(outputs, 2)
			for run := range want {
				for i := range outputs {
					g, w := got[run][i], want[run][i]
					if g.dtype != w.dtype || g.shape != w.shape || !bytes.Equal(g.bytes, w.bytes) {
						t.Errorf("run %d, output %d: %v%s and %v%s under the TapeMachine, bytes equal: %v", run, i, g.dtype, g.shape, w.dtype, w.shape, bytes.Equal(g.bytes, w.bytes))
					}
					if allZero(g.bytes) {
						t.Errorf("run %d, output %d: zeros say nothing", run, i)
					}
				}
			}
			for i := range gotIn {
				if !bytes.Equal(raw(gotIn[i]), raw(wantIn[i])) {
					t.Errorf("input %d differs afterwards", i)
				}
			}
		})
	}
}

func allZero(b []byte) bool {
	for _, x := range b {
		if x != 0 {
			return false
		}
	}
	return true
}
