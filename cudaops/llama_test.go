//go:build gpu && linux && amd64 && cgo

package cudaops

import (
	"testing"

	"gorgonia.org/tensor"

	"github.com/gaze-ml/gaze/cudaops/internal/fakecuda"
	"github.com/gaze-ml/gaze/internal/llamatest"
	"github.com/gaze-ml/gaze/ops"
)

// TestLlama: a Llama's captured steps, replayed on the recording driver with the CPU's kernels, give the CPU's logits but for the
// rounding of angles.
func TestLlama(t *testing.T) {
	for _, dt := range []tensor.Dtype{ops.Float16, ops.BFloat16} {
		t.Run(dt.String(), func(t *testing.T) {
			rt := fake(t, fakecuda.Hopper)
			must(t, refBodies())
			res := llamatest.Check(t, rt, dt, 1e-2, 1e-5)
			t.Logf("%+v", res)
			if n := fakecuda.Calls("cuGraphLaunch"); n != res.Steps {
				t.Errorf("%d graphs launched in %d steps", n, res.Steps)
			}
			must(t, rt.Sync())
		})
	}
}

// TestCaptureAllocatesNothing: a replayed step with new ids, lengths and tables leaves nothing to the garbage collector and takes no
// device memory.
func TestCaptureAllocatesNothing(t *testing.T) {
	rt := fake(t, fakecuda.Hopper)
	must(t, refBodies())
	step, close, err := llamatest.Step(rt, ops.BFloat16)
	must(t, err, step(), rt.Sync())
	used, allocs := fakecuda.Used(0), fakecuda.Calls("cuMemAlloc")
	must(t, fakecuda.Idle())
	if n := testing.AllocsPerRun(50, func() { must(t, step()) }); n != 0 {
		t.Errorf("%v allocations a step", n)
	}
	must(t, fakecuda.Work())
	if fakecuda.Used(0) != used || fakecuda.Calls("cuMemAlloc") != allocs {
		t.Error("a step took device memory")
	}
	must(t, rt.Sync(), close())
}
