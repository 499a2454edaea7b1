package simd

import (
	"fmt"
	"testing"
)

// bench runs f for every instruction set and reports the float32 operations per second, flops a call.
func bench(b *testing.B, name string, flops int, f func()) {
	for _, isa := range Available() {
		b.Run(fmt.Sprintf("%s/isa=%v", name, isa), func(b *testing.B) {
			defer Use(isa)()
			for b.Loop() {
				f()
			}
			b.ReportMetric(float64(flops)*float64(b.N)/float64(b.Elapsed().Nanoseconds()), "GFLOP/s")
		})
	}
}

func ones(n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = 1 + float32(i%7)
	}
	return x
}

func BenchmarkVector(b *testing.B) {
	for _, n := range []int{64, 128, 1024} {
		x, y := ones(n), ones(n)
		bench(b, fmt.Sprintf("op=dot/n=%d", n), 2*n, func() { Dot(x, y) })
		bench(b, fmt.Sprintf("op=axpy/n=%d", n), 2*n, func() { Axpy(1e-9, x, y) })
		bench(b, fmt.Sprintf("op=max/n=%d", n), n, func() { Max(x) })
		bench(b, fmt.Sprintf("op=expsum/n=%d", n), n, func() { ExpSumInPlace(x, 1) })
	}
}

// Attention tiles: a group of query rows against a block of keys and values.
func BenchmarkAttentionTile(b *testing.B) {
	for _, s := range []struct{ nq, nk, d int }{{1, 64, 128}, {3, 64, 64}, {4, 64, 128}, {8, 64, 128}, {32, 64, 64}, {64, 64, 128}} {
		q, k, p := ones(s.nq*s.d), ones(s.nk*s.d), make([]float32, s.nq*s.nk)
		name := fmt.Sprintf("nq=%d/nk=%d/d=%d", s.nq, s.nk, s.d)
		bench(b, "op=qk/"+name, 2*s.nq*s.nk*s.d, func() { DotRows(p, s.nk, q, s.d, s.nq, k, s.d, s.nk, s.d) })
		clear(p)
		bench(b, "op=pv/"+name, 2*s.nq*s.nk*s.d, func() { AxpyRows(q, s.d, s.nq, p, s.nk, k, s.d, s.nk, s.d) })
	}
}

// A linear layer's tile: 512 tokens against 32 rows of weights.
func BenchmarkLinearTile(b *testing.B) {
	const tokens, rows = 512, 32
	for _, in := range []int{576, 1536} {
		x, w, y := ones(tokens*in), ones(rows*in), make([]float32, tokens*rows)
		bench(b, fmt.Sprintf("tokens=%d/rows=%d/in=%d", tokens, rows, in), 2*tokens*rows*in, func() {
			DotRows(y, rows, x, in, tokens, w, in, rows, in)
		})
	}
}
