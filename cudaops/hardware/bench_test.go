//go:build gpu && linux && amd64 && cgo

package hardware

import (
	"maps"
	"slices"
	"testing"

	"github.com/gaze-ml/gaze/cudaops"
	"github.com/gaze-ml/gaze/cudaops/internal/cublaslt"
	"github.com/gaze-ml/gaze/cudaops/internal/fakecuda"
	"github.com/gaze-ml/gaze/internal/llamatest"
	"github.com/gaze-ml/gaze/ops"
)

// BenchmarkDo is the time of each op's Do: driver=cuda with the launch, driver=none with a driver that returns at once, which leaves the
// time outside of the driver. The latter needs no GPU.
func BenchmarkDo(b *testing.B) {
	b.Run("driver=cuda", func(b *testing.B) { do(b, open(b, 0)) })
	b.Run("driver=none", func(b *testing.B) {
		must(b, fakecuda.Install(fakecuda.Hopper))
		cublaslt.Use(fakecuda.NoBLAS(), nil)
		rt, err := cudaops.Open(0)
		must(b, err)
		do(b, rt, fakecuda.Idle)
		must(b, fakecuda.Work(), rt.Close())
	})
}

// batch is how many launches are made before the device is waited for, beside the clock: the driver's queue never fills.
const batch = 256

func do(b *testing.B, rt *cudaops.Runtime, prepare ...func() error) {
	calls, close, err := llamatest.Ops(rt, ops.BFloat16)
	must(b, err)
	for _, f := range prepare {
		must(b, f())
	}
	for _, op := range slices.Sorted(maps.Keys(calls)) {
		call := calls[op]
		b.Run("op="+op, func(b *testing.B) {
			b.ReportAllocs()
			for i := range b.N {
				if i%batch == 0 {
					b.StopTimer()
					must(b, rt.Sync())
					b.StartTimer()
				}
				if err := call(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	if prepare != nil {
		must(b, fakecuda.Work())
	}
	must(b, close())
}
