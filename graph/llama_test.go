package graph_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/gaze-ml/gaze/graph"
	"github.com/gaze-ml/gaze/ops"
)

// Pages of 4 tokens, so that prompts of these tests cross several page boundaries.
const (
	tinyPage = 4
	tinyMax  = 40
)

var tinies = []struct {
	name string
	cfg  tinyConfig
}{
	{"grouped heads, tied", tinyConfig{layers: 2, hidden: 32, inner: 48, vocab: 40, heads: 6, kvHeads: 2, headDim: 8, pairing: ops.Adjacent, tied: true, weights: tensor.Float32}},
	{"untied, Llama 3's stretching, half-split", tinyConfig{layers: 2, hidden: 32, inner: 48, vocab: 40, heads: 4, kvHeads: 4, headDim: 16, pairing: ops.HalfSplit, weights: tensor.Float32,
		scaling: ops.RoPEScaling{Factor: 8, LowFreqFactor: 1, HighFreqFactor: 4, OriginalContext: 64}}},
	{"factors, biases, some of a head", tinyConfig{layers: 3, hidden: 24, inner: 40, vocab: 30, heads: 3, kvHeads: 1, headDim: 16, pairing: ops.Adjacent, rotary: 8, factors: true, biases: true, weights: tensor.Float32}},
	{"blocks", tinyConfig{layers: 2, hidden: 64, inner: 96, vocab: 40, heads: 8, kvHeads: 2, headDim: 8, pairing: ops.Adjacent, tied: true, weights: ops.Q8_0}},
}

// runner is a model's graphs: a decode step of up to three requests, a prefill of up to two in 16 rows.
type runner struct {
	t       testing.TB
	m       *tiny
	dev     graph.Device
	act     tensor.Dtype
	cache   *graph.KVCache
	decode  *stage
	prefill *stage
}

type stage struct {
	batch   *graph.Batch
	ids     []int32
	machine *graph.Machine
	capture *graph.Capture // runs instead of the machine where there is one
	logits  *gorgonia.Node
}

func newRunner(t testing.TB, m *tiny) *runner {
	return newRunnerOf(t, m, tensor.Float32, tensor.Float32)
}

// newRunnerOf makes graphs with activations and a cache of these dtypes.
func newRunnerOf(t testing.TB, m *tiny, act, kv tensor.Dtype) *runner {
	t.Helper()
	return newRunnerOn(t, graph.CPU, m, act, kv)
}

// newRunnerOn makes them on a device.
func newRunnerOn(t testing.TB, dev graph.Device, m *tiny, act, kv tensor.Dtype) *runner {
	t.Helper()
	cache, err := graph.NewKVCache(dev, graph.KVCacheConfig{Layers: m.layers, KVHeads: m.kvHeads, HeadDim: m.headDim, PageSize: tinyPage, Pages: 32, DType: kv})
	r := &runner{t: t, m: m, dev: dev, act: act, cache: must(t, cache, err)}
	b, err := cache.DecodeBatch(3, tinyMax)
	r.decode = r.stage(must(t, b, err))
	b, err = cache.PrefillBatch(2, 16, tinyMax)
	r.prefill = r.stage(must(t, b, err))
	return r
}

func (r *runner) stage(b *graph.Batch) *stage {
	r.t.Helper()
	s := &stage{batch: b, ids: make([]int32, b.Positions.Shape()[0])}
	g, w := r.build(s)
	var err error
	s.machine, err = graph.NewMachine(g, graph.On(r.dev), graph.Resident(w.Nodes()...))
	must(r.t, s.machine, err)
	return s
}

// build makes a step's graph.
func (r *runner) build(s *stage) (*gorgonia.ExprGraph, graph.LlamaWeights) {
	t := r.t
	t.Helper()
	g := gorgonia.NewGraph()
	cfg, w := r.m.nodes(g)
	cfg.DType = r.act
	kvs, err := r.cache.Nodes(g)
	must(t, kvs, err)
	step, err := s.batch.Nodes(g)
	must(t, step, err)
	ids, err := graph.Input(g, "ids", tensor.New(tensor.WithShape(len(s.ids)), tensor.WithBacking(s.ids)))
	must(t, ids, err)
	s.logits, err = graph.Llama(ids, cfg, w, kvs, step)
	must(t, s.logits, err)
	return g, w
}

// close gives everything back.
func (r *runner) close() {
	r.t.Helper()
	for _, c := range []interface{ Close() error }{r.decode.machine, r.prefill.machine, r.cache} {
		if err := c.Close(); err != nil {
			r.t.Error(err)
		}
	}
}

