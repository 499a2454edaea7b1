package cpu

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/gaze-ml/gaze/internal/attn"
	"github.com/gaze-ml/gaze/internal/quant"
	"github.com/gaze-ml/gaze/internal/simd"
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/gonum"
)

// random gives a packed tensor of values of dt, a few distinct rows repeated: large ones are made fast.
func random(r *rand.Rand, dt attn.DType, shape ...int) attn.Tensor {
	t := fresh(dt, shape...)
	seed := normal(r, 4099)
	for i := 0; i < t.Len(); i += len(seed) {
		store(t.At(i), dt, seed[:min(len(seed), t.Len()-i)])
	}
	return t
}

// tables gives block tables over a pool of exactly as many pages, in random order.
func tables(r *rand.Rand, batch, columns int) attn.Tensor {
	t := fresh(attn.I32, batch, columns)
	for i, p := range r.Perm(batch * columns) {
		slice[int32](t.Ptr, batch*columns)[i] = int32(p)
	}
	return t
}

func repeat(n, v int) attn.Tensor {
	s := make([]int32, n)
	for i := range s {
		s[i] = int32(v)
	}
	return ints(s...)
}

type shape struct{ batch, keys, queries, heads, kvHeads, d, page int }

func (s shape) String() string {
	return fmt.Sprintf("batch=%d/seq=%d/q=%d/heads=%d-%d/d=%d/page=%d", s.batch, s.keys, s.queries, s.heads, s.kvHeads, s.d, s.page)
}

func (s shape) decode(r *rand.Rand, q, kv attn.DType) *attn.DecodeCall {
	c := attn.NewDecodeCall()
	columns := (s.keys + s.page - 1) / s.page
	c.Query = random(r, q, s.batch*s.queries, s.heads, s.d)
	c.Key, c.Value = random(r, kv, s.batch*columns, s.kvHeads, s.page, s.d), random(r, kv, s.batch*columns, s.kvHeads, s.page, s.d)
	c.BlockTables, c.SeqLens = tables(r, s.batch, columns), repeat(s.batch, s.keys)
	c.BMM1Scale, c.QLenPerReq = 1/math.Sqrt(float64(s.d)), s.queries
	if err := c.Infer(); err != nil {
		panic(err)
	}
	allocate(&c.Out)
	return &c
}

func (s shape) prefill(r *rand.Rand, dt attn.DType) *attn.PrefillCall {
	c := attn.PrefillCall{Scale: 1 / math.Sqrt(float64(s.d)), Causal: true, MaxQLen: s.queries, MaxKVLen: s.keys}
	columns := (s.keys + s.page - 1) / s.page
	c.Query = random(r, dt, s.batch*s.queries, s.heads, s.d)
	c.Key, c.Value = random(r, dt, s.batch*columns, s.kvHeads, s.page, s.d), random(r, dt, s.batch*columns, s.kvHeads, s.page, s.d)
	c.BlockTables, c.QLens, c.KVLens = tables(r, s.batch, columns), repeat(s.batch, s.queries), repeat(s.batch, s.keys)
	if err := c.Infer(); err != nil {
		panic(err)
	}
	allocate(&c.Out)
	return &c
}

