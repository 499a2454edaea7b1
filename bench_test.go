// The benchmarks that say how fast gaze is as a whole; each package has its own for its parts.
package gaze_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/gonum"
	"gorgonia.org/tensor"

	"github.com/gaze-ml/gaze/examples/llama/gguf"
	"github.com/gaze-ml/gaze/examples/llama/model"
	"github.com/gaze-ml/gaze/internal/attn"
	"github.com/gaze-ml/gaze/internal/cpu"
	"github.com/gaze-ml/gaze/internal/quant"
	"github.com/gaze-ml/gaze/internal/simd"
	"github.com/gaze-ml/gaze/ops"
	"github.com/gaze-ml/gaze/ops/opstest"
)

// best is the least time of a few runs: what the machine can do, as far as others leave it alone.
func best(run func()) time.Duration {
	least := time.Duration(1<<63 - 1)
	for range 5 {
		begin := time.Now()
		run()
		least = min(least, time.Since(begin))
	}
	return least
}

// memory is what readBandwidth reads: far more than caches hold.
var memory = sync.OnceValue(func() []float32 {
	x := make([]float32, 128<<20)
	for i := range x {
		x[i] = 1
	}
	return x
})

// readBandwidth is how fast all cores together read memory, in GB/s.
func readBandwidth() float64 {
	x, threads := memory(), runtime.GOMAXPROCS(0)
	d := best(func() {
		var all sync.WaitGroup
		for i := range threads {
			part := x[len(x)*i/threads : len(x)*(i+1)/threads]
			all.Go(func() { _ = simd.Max(part) })
		}
		all.Wait()
	})
	return float64(4*len(x)) / float64(d.Nanoseconds())
}

// sgemm is gonum's rate for a product of float32 matrices, in GFLOP/s.
func sgemm() float64 {
	const n = 1024
	x, y, z := make([]float32, n*n), make([]float32, n*n), make([]float32, n*n)
	for i := range x {
		x[i], y[i] = 1, 2
	}
	d := best(func() {
		gonum.Implementation{}.Sgemm(blas.NoTrans, blas.NoTrans, n, n, n, 1, x, n, y, n, 0, z, n)
	})
	return 2 * n * n * n / float64(d.Nanoseconds())
}

// BenchmarkAttention runs the conformance suite's performance cases. Decode is also held against the bandwidth that the machine reads
// memory with, prefill against the rate of gonum's matrix product, each measured at the same time.
func BenchmarkAttention(b *testing.B) {
	target := opstest.Target{Backend: cpu.Default()}
	for _, c := range opstest.Cases(opstest.Filter{Lists: []opstest.List{opstest.Performance}}) {
		b.Run(c.Name, func(b *testing.B) {
			gflops, gbytes := c.Bench(b, target)
			switch b.StopTimer(); c.Op {
			case "decode":
				b.ReportMetric(100*gbytes/readBandwidth(), "%read")
			case "prefill":
				b.ReportMetric(100*gflops/sgemm(), "%sgemm")
			}
		})
	}
}

// BenchmarkMachineLimits is what the shares are of.
func BenchmarkMachineLimits(b *testing.B) {
	b.Run("limit=read", func(b *testing.B) {
		for b.Loop() {
			b.ReportMetric(readBandwidth(), "GB/s")
		}
	})
	b.Run("limit=sgemm", func(b *testing.B) {
		for b.Loop() {
			b.ReportMetric(sgemm(), "GFLOP/s")
		}
	})
}

// The sizes of SmolLM2-135M.
const (
	layers, hidden, ffn, vocab = 30, 576, 1536, 49152
	heads, kvHeads, headDim    = 9, 3, 64
)

// BenchmarkLinear runs the matrices of SmolLM2-135M in the formats of its file: attention's output, MLP, vocabulary; one token and many.
func BenchmarkLinear(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 1))
	for _, m := range []struct {
		dtype   tensor.Dtype
		in, out int
	}{{ops.Q4_1, hidden, hidden}, {ops.Q4_1, hidden, ffn}, {ops.Q4_1, ffn, hidden}, {ops.Q8_0, hidden, vocab}} {
		d := ops.DTypeOf(m.dtype)
		values := make([]float32, m.in*m.out)
		for i := range values {
			values[i] = r.Float32() - 0.5
		}
		blocks := make([]byte, len(values)/d.BlockLen()*d.Size())
		quant.Quantize(d, blocks, values)
		w := attn.Of(d, m.out, m.in/d.BlockLen())
		weight := ops.Alloc(w)
		at, err := ops.View("bench", "weight", weight)
		if err != nil {
			b.Fatal(err)
		}
		copy(bytesOf(&at), blocks)
		for _, tokens := range []int{1, 8, 256} {
			b.Run(fmt.Sprintf("dtype=%v/in=%d/out=%d/tokens=%d", d, m.in, m.out, tokens), func(b *testing.B) {
				a := ops.LinearArgs{X: ops.Alloc(attn.Of(attn.F32, tokens, m.in)), Weight: weight, Out: ops.Alloc(attn.Of(attn.F32, tokens, m.out))}
				for b.Loop() {
					if err := ops.Project(a); err != nil {
						b.Fatal(err)
					}
				}
				perNs := float64(b.N) / float64(b.Elapsed().Nanoseconds())
				b.ReportMetric(perNs*float64(2*tokens*m.in*m.out), "GFLOP/s")
				b.ReportMetric(perNs*float64(len(blocks)), "GB/s")
			})
		}
	}
}

// BenchmarkLlama times the model of $GAZE_MODEL as `llama -bench` and bench/peer_llama.py do: a prompt of 512 tokens, steps of one token
// after a short prompt, alone and for eight requests at once.
func BenchmarkLlama(b *testing.B) {
	path := os.Getenv("GAZE_MODEL")
	if path == "" {
		b.Skip("set GAZE_MODEL to a GGUF file, or run make bench")
	}
	f, err := gguf.Open(path)
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	h, err := model.ReadHParams(f)
	if err != nil {
		b.Fatal(err)
	}
	m, err := model.Open(f, h, model.Config{Context: 1024, Requests: 8, Tokens: 8 * 144, PageSize: 16, Chunk: 256, KV: tensor.Float32})
	if err != nil {
		b.Fatal(err)
	}
	defer m.Close()
	run := func(phase string, tokens int, once func() (time.Duration, error)) {
		b.Run(phase+"/impl=gaze", func(b *testing.B) {
			if _, err := once(); err != nil { // the graphs are made
				b.Fatal(err)
			}
			var sum time.Duration
			for b.Loop() {
				d, err := once()
				if err != nil {
					b.Fatal(err)
				}
				sum += d
			}
			b.ReportMetric(float64(tokens*b.N)/sum.Seconds(), "tokens/s")
		})
	}
	run("phase=prefill/tokens=512", 512, func() (time.Duration, error) { return m.TimePrefill(b.Context(), 512) })
	run("phase=decode/tokens=128", 128, func() (time.Duration, error) { return m.TimeDecode(b.Context(), 1, 128) })
	run("phase=decode/tokens=128/requests=8", 8*128, func() (time.Duration, error) { return m.TimeDecode(b.Context(), 8, 128) })
}