// turn is a request's part in a step: these tokens follow what its sequence has.
type turn struct {
	seq    *graph.Sequence
	tokens []int32
}

// run gives each request's tokens slots, does one step, and returns the logits after each request's last token.
func (r *runner) run(s *stage, turns ...turn) [][]float32 {
	t := r.t
	t.Helper()
	clear(s.ids)
	var reqs []graph.Request
	row := 0
	for _, u := range turns {
		if err := r.cache.Append(u.seq, len(u.tokens)); err != nil {
			t.Fatal(err)
		}
		copy(s.ids[row:], u.tokens)
		row += len(u.tokens)
		reqs = append(reqs, graph.Request{Seq: u.seq, Tokens: len(u.tokens)})
	}
	if err := s.batch.Set(reqs...); err != nil {
		t.Fatal(err)
	}
	step := s.machine.RunAll
	if s.capture != nil {
		step = s.capture.Run
	}
	if err := step(); err != nil {
		t.Fatal(err)
	}
	d, err := s.machine.Host(s.logits)
	x, err := ops.Float32s(must(t, d, err))
	must(t, x, err)
	var out [][]float32
	for i := range turns {
		out = append(out, x[i*r.m.vocab:][:r.m.vocab])
	}
	return out
}

func (r *runner) sequence() *graph.Sequence {
	s, err := r.cache.NewSequence(0)
	return must(r.t, s, err)
}

func (m *tiny) tokens(r *rand.Rand, n int) []int32 {
	x := make([]int32, n)
	for i := range x {
		x[i] = int32(r.IntN(m.vocab))
	}
	return x
}

// near compares logits with the formula's: float32 rounding through a few layers.
func near(t *testing.T, what string, got []float32, want []float64) {
	t.Helper()
	within(t, what, 2e-5, got, want)
}

// within allows an error relative to the largest logit.
func within(t *testing.T, what string, tolerance float64, got []float32, want []float64) {
	t.Helper()
	worst, scale := 0.0, 1.0
	for i := range want {
		worst, scale = math.Max(worst, math.Abs(float64(got[i])-want[i])), math.Max(scale, math.Abs(want[i]))
	}
	if !(worst <= tolerance*scale) {
		t.Errorf("%s: logits are off by %.2g, the largest is %.2g", what, worst, scale)
	}
}

