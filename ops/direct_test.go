package ops_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/gaze-ml/gaze/internal/quant"
	"github.com/gaze-ml/gaze/ops"
)

type dense = tensor.Dense

func must[T any](t testing.TB, x T, err error) T {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// maker makes tensors of one test.
type maker struct {
	t testing.TB
	r *rand.Rand
}

func newMaker(t testing.TB) *maker { return &maker{t, rand.New(rand.NewPCG(13, 13))} }

func (m *maker) random(dt tensor.Dtype, shape ...int) *dense {
	m.t.Helper()
	x := make([]float32, tensor.Shape(shape).TotalSize())
	for i := range x {
		x[i] = float32(m.r.NormFloat64())
	}
	d, err := ops.NewTensor(dt, shape, x)
	return must(m.t, d, err)
}

func (m *maker) blocks(dt tensor.Dtype, out, in int) *dense {
	d := ops.DTypeOf(dt)
	x := make([]float32, out*in)
	for i := range x {
		x[i] = float32(m.r.NormFloat64())
	}
	w := tensor.New(tensor.Of(dt), tensor.WithShape(out, in/d.BlockLen()))
	quant.Quantize(d, raw(w), x)
	return w
}

func zeros(dt tensor.Dtype, shape ...int) *dense {
	return tensor.New(tensor.Of(dt), tensor.WithShape(shape...))
}

func ints(x ...int32) *dense { return tensor.New(tensor.WithShape(len(x)), tensor.WithBacking(x)) }

func table(width int, x ...int32) *dense {
	return tensor.New(tensor.WithShape(len(x)/width, width), tensor.WithBacking(x))
}

func raw(d *dense) []byte {
	v, err := ops.View("test", "value", d)
	if err != nil {
		panic(err)
	}
	return unsafe.Slice((*byte)(v.Ptr), d.MemSize())
}

// both is one computation as a direct call and as a graph op: run writes outs, build makes the nodes that name them.
type both struct {
	in   []*dense
	outs []*dense
	// run gets clones of in.
	run   func(in, outs []*dense) error
	build func(in []*node) ([]*node, error)
}

// directs has every direct call, each with its graph op.
var directs = map[string]func(m *maker) both{
	"Decode": func(m *maker) both {
		return both{
			in:   []*dense{m.random(bf16, 3, 4, 16), m.random(e4m3, 5, 2, 2, 4, 16), table(2, 3, -1, 0, 1, 4, 2), ints(3, 8, 5), m.random(f32, 1), m.random(f32, 1), m.random(f32, 4)},
			outs: []*dense{zeros(bf16, 3, 4, 16), zeros(f32, 3, 4), zeros(f32, 3, 4)},
			run: func(in, out []*dense) error {
				return ops.Decode(ops.DecodeArgs{Query: in[0], KV: ops.StackedKV(in[1], ops.HND), BlockTables: in[2], SeqLens: in[3], MaxSeqLen: 8, BMM1Scale: in[4], BMM2Scale: in[5], Sinks: in[6],
					Out: out[0], LSE: out[1], LSELog2: out[2]}, ops.WithWindowLeft(3))
			},
			build: func(n []*node) ([]*node, error) {
				out, err := ops.BatchDecode(n[0], ops.StackedKV(n[1], ops.HND), n[2], n[3], 8, ops.WithBMM1ScaleNode(n[4]), ops.WithBMM2ScaleNode(n[5]), ops.WithSinks(n[6]), ops.WithWindowLeft(3))
				if err != nil {
					return nil, err
				}
				lse, err := ops.LSE(out)
				if err != nil {
					return nil, err
				}
				lse2, err := ops.LSE(out, ops.Base2)
				return []*node{out, lse, lse2}, err
			},
		}
	},
	"Decode, nvfp4, variable queries": func(m *maker) both {
		return both{
			in:   []*dense{m.random(e4m3, 4, 4, 32), m.random(e4m3, 5, 4, 2, 32), m.random(e4m3, 5, 4, 2, 32), table(2, 3, -1, 0, 1, 4, 2), ints(3, 8, 5), ints(0, 1, 3, 4)},
			outs: []*dense{zeros(u8, 4, 4, 16), zeros(e4m3, 128, 8)},
			run: func(in, out []*dense) error {
				return ops.Decode(ops.DecodeArgs{Query: in[0], KV: ops.PairKV(in[1], in[2], ops.NHD), BlockTables: in[3], SeqLens: in[4], CumSeqLensQ: in[5], MaxQLen: 2,
					Out: out[0], OutScale: out[1]}, ops.WithOutDType(ops.NVFP4), ops.WithOSFScale(300))
			},
			build: func(n []*node) ([]*node, error) {
				out, err := ops.BatchDecode(n[0], ops.PairKV(n[1], n[2], ops.NHD), n[3], n[4], 0, ops.WithVarLenQueries(2, n[5]), ops.WithOutDType(ops.NVFP4), ops.WithOSFScale(300))
				if err != nil {
					return nil, err
				}
				scale, err := ops.FP4Scale(out)
				return []*node{out, scale}, err
			},
		}
	},
	"Prefill": func(m *maker) both {
		return both{
			in: []*dense{m.random(e4m3, 7, 4, 16), m.random(e4m3, 5, 2, 4, 16), m.random(e4m3, 5, 2, 4, 16), ints(2, 0, 5), ints(3, 8, 5), table(2, 3, -1, 0, 1, 4, 2),
				m.random(f32, 1), m.random(f32, 1), m.random(f32, 1)},
			outs: []*dense{zeros(f16, 7, 4, 16), zeros(f32, 3, 5, 4)},
			run: func(in, out []*dense) error {
				return ops.Prefill(ops.PrefillArgs{Query: in[0], KV: ops.PairKV(in[1], in[2], ops.HND), QLens: in[3], KVLens: in[4], BlockTables: in[5], Scale: 0.25, MaxQLen: 5, MaxKVLen: 8, Causal: true,
					QScale: in[6], KScale: in[7], VScale: in[8], Out: out[0], LSE: out[1]}, ops.WithODataType(f16))
			},
			build: func(n []*node) ([]*node, error) {
				out, err := ops.BatchPrefill(n[0], ops.PairKV(n[1], n[2], ops.HND), 0.25, n[3], n[4], 5, 8, true, ops.WithBlockTables(n[5]), ops.WithScales(n[6], n[7], n[8]), ops.WithODataType(f16))
				if err != nil {
					return nil, err
				}
				lse, err := ops.LSE(out)
				return []*node{out, lse}, err
			},
		}
	},
	"Prefill, ragged": func(m *maker) both {
		return both{
			in:   []*dense{m.random(f32, 7, 4, 16), m.random(f32, 9, 2, 16), m.random(f32, 9, 2, 8), ints(2, 0, 5), ints(3, 1, 5), ints(0, 128, 128)},
			outs: []*dense{zeros(f32, 7, 4, 8), zeros(f32, 3, 5, 4)},
			run: func(in, out []*dense) error {
				return ops.Prefill(ops.PrefillArgs{Query: in[0], KV: ops.RaggedKV(in[1], in[2]), QLens: in[3], KVLens: in[4], OffsetsQ: in[5], Scale: 0.25, MaxQLen: 5, MaxKVLen: 8, Out: out[0], LSELog2: out[1]})
			},
			build: func(n []*node) ([]*node, error) {
				out, err := ops.BatchPrefill(n[0], ops.RaggedKV(n[1], n[2]), 0.25, n[3], n[4], 5, 8, false, ops.WithBatchOffsets(n[5], nil, nil, nil, nil))
				if err != nil {
					return nil, err
				}
				lse, err := ops.LSE(out, ops.Base2)
				return []*node{out, lse}, err
			},
		}
	},
	"Append": func(m *maker) both {
		return both{
			in: []*dense{m.random(e4m3, 5, 2, 2, 4, 16), m.random(f16, 3, 2, 16), m.random(f16, 3, 2, 16), table(2, 3, -1, 0, 1, 4, 2), ints(2, -1, 4), ints(0, 1, 2)},
			run: func(in, _ []*dense) error {
				return ops.Append(ops.AppendArgs{KV: ops.StackedKV(in[0], ops.HND), Key: in[1], Value: in[2], BlockTables: in[3], Positions: in[4], Requests: in[5]}, ops.WithKVScales(2, 3))
			},
			build: func(n []*node) ([]*node, error) {
				_, err := ops.AppendKV(ops.StackedKV(n[0], ops.HND), n[1], n[2], n[3], n[4], n[5], ops.WithKVScales(2, 3))
				return nil, err
			},
		}
	},
	"Append, ranges": func(m *maker) both {
		return both{
			in: []*dense{m.random(f32, 5, 4, 2, 16), m.random(f32, 5, 4, 2, 16), m.random(f32, 3, 2, 16), m.random(f32, 3, 2, 16), table(2, 3, -1, 0, 1, 4, 2), ints(0, 1, 1, 3), ints(2, 0, 3)},
			run: func(in, _ []*dense) error {
				return ops.Append(ops.AppendArgs{KV: ops.PairKV(in[0], in[1], ops.NHD), Key: in[2], Value: in[3], BlockTables: in[4], CumSeqLens: in[5], StartPositions: in[6]})
			},
			build: func(n []*node) ([]*node, error) {
				_, err := ops.AppendKVRanges(ops.PairKV(n[0], n[1], ops.NHD), n[2], n[3], n[4], n[5], n[6])
				return nil, err
			},
		}
	},
	"Append, RoPE": func(m *maker) both {
		how := []ops.Option{ops.WithRoPE(1e4), ops.WithPairing(ops.Adjacent), ops.WithRotaryDim(8)}
		return both{
			in: []*dense{m.random(f16, 5, 2, 4, 16), m.random(f16, 5, 2, 4, 16), m.random(bf16, 3, 2, 16), m.random(bf16, 3, 2, 16), table(2, 3, -1, 0, 1, 4, 2), ints(2, -1, 4), ints(0, 1, 2),
				m.random(f32, 4), m.random(bf16, 3, 5, 16)},
			outs: []*dense{zeros(bf16, 3, 5, 16)},
			run: func(in, out []*dense) error {
				return ops.Append(ops.AppendArgs{KV: ops.PairKV(in[0], in[1], ops.HND), Key: in[2], Value: in[3], BlockTables: in[4], Positions: in[5], Requests: in[6], Factors: in[7],
					Query: in[8], QueryOut: out[0]}, how...)
			},
			build: func(n []*node) ([]*node, error) {
				q, err := rotatedQuery(ops.AppendKV(ops.PairKV(n[0], n[1], ops.HND), n[2], n[3], n[4], n[5], n[6], append(how, ops.WithRoPEFactors(n[7]), ops.WithRotatedQuery(n[8]))...))
				return []*node{q}, err
			},
		}
	},
	"RMSNormalize": func(m *maker) both {
		return both{
			in: []*dense{m.random(f16, 3, 32), m.random(f32, 32)}, outs: []*dense{zeros(f16, 3, 32)},
			run: func(in, out []*dense) error {
				return ops.RMSNormalize(ops.RMSNormArgs{X: in[0], Weight: in[1], Eps: 1e-5, Out: out[0]})
			},
			build: func(n []*node) ([]*node, error) {
				y, err := ops.RMSNorm(n[0], n[1], 1e-5)
				return []*node{y}, err
			},
		}
	},
	"RMSNormalize, residual": func(m *maker) both {
		return both{
			in: []*dense{m.random(f32, 3, 32), m.random(f32, 3, 32), m.random(f32, 32)}, outs: []*dense{zeros(f32, 3, 32), zeros(f32, 3, 32)},
			run: func(in, out []*dense) error {
				return ops.RMSNormalize(ops.RMSNormArgs{X: in[0], Residual: in[1], Weight: in[2], Eps: 1e-5, Out: out[0], Sum: out[1]})
			},
			build: func(n []*node) ([]*node, error) {
				y, sum, err := ops.AddRMSNorm(n[0], n[1], n[2], 1e-5)
				return []*node{y, sum}, err
			},
		}
	},
	"Rotate": func(m *maker) both {
		return both{
			in: []*dense{m.random(bf16, 3, 4, 16), ints(0, 7, -1), m.random(f32, 4)}, outs: []*dense{zeros(bf16, 3, 4, 16)},
			run: func(in, out []*dense) error {
				return ops.Rotate(ops.RoPEArgs{X: in[0], Positions: in[1], Factors: in[2], Base: 1e4, Out: out[0]}, ops.WithPairing(ops.Adjacent), ops.WithRotaryDim(8))
			},
			build: func(n []*node) ([]*node, error) {
				y, err := ops.RoPE(n[0], n[1], 1e4, ops.WithRoPEFactors(n[2]), ops.WithPairing(ops.Adjacent), ops.WithRotaryDim(8))
				return []*node{y}, err
			},
		}
	},
	"Project": func(m *maker) both {
		return both{
			in: []*dense{m.random(f32, 3, 64), m.blocks(ops.Q5_1, 10, 64), m.random(f32, 10)}, outs: []*dense{zeros(f32, 3, 10)},
			run: func(in, out []*dense) error {
				return ops.Project(ops.LinearArgs{X: in[0], Weight: in[1], Bias: in[2], Out: out[0]})
			},
			build: func(n []*node) ([]*node, error) {
				y, err := ops.Linear(n[0], n[1], ops.WithBias(n[2]))
				return []*node{y}, err
			},
		}
	},
	"Gate": func(m *maker) both {
		return both{
			in: []*dense{m.random(f16, 3, 32), m.random(f16, 3, 32)}, outs: []*dense{zeros(f16, 3, 32)},
			run: func(in, out []*dense) error { return ops.Gate(in[0], in[1], out[0]) },
			build: func(n []*node) ([]*node, error) {
				y, err := ops.SiLUMul(n[0], n[1])
				return []*node{y}, err
			},
		}
	},
	"Embed": func(m *maker) both {
		return both{
			in: []*dense{ints(4, 0, 4), m.blocks(ops.Q4_K, 5, 256)}, outs: []*dense{zeros(f16, 3, 256)},
			run: func(in, out []*dense) error { return ops.Embed(in[0], in[1], out[0]) },
			build: func(n []*node) ([]*node, error) {
				y, err := ops.Embedding(n[0], n[1], ops.WithOutDType(f16))
				return []*node{y}, err
			},
		}
	},
	"CastTo": func(m *maker) both {
		return both{
			in: []*dense{m.random(f32, 3, 2, 32)}, outs: []*dense{zeros(e4m3, 3, 2, 32)},
			run: func(in, out []*dense) error { return ops.CastTo(in[0], out[0]) },
			build: func(n []*node) ([]*node, error) {
				y, err := ops.Cast(n[0], e4m3)
				return []*node{y}, err
			},
		}
	},
	"Greedy": func(m *maker) both {
		return both{
			in: []*dense{m.random(f16, 3, 32)}, outs: []*dense{zeros(tensor.Int32, 3)},
			run: func(in, out []*dense) error { return ops.Greedy(in[0], out[0]) },
			build: func(n []*node) ([]*node, error) {
				y, err := ops.Argmax(n[0])
				return []*node{y}, err
			},
		}
	},
	"Probabilities": func(m *maker) both {
		return both{
			in: []*dense{m.random(bf16, 3, 32)}, outs: []*dense{zeros(f32, 3, 32)},
			run: func(in, out []*dense) error { return ops.Probabilities(in[0], out[0], ops.WithTemperature(0.7)) },
			build: func(n []*node) ([]*node, error) {
				y, err := ops.Softmax(n[0], ops.WithTemperature(0.7))
				return []*node{y}, err
			},
		}
	},
	"Largest": func(m *maker) both {
		return both{
			in: []*dense{m.random(f16, 3, 32)}, outs: []*dense{zeros(f32, 3, 5), zeros(tensor.Int32, 3, 5)},
			run: func(in, out []*dense) error { return ops.Largest(in[0], out[0], out[1]) },
			build: func(n []*node) ([]*node, error) {
				values, indices, err := ops.TopK(n[0], 5)
				return []*node{values, indices}, err
			},
		}
	},
	"Merge": func(m *maker) both {
		return both{
			in: []*dense{m.random(f32, 3, 4, 16), m.random(f32, 3, 4), m.random(f32, 3, 4, 16), m.random(f32, 3, 4)}, outs: []*dense{zeros(f32, 3, 4, 16), zeros(f32, 3, 4)},
			run: func(in, out []*dense) error {
				return ops.Merge(ops.MergeArgs{OutA: in[0], LSEA: in[1], OutB: in[2], LSEB: in[3], Out: out[0], LSE: out[1]})
			},
			build: func(n []*node) ([]*node, error) {
				y, lse, err := ops.MergeLSE(n[0], n[1], n[2], n[3])
				return []*node{y, lse}, err
			},
		}
	},
}

func clones(ds []*dense) []*dense {
	out := make([]*dense, len(ds))
	for i, d := range ds {
		out[i] = d.Clone().(*dense)
	}
	return out
}

// A direct call writes the bits that the graph's op gives, what is written in place included.
func TestDirectEqualsGraph(t *testing.T) {
	for name, c := range directs {
		t.Run(name, func(t *testing.T) {
			b := c(newMaker(t))
			in := clones(b.in)
			if err := b.run(in, b.outs); err != nil {
				t.Fatal(err)
			}
			g := gorgonia.NewGraph()
			vals := clones(b.in)
			nodes := make([]*node, len(b.in))
			for i, d := range vals {
				nodes[i] = input(g, i, d.Dtype(), d.Shape()...)
				if err := gorgonia.Let(nodes[i], d); err != nil {
					t.Fatal(err)
				}
			}
			outs, err := b.build(nodes)
			must(t, outs, err)
			vm := gorgonia.NewTapeMachine(g)
			defer vm.Close()
			if err := vm.RunAll(); err != nil {
				t.Fatal(err)
			}
			for i, o := range outs {
				got, want := b.outs[i], o.Value().(*dense)
				if got.Dtype() != want.Dtype() || !slices.Equal(got.Shape(), want.Shape()) || !bytes.Equal(raw(got), raw(want)) {
					t.Errorf("output %d differs: %v%v and %v%v in the graph", i, got.Dtype(), got.Shape(), want.Dtype(), want.Shape())
				}
			}
			changed := false
			for i := range in {
				if !bytes.Equal(raw(in[i]), raw(vals[i])) {
					t.Errorf("operand %d differs afterwards", i)
				}
				changed = changed || !bytes.Equal(raw(in[i]), raw(b.in[i]))
			}
			if changed != strings.HasPrefix(name, "Append") {
				t.Errorf("operands changed: %v", changed)
			}
		})
	}
}

// Every tensor of a direct call, taken away, of another dtype, or of another rank, is an error and no panic, and the outputs are
// not touched.
func TestDirectRefuses(t *testing.T) {
	optional := map[string][]int{"Decode": {4, 5, 6}, "Prefill, ragged": {5}, "Append, RoPE": {7}, "Rotate": {2}, "Project": {2}, "RMSNormalize, residual": {1}}
	for name, c := range directs {
		t.Run(name, func(t *testing.T) {
			b := c(newMaker(t))
			try := func(what string, in, outs []*dense, want ...error) {
				t.Helper()
				before := clones(b.outs)
				err := b.run(in, outs)
				var e *ops.Error
				if !errors.As(err, &e) || e.Got == "" || e.Want == "" || !slices.ContainsFunc(want, func(k error) bool { return errors.Is(err, k) }) {
					t.Errorf("%s: %v, want %v", what, err, want)
				}
				for i := range b.outs {
					if outs[i] == b.outs[i] && !bytes.Equal(raw(before[i]), raw(b.outs[i])) {
						t.Errorf("%s: output %d was written", what, i)
					}
				}
			}
			for i := range b.in {
				with := func(d *dense) []*dense {
					in := clones(b.in)
					in[i] = d
					return in
				}
				if !slices.Contains(optional[name], i) {
					try(fmt.Sprint("operand ", i, " nil"), with(nil), b.outs, ops.ErrArgument)
				}
				try(fmt.Sprint("operand ", i, " masked"), with(masked(b.in[i])), b.outs, ops.ErrArgument)
				try(fmt.Sprint("operand ", i, " float64"), with(zeros(tensor.Float64, b.in[i].Shape()...)), b.outs, ops.ErrDType)
				if b.in[i].Size() > 1 {
					try(fmt.Sprint("operand ", i, " of another rank"), with(zeros(b.in[i].Dtype(), append([]int{2}, b.in[i].Shape()...)...)), b.outs, ops.ErrShape, ops.ErrArgument)
				}
			}
			for i := range b.outs {
				with := func(d *dense) []*dense {
					outs := slices.Clone(b.outs)
					outs[i] = d
					return outs
				}
				if i == 0 {
					try("no output", clones(b.in), with(nil), ops.ErrArgument)
				}
				try(fmt.Sprint("output ", i, " float64"), clones(b.in), with(zeros(tensor.Float64, b.outs[i].Shape()...)), ops.ErrDType)
				try(fmt.Sprint("output ", i, " too long"), clones(b.in), with(zeros(b.outs[i].Dtype(), append([]int{b.outs[i].Shape()[0] + 1}, b.outs[i].Shape()[1:]...)...)), ops.ErrShape)
			}
		})
	}
}

// masked is a copy of d with a mask.
func masked(d *dense) *dense {
	c := d.Clone().(*dense)
	tensor.WithMask(make([]bool, d.Shape().TotalSize()))(c)
	return c
}

// A graph node in an option of a direct call has no value.
func TestDirectRefusesNodes(t *testing.T) {
	m := newMaker(t)
	n := input(gorgonia.NewGraph(), 0, f32, 4)
	err := ops.Decode(ops.DecodeArgs{Query: m.random(f32, 1, 4, 16), KV: ops.StackedKV(m.random(f32, 1, 2, 2, 4, 16), ops.HND), BlockTables: table(1, 0), SeqLens: ints(3), Out: zeros(f32, 1, 4, 16)}, ops.WithSinks(n))
	wantRefusal(t, "sinks", err, "decode", "sinks", ops.ErrArgument)
	err = ops.Decode(ops.DecodeArgs{}, ops.WithODataType(f32))
	wantRefusal(t, "o_data_type", err, "decode", "o_data_type", ops.ErrArgument)
	err = ops.Decode(ops.DecodeArgs{KV: ops.KV[*dense]{}})
	wantRefusal(t, "no cache", err, "decode", "kv_cache", ops.ErrArgument)
}
