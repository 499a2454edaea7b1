package quant

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/gaze-ml/gaze/internal/attn"
	"github.com/gaze-ml/gaze/internal/simd"
)

// benchEachISA runs f under every instruction set of this machine.
func benchEachISA(b *testing.B, name string, f func(b *testing.B)) {
	for _, isa := range simd.Available() {
		b.Run(fmt.Sprintf("%s/isa=%v", name, isa), func(b *testing.B) {
			defer simd.Use(isa)()
			f(b)
		})
	}
}

// layer is a linear layer of random weights.
func layer(r *rand.Rand, d attn.DType, out, in int) *Weights {
	w := &Weights{DType: d, Stride: in / d.BlockLen() * d.Size(), In: in}
	w.Data = make([]byte, out*w.Stride)
	fill(r, d, w.Data)
	return w
}

// BenchmarkMatVec multiplies one token with one layer on one thread, from cache and from memory.
func BenchmarkMatVec(b *testing.B) {
	for _, d := range allTypes {
		b.Run(fmt.Sprintf("dtype=%v", d), func(b *testing.B) {
			for _, s := range []struct{ rows, in int }{{576, 768}, {49152, 768}} {
				b.Run(fmt.Sprintf("rows=%d", s.rows), func(b *testing.B) {
					r := rand.New(rand.NewPCG(seed, 0))
					w, x := layer(r, d, s.rows, s.in), activations(r, 1, s.in, s.in)
					y, scratch := make([]float32, s.rows), make([]float32, ScratchLen(s.in))
					benchEachISA(b, fmt.Sprintf("in=%d", s.in), func(b *testing.B) {
						for b.Loop() {
							MatMul(y, s.rows, x, s.in, 1, w, 0, s.rows, scratch)
						}
						perNs := float64(b.N) / float64(b.Elapsed().Nanoseconds())
						b.ReportMetric(perNs*float64(len(w.Data)), "GB/s")
						b.ReportMetric(perNs*float64(2*s.rows*s.in), "GFLOP/s")
					})
				})
			}
		})
	}
}

// BenchmarkSmolLM2 runs the linear layers of SmolLM2-135M: 30 times Q, K, V, O, gate, up and down, and the head (Q8_0) for the last
// token. Each thread takes an equal share of the rows of each and waits for the others.
func BenchmarkSmolLM2(b *testing.B) {
	const layers, hidden, kv, mlp, vocab = 30, 576, 192, 1536, 49152
	for _, d := range []attn.DType{attn.Q4_1, attn.Q4_0, attn.Q5_1, attn.Q8_0, attn.BF16} {
		b.Run(fmt.Sprintf("dtype=%v", d), func(b *testing.B) {
			r := rand.New(rand.NewPCG(seed, 0))
			var model []*Weights
			for range layers {
				for _, s := range [][2]int{{hidden, hidden}, {kv, hidden}, {kv, hidden}, {hidden, hidden}, {mlp, hidden}, {mlp, hidden}, {hidden, mlp}} {
					model = append(model, layer(r, d, s[0], s[1]))
				}
			}
			head := layer(r, attn.Q8_0, vocab, hidden)
			for _, tokens := range []int{1, 2, 3, 4, 8, 512} {
				x, y := activations(r, tokens, mlp, mlp), make([]float32, max(tokens*mlp, vocab))
				for _, threads := range []int{1, 2} {
					benchEachISA(b, fmt.Sprintf("tokens=%d/threads=%d", tokens, threads), func(b *testing.B) {
						together(threads, func(i int, wait func()) {
							scratch := make([]float32, ScratchLen(mlp))
							share := func(w *Weights, x []float32, tokens int) {
								n := len(w.Data) / w.Stride
								MatMul(y, n, x, mlp, tokens, w, n*i/threads, n*(i+1)/threads, scratch)
								wait()
							}
							for range b.N {
								for _, w := range model {
									share(w, x, tokens)
								}
								share(head, x[(tokens-1)*mlp:], 1)
							}
						})
						b.ReportMetric(float64(tokens)*float64(b.N)/b.Elapsed().Seconds(), "tokens/s")
					})
				}
			}
		})
	}
}

// together runs f on a number of goroutines; wait, in f, returns when all have called it.
func together(threads int, f func(i int, wait func())) {
	var arrived atomic.Int64
	var all sync.WaitGroup
	for i := range threads {
		all.Go(func() {
			var turn int64
			f(i, func() {
				turn += int64(threads)
				for arrived.Add(1); arrived.Load() < turn; {
				}
			})
		})
	}
	all.Wait()
}
