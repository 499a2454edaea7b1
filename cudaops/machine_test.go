//go:build gpu && linux && amd64 && cgo

package cudaops

import (
	"math/rand/v2"
	"testing"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/gaze-ml/gaze/cudaops/internal/fakecuda"
	"github.com/gaze-ml/gaze/graph"
	"github.com/gaze-ml/gaze/ops"
)

// TestGraphOnDevice: a graph of our ops and Gorgonia's own gives the same on the device as on the CPU, by the Machine and by the
// TapeMachine, and its kernels are launched.
func TestGraphOnDevice(t *testing.T) {
	const seed = 12
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, seed))
	rt := fake(t, fakecuda.Hopper)
	must(t, refBodies())
	x0, w0, s0 := host([]int{3, 16}, floats32(r, 48)), host([]int{8, 16}, floats32(r, 128)), host([]int{16}, floats32(r, 16))
	build := func() (g *gorgonia.ExprGraph, in [3]*gorgonia.Node, out *gorgonia.Node) {
		g = gorgonia.NewGraph()
		in[0] = gorgonia.NewMatrix(g, tensor.Float32, gorgonia.WithShape(3, 16), gorgonia.WithName("x"))
		in[1] = gorgonia.NewMatrix(g, tensor.Float32, gorgonia.WithShape(8, 16), gorgonia.WithName("w"))
		in[2] = gorgonia.NewVector(g, tensor.Float32, gorgonia.WithShape(16), gorgonia.WithName("scale"))
		h, err := ops.RMSNorm(in[0], in[2], 1e-5)
		must(t, err)
		y, err := ops.Linear(h, in[1])
		must(t, err)
		sum := gorgonia.Must(gorgonia.Add(y, y))
		out, err = ops.SiLUMul(sum, y)
		must(t, err)
		return
	}
	run := func(d graph.Device) *tensor.Dense {
		g, in, out := build()
		m, err := graph.NewMachine(g, graph.On(d))
		must(t, err)
		defer m.Close()
		must(t, m.Let(in[0], x0), m.Let(in[1], w0), m.Let(in[2], s0), m.RunAll(), m.RunAll())
		h, err := m.Host(out)
		must(t, err)
		return h.Clone().(*tensor.Dense)
	}
	wanted := run(graph.CPU)
	fakecuda.Launches()
	got := run(rt)
	if n := len(fakecuda.Launches()); n != 8 {
		t.Errorf("%d launches in two runs, want 8", n)
	}
	if !got.Eq(wanted) {
		t.Error("the Machine gives something else on the device")
	}

	g, in, out := build()
	m := gorgonia.NewTapeMachine(g, gorgonia.WithEngine(rt.Engine()))
	defer m.Close()
	must(t, gorgonia.Let(in[0], upload(t, rt, x0)), gorgonia.Let(in[1], upload(t, rt, w0)), gorgonia.Let(in[2], upload(t, rt, s0)), m.RunAll())
	same(t, "the TapeMachine's result", rt, out.Value().(*tensor.Dense), wanted)
	if n := len(fakecuda.Launches()); n != 4 {
		t.Errorf("%d launches under the TapeMachine, want 4", n)
	}
}