func run1(b *testing.B, be *Backend, c attn.Call) {
	b.Helper()
	if err := c.Run(be); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkDecode reads the cache once a call: GB/s counts its bytes.
func BenchmarkDecode(b *testing.B) {
	r := rand.New(rand.NewPCG(5, 6))
	for _, c := range []struct {
		shape
		q, kv attn.DType
	}{
		{shape{64, 4096, 1, 8, 2, 128, 16}, attn.BF16, attn.BF16},
		{shape{64, 4096, 1, 8, 2, 128, 16}, attn.BF16, attn.E4M3},
		{shape{64, 4096, 1, 8, 2, 128, 16}, attn.F32, attn.F32},
		{shape{1, 4096, 1, 8, 2, 128, 16}, attn.F16, attn.F16},
		{shape{4, 4096, 4, 32, 4, 128, 32}, attn.BF16, attn.BF16},
		{shape{1, 256, 1, 9, 3, 64, 16}, attn.F16, attn.F16},
	} {
		for _, threads := range []int{1, 2} {
			b.Run(fmt.Sprintf("q=%v/kv=%v/%v/threads=%d", c.q, c.kv, c.shape, threads), func(b *testing.B) {
				call, be := c.decode(r, c.q, c.kv), backend(b, threads)
				run1(b, be, call)
				for b.Loop() {
					run1(b, be, call)
				}
				bytes := 2 * c.batch * c.keys * c.kvHeads * c.d * c.kv.Size()
				b.ReportMetric(float64(bytes)*float64(b.N)/float64(b.Elapsed().Nanoseconds()), "GB/s")
			})
		}
	}
}

// BenchmarkReadBandwidth is what the machine reads at best, for comparison: every element of 512 MB goes into a sum.
func BenchmarkReadBandwidth(b *testing.B) {
	for _, threads := range []int{1, 2} {
		b.Run(fmt.Sprintf("threads=%d", threads), func(b *testing.B) {
			p := newPool(threads)
			defer p.close()
			sum := &sumTask{x: filled(128<<20, 1), items: 512}
			var s scratch
			for b.Loop() {
				if err := p.do("sum", sum, sum.items, &s); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(4*len(sum.x))*float64(b.N)/float64(b.Elapsed().Nanoseconds()), "GB/s")
		})
	}
}

type sumTask struct {
	x     []float32
	items int
}

func (t *sumTask) run(_ *scratch, item int) {
	from, to := share(len(t.x), t.items, item)
	if simd.Max(t.x[from:to]) != 1 {
		panic("wrong maximum")
	}
}

// BenchmarkPrefill counts 2·Hq·D multiply-adds for each visible pair of query and key.
func BenchmarkPrefill(b *testing.B) {
	r := rand.New(rand.NewPCG(7, 8))
	for _, dt := range []attn.DType{attn.F32, attn.BF16} {
		for _, s := range []shape{{1, 2048, 2048, 8, 2, 128, 16}, {1, 512, 512, 9, 3, 64, 16}, {1, 2048, 2048, 8, 8, 64, 16}} {
			for _, threads := range []int{1, 2} {
				b.Run(fmt.Sprintf("dtype=%v/%v/threads=%d", dt, s, threads), func(b *testing.B) {
					call, be := s.prefill(r, dt), backend(b, threads)
					run1(b, be, call)
					for b.Loop() {
						run1(b, be, call)
					}
					flops := 2 * s.heads * s.d * s.batch * s.queries * (2*s.keys - s.queries)
					b.ReportMetric(float64(flops)*float64(b.N)/float64(b.Elapsed().Nanoseconds()), "GFLOP/s")
				})
			}
		}
	}
}

// BenchmarkGonumSgemm is the rate that prefill is held against.
func BenchmarkGonumSgemm(b *testing.B) {
	const n = 1024
	r := rand.New(rand.NewPCG(9, 10))
	x, y, z := normal(r, n*n), normal(r, n*n), make([]float32, n*n)
	for b.Loop() {
		gonum.Implementation{}.Sgemm(blas.NoTrans, blas.NoTrans, n, n, n, 1, x, n, y, n, 0, z, n)
	}
	b.ReportMetric(2*n*n*n*float64(b.N)/float64(b.Elapsed().Nanoseconds()), "GFLOP/s")
}

// BenchmarkLinear runs the matrices of SmolLM2-135M: attention output, MLP up, MLP down, vocabulary.
func BenchmarkLinear(b *testing.B) {
	r := rand.New(rand.NewPCG(11, 12))
	for _, dt := range []attn.DType{attn.Q4_0, attn.Q4_1, attn.Q5_1, attn.Q8_0, attn.Q6_K, attn.F16} {
		for _, m := range [][2]int{{576, 576}, {576, 1536}, {1536, 576}, {576, 49152}} {
			in, out := m[0], m[1]
			if in%dt.BlockLen() != 0 {
				in = 512
			}
			for _, tokens := range []int{1, 64} {
				for _, threads := range []int{1, 2} {
					b.Run(fmt.Sprintf("dtype=%v/in=%d/out=%d/rows=%d/threads=%d", dt, in, out, tokens, threads), func(b *testing.B) {
						w := fresh(dt, out, in/dt.BlockLen())
						quant.Quantize(dt, slice[byte](w.Ptr, w.Bytes()), normal(r, out*in))
						call, be := &attn.LinearCall{X: random(r, attn.F32, tokens, in), Weight: w}, backend(b, threads)
						if err := call.Infer(); err != nil {
							b.Fatal(err)
						}
						allocate(&call.Out)
						run1(b, be, call)
						for b.Loop() {
							run1(b, be, call)
						}
						b.ReportMetric(float64(2*tokens*in*out)*float64(b.N)/float64(b.Elapsed().Nanoseconds()), "GFLOP/s")
					})
				}
			}
		}
	}
}

// BenchmarkLayer runs the small ops of SmolLM2-135M's decode step (1 row) and of a prompt.
func BenchmarkLayer(b *testing.B) {
	r := rand.New(rand.NewPCG(13, 14))
	for _, tokens := range []int{1, 256} {
		x, wide, heads := random(r, attn.F32, tokens, 576), random(r, attn.F32, tokens, 1536), random(r, attn.F32, tokens, 9, 64)
		for _, call := range []attn.Call{
			&attn.RMSNormCall{X: x, Residual: x, Weight: random(r, attn.F32, 576), Eps: 1e-5},
			&attn.RoPECall{X: heads, Positions: repeat(tokens, 777), RoPEConfig: attn.RoPEConfig{Base: 1e5, Pairing: attn.Adjacent}},
			&attn.SiLUMulCall{Gate: wide, Up: wide},
		} {
			if err := call.Infer(); err != nil {
				b.Fatal(err)
			}
			for _, o := range outputsOf(call) {
				allocate(o)
			}
			b.Run(fmt.Sprintf("op=%s/rows=%d", call.Op(), tokens), func(b *testing.B) {
				be := backend(b, 1)
				for b.Loop() {
					run1(b, be, call)
				}
			})
		}
	}
}
