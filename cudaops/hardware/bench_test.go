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

// BenchmarkDo is the time of each op's Do (op=…), and of a decode step by Machine.RunAll, by its calls in a plain loop and by the replay
// of its CUDA graph (step=…): driver=cuda with the launches, driver=none with a driver that returns at once, which leaves the time
// outside of the driver. There a RunAll less its calls is the Machine's own time. driver=none needs no GPU; after driver=cuda it says
// which part of the time is the driver's.
func BenchmarkDo(b *testing.B) {
	cuda := times{}
	b.Run("driver=cuda", func(b *testing.B) {
		if faked {
			b.Skip("the recording driver has taken the driver's place")
		}
		rt := open(b, 0)
		do(b, rt, cuda, nil)
		steps(b, rt, cuda, nil)
	})
	b.Run("driver=none", func(b *testing.B) {
		faked = true
		must(b, fakecuda.Install(fakecuda.Hopper))
		cublaslt.Use(fakecuda.NoBLAS(), nil)
		rt, err := cudaops.Open(0)
		must(b, err)
		do(b, rt, times{}, cuda)
		steps(b, rt, times{}, cuda)
		must(b, rt.Close())
	})
}

// faked is that the recording driver was installed, for good.
var faked bool

// times are nanoseconds by the benchmark's name.
type times map[string]float64

// batch is how many launches are made, about, before the device is waited for, beside the clock: the driver's queue never fills.
const batch = 256

// do times every op's Do into took, and compares with the times of the real driver.
func do(b *testing.B, rt *cudaops.Runtime, took, cuda times) {
	calls, close, err := llamatest.Ops(rt, ops.BFloat16)
	must(b, err)
	resting(b, func() {
		for _, op := range slices.Sorted(maps.Keys(calls)) {
			measure(b, rt, "op="+op, calls[op], 1, took, cuda)
		}
	})
	must(b, close())
}

// steps times the ways to run a decode step.
func steps(b *testing.B, rt *cudaops.Runtime, took, cuda times) {
	r, close, err := llamatest.DecodeRuns(rt, ops.BFloat16)
	must(b, err)
	resting(b, func() {
		measure(b, rt, "step=machine", r.Machine, r.N, took, cuda)
		measure(b, rt, "step=calls", r.Calls, r.N, took, cuda)
		measure(b, rt, "step=replay", r.Replay, r.N, took, cuda)
	})
	must(b, close())
}

// resting is f while the recording driver, if it is that, returns at once from everything that launches.
func resting(b *testing.B, f func()) {
	if faked {
		must(b, fakecuda.Idle())
		defer func() { must(b, fakecuda.Work()) }()
	}
	f()
}

// measure is a benchmark of run, which makes n calls.
func measure(b *testing.B, rt *cudaops.Runtime, name string, run func() error, n int, took, cuda times) {
	b.Run(name, func(b *testing.B) {
		b.ReportAllocs()
		for i := range b.N {
			if i%max(batch/n, 1) == 0 {
				b.StopTimer()
				must(b, rt.Sync())
				b.StartTimer()
			}
			if err := run(); err != nil {
				b.Fatal(err)
			}
		}
		ns := float64(b.Elapsed().Nanoseconds()) / float64(b.N)
		took[name] = ns
		if n > 1 {
			b.ReportMetric(ns/float64(n), "ns/call")
		}
		if all := cuda[name]; all > 0 {
			b.ReportMetric(100*(1-ns/all), "%driver")
		}
	})
}