// A random Llama gives the logits of the formula, in float64, at every position: token by token, and as a prompt, whole and
// in chunks of every size, over page boundaries.
func TestLlamaEqualsFormula(t *testing.T) {
	for _, c := range tinies {
		t.Run(c.name, func(t *testing.T) {
			m := newTiny(c.cfg, 1)
			r := newRunner(t, m)
			tokens := m.tokens(rand.New(rand.NewPCG(2, 2)), 14)
			want := m.logits(tokens)
			seq := r.sequence()
			for i := range tokens {
				near(t, "step by step", r.run(r.decode, turn{seq, tokens[i : i+1]})[0], want[i])
			}
			for chunk := 1; chunk <= len(tokens); chunk++ {
				seq := r.sequence()
				for i := 0; i < len(tokens); i += chunk {
					to := min(i+chunk, len(tokens))
					near(t, "in chunks", r.run(r.prefill, turn{seq, tokens[i:to]})[0], want[to-1])
				}
				if err := r.cache.Free(seq); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// A narrower cache under float32 activations costs the rounding of keys, values, queries and the attention's output, and no more:
// token by token, in chunks, two requests at once. Narrow activations round everywhere.
func TestLlamaNarrow(t *testing.T) {
	m := newTiny(tinies[0].cfg, 7)
	rnd := rand.New(rand.NewPCG(8, 8))
	a, b := m.tokens(rnd, 14), m.tokens(rnd, 9)
	for _, c := range []struct {
		act, kv, half tensor.Dtype
		tolerance     float64
	}{
		{tensor.Float32, ops.Float16, ops.Float16, 2e-5}, {tensor.Float32, ops.BFloat16, ops.BFloat16, 2e-5}, {tensor.Float32, ops.Float8E4M3, ops.Float16, 2e-5},
		{ops.Float16, ops.Float16, ops.Float16, 3e-2}, {ops.BFloat16, ops.BFloat16, ops.BFloat16, 0.15},
	} {
		t.Run(fmt.Sprintf("act=%v/kv=%v", c.act, c.kv), func(t *testing.T) {
			wantA, wantB := m.rounded(a, c.kv, c.half), m.rounded(b, c.kv, c.half)
			r := newRunnerOf(t, m, c.act, c.kv)
			sa, sb := r.sequence(), r.sequence()
			out := r.run(r.prefill, turn{sa, a[:5]}, turn{sb, b[:7]})
			within(t, "a's prompt", c.tolerance, out[0], wantA[4])
			within(t, "b's prompt", c.tolerance, out[1], wantB[6])
			out = r.run(r.decode, turn{sa, a[5:6]}, turn{sb, b[7:8]})
			within(t, "a", c.tolerance, out[0], wantA[5])
			within(t, "b", c.tolerance, out[1], wantB[7])
			out = r.run(r.prefill, turn{sa, a[6:13]})
			within(t, "a's second prompt", c.tolerance, out[0], wantA[12])
		})
	}
}

// Requests of one batch, joining, leaving and forking, don't see each other.
func TestLlamaBatches(t *testing.T) {
	m := newTiny(tinies[0].cfg, 3)
	r := newRunner(t, m)
	rnd := rand.New(rand.NewPCG(4, 4))
	a, b, c := m.tokens(rnd, 16), m.tokens(rnd, 16), m.tokens(rnd, 16)
	copy(c, a[:6]) // c is a fork of a after 6 tokens
	wantA, wantB, wantC := m.logits(a), m.logits(b), m.logits(c)
	sa, sb := r.sequence(), r.sequence()
	out := r.run(r.prefill, turn{sa, a[:6]}, turn{sb, b[:3]})
	near(t, "a's prompt", out[0], wantA[5])
	near(t, "b's prompt", out[1], wantB[2])
	sc, err := r.cache.Fork(sa, 6)
	must(t, sc, err)
	for i := range 4 {
		out = r.run(r.decode, turn{sc, c[6+i : 7+i]}, turn{sb, b[3+i : 4+i]}, turn{sa, a[6+i : 7+i]})
		near(t, "c", out[0], wantC[6+i])
		near(t, "b", out[1], wantB[3+i])
		near(t, "a", out[2], wantA[6+i])
	}
	if err := r.cache.Free(sa); err != nil {
		t.Fatal(err)
	}
	out = r.run(r.prefill, turn{sb, b[7:11]}, turn{sc, c[10:14]})
	near(t, "b's second prompt", out[0], wantB[10])
	near(t, "c's second prompt", out[1], wantC[13])
	if err := r.cache.Truncate(sb, 5); err != nil {
		t.Fatal(err)
	}
	out = r.run(r.decode, turn{sb, b[5:6]})
	near(t, "b, taken back", out[0], wantB[5])
}

// The TapeMachine gives the Machine's logits, bit by bit.
func TestLlamaUnderTapeMachine(t *testing.T) {
	m := newTiny(tinies[0].cfg, 5)
	tokens := m.tokens(rand.New(rand.NewPCG(6, 6)), 9)
	var logits [2][][]float32
	for i := range logits {
		r := newRunner(t, m)
		run := r.run
		if i == 1 {
			run = func(s *stage, turns ...turn) [][]float32 { return r.onTape(s, turns...) }
		}
		seq := r.sequence()
		logits[i] = append(logits[i], run(r.prefill, turn{seq, tokens[:7]})[0])
		logits[i] = append(logits[i], run(r.decode, turn{seq, tokens[7:8]})[0], run(r.decode, turn{seq, tokens[8:9]})[0])
	}
	for step := range logits[0] {
		for j, x := range logits[0][step] {
			if y := logits[1][step][j]; x != y {
				t.Fatalf("step %d, logit %d: %v and %v under the TapeMachine", step, j, x, y)
			}
		}
	}
}

// onTape is run for one request on a TapeMachine of its own.
func (r *runner) onTape(s *stage, turns ...turn) [][]float32 {
	t := r.t
	u := turns[0]
	if err := r.cache.Append(u.seq, len(u.tokens)); err != nil {
		t.Fatal(err)
	}
	clear(s.ids)
	copy(s.ids, u.tokens)
	if err := s.batch.Set(graph.Request{Seq: u.seq, Tokens: len(u.tokens)}); err != nil {
		t.Fatal(err)
	}
	vm := gorgonia.NewTapeMachine(s.logits.Graph())
	defer vm.Close()
	if err := vm.RunAll(); err != nil {
		t.Fatal(err)
	}
	x, err := ops.Float32s(s.logits.Value().(*tensor.Dense))
	return [][]float32{must(t, x, err)[:r.m.vocab]}
}

func TestLlamaRefuses(t *testing.T) {
	m := newTiny(tinies[0].cfg, 1)
	for _, c := range []struct {
		what string
		edit func(cfg *graph.LlamaConfig, w *graph.LlamaWeights, kvs *[]ops.KV[*gorgonia.Node], s *graph.Step)
		kind error
		says []string
	}{
		{"no layers", func(_ *graph.LlamaConfig, w *graph.LlamaWeights, _ *[]ops.KV[*gorgonia.Node], _ *graph.Step) {
			w.Layers = nil
		}, ops.ErrArgument, []string{"layers"}},
		{"too few caches", func(_ *graph.LlamaConfig, _ *graph.LlamaWeights, kvs *[]ops.KV[*gorgonia.Node], _ *graph.Step) {
			*kvs = (*kvs)[:1]
		}, ops.ErrArgument, []string{"kv_cache", "2 layers"}},
		{"no O", func(_ *graph.LlamaConfig, w *graph.LlamaWeights, _ *[]ops.KV[*gorgonia.Node], _ *graph.Step) {
			w.Layers[1].O = nil
		}, ops.ErrArgument, []string{"layer 1", "linear", "weight", "nil"}},
		{"no norm", func(_ *graph.LlamaConfig, w *graph.LlamaWeights, _ *[]ops.KV[*gorgonia.Node], _ *graph.Step) {
			w.Norm = nil
		}, ops.ErrArgument, []string{"rms_norm", "weight"}},
		{"no positions", func(_ *graph.LlamaConfig, _ *graph.LlamaWeights, _ *[]ops.KV[*gorgonia.Node], s *graph.Step) {
			s.Positions = nil
		}, ops.ErrArgument, []string{"layer 0", "positions"}},
		{"too many heads", func(cfg *graph.LlamaConfig, _ *graph.LlamaWeights, _ *[]ops.KV[*gorgonia.Node], _ *graph.Step) {
			cfg.Heads = 8
		}, ops.ErrShape, []string{"layer 0", "reshape"}},
		{"eps 0", func(cfg *graph.LlamaConfig, _ *graph.LlamaWeights, _ *[]ops.KV[*gorgonia.Node], _ *graph.Step) {
			cfg.Eps = 0
		}, ops.ErrArgument, []string{"eps"}},
		{"int32 activations", func(cfg *graph.LlamaConfig, _ *graph.LlamaWeights, _ *[]ops.KV[*gorgonia.Node], _ *graph.Step) {
			cfg.DType = tensor.Int32
		}, ops.ErrDType, []string{"out_dtype"}},
		{"half activations over a float32 cache", func(cfg *graph.LlamaConfig, _ *graph.LlamaWeights, _ *[]ops.KV[*gorgonia.Node], _ *graph.Step) {
			cfg.DType = ops.Float16
		}, ops.ErrDType, []string{"decode", "kv_cache"}},
	} {
		t.Run(c.what, func(t *testing.T) {
			r := newRunner(t, m)
			g := gorgonia.NewGraph()
			cfg, w := m.nodes(g)
			kvs, err := r.cache.Nodes(g)
			must(t, kvs, err)
			step, err := r.decode.batch.Nodes(g)
			must(t, step, err)
			ids, err := graph.Input(g, "ids", tensor.New(tensor.WithShape(3), tensor.WithBacking(make([]int32, 3))))
			must(t, ids, err)
			c.edit(&cfg, &w, &kvs, &step)
			_, err = graph.Llama(ids, cfg, w, kvs, step)
			wantError(t, err, c.kind, c.says...)
		})
	}
}

// Inputs of one name stay apart.
func TestInputNamesAreUnique(t *testing.T) {
	g := gorgonia.NewGraph()
	x := tensor.New(tensor.WithShape(2), tensor.WithBacking([]float32{1, 2}))
	y := tensor.New(tensor.WithShape(2), tensor.WithBacking([]float32{3, 4}))
	seen := map[string]bool{}
	for _, v := range []*tensor.Dense{x, y, x} {
		n, err := graph.Input(g, "kv", v)
		must(t, n, err)
		if n.Value() != gorgonia.Value(v) || seen[n.Name()] || !strings.HasPrefix(n.Name(), "kv") {
			t.Errorf("%q", n.Name())
		}
		seen[n.Name()] = true
	}
	_, err := graph.Input(g, "none", nil)
	wantError(t, err, ops.ErrArgument, "none", "nil")
	_, err = graph.Input(g, "bare", new(tensor.Dense))
	wantError(t, err, ops.ErrArgument, "bare", "without a dtype")
	_, err = graph.Input(nil, "x", x)
	wantError(t, err, ops.ErrArgument, "graph", "nil")
}
