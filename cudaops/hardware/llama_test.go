//go:build gpu && linux && amd64 && cgo

package hardware

import (
	"testing"

	"gorgonia.org/tensor"

	"github.com/gaze-ml/gaze/cudaops"
	"github.com/gaze-ml/gaze/cudaops/internal/driver"
	"github.com/gaze-ml/gaze/internal/llamatest"
	"github.com/gaze-ml/gaze/ops"
)

// TestLlama: a Llama whose steps are replayed CUDA graphs gives the CPU's logits but for the rounding of each dtype, with cuBLASLt and
// with our own Linear, and the device chooses the tokens.
func TestLlama(t *testing.T) {
	for _, c := range []struct {
		name          string
		dt            tensor.Dtype
		opts          []cudaops.Option
		largest, nmse float64
	}{
		{"float16", ops.Float16, nil, 2e-2, 2e-5},
		{"bfloat16", ops.BFloat16, nil, 0.12, 1e-3},
		{"bfloat16, own Linear", ops.BFloat16, []cudaops.Option{cudaops.WithoutCuBLAS()}, 0.12, 1e-3},
	} {
		t.Run(c.name, func(t *testing.T) {
			rt := open(t, 0, c.opts...)
			t.Logf("%+v", llamatest.Check(t, rt, c.dt, c.largest, c.nmse))
		})
	}
}

// TestCaptureAllocatesNothing: nor does a step take device memory.
func TestCaptureAllocatesNothing(t *testing.T) {
	rt := open(t, 0)
	step, close, err := llamatest.Step(rt, ops.BFloat16)
	must(t, err)
	for range 10 { // kernels are loaded, staging is full
		must(t, step())
	}
	must(t, rt.Sync())
	ctx, err := driver.Open(0)
	must(t, err)
	before, _, err := ctx.MemInfo()
	must(t, err)
	if n := testing.AllocsPerRun(200, func() { must(t, step()) }); n != 0 {
		t.Errorf("%v allocations a step", n)
	}
	must(t, rt.Sync())
	after, _, err := ctx.MemInfo()
	must(t, err, ctx.Close(), close())
	if after != before {
		t.Errorf("%d bytes of the device are free, %d were", after, before)
	}
}
