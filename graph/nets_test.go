package graph_test

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"unsafe"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/gaze-ml/gaze/internal/quant"
	"github.com/gaze-ml/gaze/ops"
)

// net is a graph in the making with a value for each input.
type net struct {
	t      testing.TB
	g      *gorgonia.ExprGraph
	r      *rand.Rand
	inputs []input
}

type input struct {
	node  *gorgonia.Node
	value *tensor.Dense
}

const netSeed = 11

func newNet(t testing.TB) *net {
	return &net{t: t, g: gorgonia.NewGraph(), r: rand.New(rand.NewPCG(netSeed, netSeed))}
}

// must gives x or ends the test.
func must[T any](t testing.TB, x T, err error) T {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	return x
}

func (n *net) node(dt tensor.Dtype, shape ...int) *gorgonia.Node {
	return gorgonia.NewTensor(n.g, dt, len(shape), gorgonia.WithShape(shape...), gorgonia.WithName(fmt.Sprint("input", len(n.inputs))))
}

// random is an input of standard normal values, rounded to dt.
func (n *net) random(dt tensor.Dtype, shape ...int) *gorgonia.Node {
	x := make([]float32, tensor.Shape(shape).TotalSize())
	for i := range x {
		x[i] = float32(n.r.NormFloat64())
	}
	return n.floats(dt, x, shape...)
}

func (n *net) floats(dt tensor.Dtype, x []float32, shape ...int) *gorgonia.Node {
	n.t.Helper()
	node := n.node(dt, shape...)
	v, err := ops.NewTensor(dt, shape, x)
	n.inputs = append(n.inputs, input{node, must(n.t, v, err)})
	return node
}

// ints is an input of int32.
func (n *net) ints(x []int32, shape ...int) *gorgonia.Node {
	node := n.node(tensor.Int32, shape...)
	n.inputs = append(n.inputs, input{node, tensor.New(tensor.WithShape(shape...), tensor.WithBacking(x))})
	return node
}

// weights is a matrix [out, in] of random weights in a block format.
func (n *net) weights(dt tensor.Dtype, out, in int) *gorgonia.Node {
	d := ops.DTypeOf(dt)
	x := make([]float32, out*in)
	for i := range x {
		x[i] = float32(n.r.NormFloat64())
	}
	v := must(n.t, tensor.New(tensor.Of(dt), tensor.WithShape(out, in/d.BlockLen())), nil)
	quant.Quantize(d, raw(v), x)
	node := n.node(dt, out, in/d.BlockLen())
	n.inputs = append(n.inputs, input{node, v})
	return node
}

// raw is a contiguous tensor's memory.
func raw(d *tensor.Dense) []byte {
	v, err := ops.View("test", "value", d)
	if err != nil {
		panic(err)
	}
	return unsafe.Slice((*byte)(v.Ptr), d.MemSize())
}

// pool is a paged cache of three requests, of 9, 4 and 14 tokens in pages of 4, its stacked and its pair form.
type pool struct {
	tables, lens *gorgonia.Node
}

const (
	poolPages, poolPageSize, poolWidth = 12, 4, 4
)

var poolLens = []int32{9, 4, 14}

func (n *net) pool() pool {
	p := n.r.Perm(poolPages)
	tables := make([]int32, 3*poolWidth)
	for i := range tables {
		tables[i] = -1
		if used := (int(poolLens[i/poolWidth]) + poolPageSize - 1) / poolPageSize; i%poolWidth < used {
			tables[i] = int32(p[i/poolWidth*poolWidth+i%poolWidth])
		}
	}
	return pool{n.ints(tables, 3, poolWidth), n.ints(append([]int32(nil), poolLens...), 3)}
}

// stacked is a stacked HND cache of the pool.
func (n *net) stacked(dt tensor.Dtype, heads, dim int) ops.KV[*gorgonia.Node] {
	return ops.StackedKV(n.random(dt, poolPages, 2, heads, poolPageSize, dim), ops.HND)
}

// pair is the cache in two NHD tensors.
func (n *net) pair(dt tensor.Dtype, heads, dim int) ops.KV[*gorgonia.Node] {
	return ops.PairKV(n.random(dt, poolPages, poolPageSize, heads, dim), n.random(dt, poolPages, poolPageSize, heads, dim), ops.NHD)
}

// nets is a small graph for every op and every form of its results; build gives the nodes to compare.
var nets = []struct {
	name  string
	build func(n *net) []*gorgonia.Node
}{
	{"decode", func(n *net) []*gorgonia.Node {
		p := n.pool()
		out, err := ops.BatchDecode(n.random(tensor.Float32, 3, 4, 16), n.stacked(tensor.Float32, 2, 16), p.tables, p.lens, 16, ops.WithBMM1Scale(0.25))
		must(n.t, out, err)
		lse, err := ops.LSE(out)
		must(n.t, lse, err)
		lse2, err := ops.LSE(out, ops.Base2)
		return []*gorgonia.Node{out, lse, must(n.t, lse2, err)}
	}},
	{"decode, every option", func(n *net) []*gorgonia.Node {
		p := n.pool()
		out, err := ops.BatchDecode(n.random(ops.BFloat16, 6, 6, 16), n.pair(ops.Float8E4M3, 2, 16), p.tables, p.lens, 0,
			ops.WithBMM1ScaleNode(n.floats(tensor.Float32, []float32{0.25}, 1)), ops.WithBMM2ScaleNode(n.floats(tensor.Float32, []float32{3}, 1)),
			ops.WithWindowLeft(5), ops.WithSinks(n.random(tensor.Float32, 6)), ops.WithQLenPerReq(2), ops.WithOutDType(ops.Float8E4M3), ops.WithOScale(2))
		must(n.t, out, err)
		lse, err := ops.LSE(out, ops.Base2)
		return []*gorgonia.Node{out, must(n.t, lse, err)}
	}},
	{"decode, variable queries", func(n *net) []*gorgonia.Node {
		p := n.pool()
		out, err := ops.BatchDecode(n.random(ops.Float16, 6, 2, 8), n.stacked(ops.Float16, 1, 8), p.tables, p.lens, 14,
			ops.WithVarLenQueries(3, n.ints([]int32{0, 3, 4, 6}, 4)))
		return []*gorgonia.Node{must(n.t, out, err)}
	}},
	{"decode, mask", func(n *net) []*gorgonia.Node {
		p := n.pool()
		mask := n.node(tensor.Uint16, 3, 2, 2)
		n.inputs = append(n.inputs, input{mask, tensor.New(tensor.WithShape(3, 2, 2), tensor.WithBacking([]uint16{1, 0, 2, 0, 3, 0, 3, 0, 0, 0, 1, 0}))})
		out, err := ops.BatchDecode(n.random(tensor.Float32, 6, 2, 8), n.stacked(tensor.Float32, 1, 8), p.tables, p.lens, 14, ops.WithQLenPerReq(2), ops.WithMask(mask))
		return []*gorgonia.Node{must(n.t, out, err)}
	}},
	{"decode, nvfp4 output", func(n *net) []*gorgonia.Node {
		p := n.pool()
		out, err := ops.BatchDecode(n.random(ops.Float8E4M3, 3, 2, 32), n.stacked(ops.Float8E4M3, 1, 32), p.tables, p.lens, 14,
			ops.WithOutDType(ops.NVFP4), ops.WithOSFScale(300))
		must(n.t, out, err)
		scale, err := ops.FP4Scale(out)
		return []*gorgonia.Node{out, must(n.t, scale, err)}
	}},
	{"decode into given nvfp4 buffers", func(n *net) []*gorgonia.Node {
		p := n.pool()
		data := n.node(tensor.Uint8, 3, 2, 16)
		n.inputs = append(n.inputs, input{data, tensor.New(tensor.Of(tensor.Uint8), tensor.WithShape(3, 2, 16))})
		out, err := ops.BatchDecode(n.random(ops.Float8E4M3, 3, 2, 32), n.stacked(ops.Float8E4M3, 1, 32), p.tables, p.lens, 14,
			ops.WithFP4Out(data, n.random(ops.Float8E4M3, 128, 4), 7), ops.WithOSFScale(300))
		must(n.t, out, err)
		scale, err := ops.FP4Scale(out)
		return []*gorgonia.Node{out, must(n.t, scale, err)}
	}},
	{"decode into given buffers", func(n *net) []*gorgonia.Node {
		p := n.pool()
		out, err := ops.BatchDecode(n.random(tensor.Float32, 3, 4, 16), n.stacked(tensor.Float32, 2, 16), p.tables, p.lens, 16,
			ops.WithOut(n.random(tensor.Float32, 3, 4, 16)), ops.WithLSEOut(n.random(tensor.Float32, 3, 4)))
		must(n.t, out, err)
		lse, err := ops.LSE(out)
		must(n.t, lse, err)
		lse2, err := ops.LSE(out, ops.Base2)
		return []*gorgonia.Node{out, lse, must(n.t, lse2, err)}
	}},
	{"decode into another op's result", func(n *net) []*gorgonia.Node {
		p := n.pool()
		x, w := n.random(tensor.Float32, 3, 64), n.random(tensor.Float32, 64)
		into, err := ops.RMSNorm(x, w, 1e-5)
		must(n.t, into, err)
		before, err := ops.SiLUMul(into, into)
		must(n.t, before, err)
		into, err = ops.Reshape(into, 3, 4, 16)
		must(n.t, into, err)
		out, err := ops.BatchDecode(n.random(tensor.Float32, 3, 4, 16), n.stacked(tensor.Float32, 2, 16), p.tables, p.lens, 16, ops.WithOut(into))
		must(n.t, out, err)
		for range 3 { // results that would like its memory
			before, err = ops.RMSNorm(before, w, 1e-5)
			must(n.t, before, err)
		}
		out, err = ops.Reshape(out, 3, 64)
		must(n.t, out, err)
		out, err = ops.SiLUMul(out, before)
		return []*gorgonia.Node{must(n.t, out, err)}
	}},
	{"prefill, paged", func(n *net) []*gorgonia.Node {
		p := n.pool()
		out, err := ops.BatchPrefill(n.random(tensor.Float32, 8, 4, 16), n.stacked(tensor.Float32, 2, 16), 0.25,
			n.ints([]int32{2, 0, 5}, 3), p.lens, 5, 14, true, ops.WithBlockTables(p.tables))
		must(n.t, out, err)
		lse, err := ops.LSE(out)
		must(n.t, lse, err)
		lse2, err := ops.LSE(out, ops.Base2)
		return []*gorgonia.Node{out, lse, must(n.t, lse2, err)}
	}},
	{"prefill, ragged", func(n *net) []*gorgonia.Node {
		qo := n.ints([]int32{64, 0, 128}, 3)
		out, err := ops.BatchPrefill(n.random(ops.BFloat16, 8, 4, 16), ops.RaggedKV(n.random(ops.BFloat16, 9, 2, 16), n.random(ops.BFloat16, 9, 2, 8)), 0.25,
			n.ints([]int32{1, 1, 5}, 3, 1, 1, 1), n.ints([]int32{3, 0, 6}, 3), 5, 6, false, ops.WithBatchOffsets(qo, nil, nil, nil, nil))
		must(n.t, out, err)
		lse, err := ops.LSE(out)
		return []*gorgonia.Node{out, must(n.t, lse, err)}
	}},
	{"prefill, e4m3 with scales, into given buffers", func(n *net) []*gorgonia.Node {
		p := n.pool()
		scale := func(x float32) *gorgonia.Node { return n.floats(tensor.Float32, []float32{x}, 1) }
		out, err := ops.BatchPrefill(n.random(ops.Float8E4M3, 7, 4, 16), n.pair(ops.Float8E4M3, 2, 16), 0.25, n.ints([]int32{2, 0, 5}, 3), p.lens, 5, 14, true,
			ops.WithBlockTables(p.tables), ops.WithScales(scale(0.5), scale(2), scale(3)), ops.WithOut(n.random(ops.Float16, 7, 4, 16)), ops.WithLSEOut(n.random(tensor.Float32, 3, 5, 4)))
		must(n.t, out, err)
		lse, err := ops.LSE(out)
		return []*gorgonia.Node{out, must(n.t, lse, err)}
	}},
	{"append, stacked, then decode", func(n *net) []*gorgonia.Node {
		p := n.pool()
		kv, err := ops.AppendKV(n.stacked(ops.Float8E4M3, 2, 16), n.random(ops.BFloat16, 3, 2, 16), n.random(ops.BFloat16, 3, 2, 16), p.tables,
			n.ints([]int32{8, -1, 13}, 3), n.ints([]int32{0, 1, 2}, 3), ops.WithKVScales(0.5, 2))
		must(n.t, kv, err)
		out, err := ops.BatchDecode(n.random(ops.BFloat16, 3, 4, 16), kv, p.tables, p.lens, 16)
		return append(kv.Tensors(), must(n.t, out, err))
	}},
	{"append, pair, twice, then decode", func(n *net) []*gorgonia.Node {
		p := n.pool()
		kv := n.pair(tensor.Float32, 2, 16)
		for _, at := range [][]int32{{7, 2, 12}, {8, 3, 13}} {
			var err error
			kv, err = ops.AppendKV(kv, n.random(tensor.Float32, 3, 2, 16), n.random(tensor.Float32, 3, 2, 16), p.tables, n.ints(at, 3), n.ints([]int32{0, 1, 2}, 3))
			must(n.t, kv, err)
		}
		out, err := ops.BatchDecode(n.random(tensor.Float32, 3, 4, 16), kv, p.tables, p.lens, 16)
		return append(kv.Tensors(), must(n.t, out, err))
	}},
	{"append, ranges", func(n *net) []*gorgonia.Node {
		p := n.pool()
		kv, err := ops.AppendKVRanges(n.stacked(ops.Float16, 1, 8), n.random(tensor.Float32, 5, 1, 8), n.random(tensor.Float32, 5, 1, 8), p.tables,
			n.ints([]int32{0, 2, 2, 5}, 4), n.ints([]int32{7, 0, 11}, 3))
		return must(n.t, kv, err).Tensors()
	}},
	{"merge of two decodes", func(n *net) []*gorgonia.Node {
		p := n.pool()
		q := n.random(tensor.Float32, 3, 4, 16)
		var parts []*gorgonia.Node
		for range 2 {
			out, err := ops.BatchDecode(q, n.stacked(tensor.Float32, 2, 16), p.tables, p.lens, 16)
			must(n.t, out, err)
			lse, err := ops.LSE(out)
			parts = append(parts, out, must(n.t, lse, err))
		}
		out, lse, err := ops.MergeLSE(parts[0], parts[1], parts[2], parts[3])
		must(n.t, out, err)
		return []*gorgonia.Node{out, lse}
	}},
	{"norms", func(n *net) []*gorgonia.Node {
		x, w := n.random(tensor.Float32, 5, 48), n.random(tensor.Float32, 48)
		a, err := ops.RMSNorm(x, w, 1e-5)
		must(n.t, a, err)
		b, sum, err := ops.AddRMSNorm(a, x, w, 1e-6)
		must(n.t, b, err)
		c, sum2, err := ops.AddRMSNorm(b, sum, w, 1e-6)
		must(n.t, c, err)
		return []*gorgonia.Node{c, sum2}
	}},
	{"rope", func(n *net) []*gorgonia.Node {
		x, at := n.random(ops.Float16, 4, 3, 16), n.ints([]int32{0, -1, 7, 100000}, 4)
		a, err := ops.RoPE(x, at, 1e4)
		must(n.t, a, err)
		b, err := ops.RoPE(a, at, 5e5, ops.WithPairing(ops.Adjacent), ops.WithRotaryDim(8), ops.WithRoPEFactors(n.floats(tensor.Float32, []float32{1, 2, 3, 4}, 4)),
			ops.WithRoPEScaling(ops.RoPEScaling{Factor: 8, LowFreqFactor: 1, HighFreqFactor: 4, OriginalContext: 64}))
		return []*gorgonia.Node{must(n.t, b, err)}
	}},
	{"an MLP", func(n *net) []*gorgonia.Node {
		x := n.random(tensor.Float32, 3, 64)
		gate, err := ops.Linear(x, n.weights(ops.Q4_1, 96, 64))
		must(n.t, gate, err)
		up, err := ops.Linear(x, n.weights(ops.Q8_0, 96, 64), ops.WithBias(n.random(tensor.Float32, 96)))
		must(n.t, up, err)
		h, err := ops.SiLUMul(gate, up)
		must(n.t, h, err)
		out, err := ops.Linear(h, n.random(tensor.Float32, 64, 96))
		return []*gorgonia.Node{must(n.t, out, err)}
	}},
	{"half precision", func(n *net) []*gorgonia.Node {
		x, err := ops.Embedding(n.ints([]int32{5, 0, 9}, 3), n.weights(ops.Q6_K, 10, 256), ops.WithOutDType(ops.BFloat16))
		must(n.t, x, err)
		y, err := ops.Linear(x, n.random(ops.BFloat16, 40, 256))
		must(n.t, y, err)
		y, err = ops.Reshape(y, 3, 5, 8)
		must(n.t, y, err)
		y, err = ops.RoPE(y, n.ints([]int32{1, 2, 3}, 3), 1e4)
		must(n.t, y, err)
		y, err = ops.Reshape(y, 15, 8)
		must(n.t, y, err)
		y, err = ops.SiLUMul(y, y)
		return []*gorgonia.Node{must(n.t, y, err)}
	}},
	{"Gorgonia's own ops in between", func(n *net) []*gorgonia.Node {
		x, w := n.random(tensor.Float32, 4, 24), n.random(tensor.Float32, 24)
		a, err := ops.RMSNorm(x, w, 1e-5)
		must(n.t, a, err)
		b, err := gorgonia.Add(a, gorgonia.NewConstant(float32(0.5)))
		must(n.t, b, err)
		b, err = gorgonia.Tanh(b)
		must(n.t, b, err)
		c, err := ops.SiLUMul(a, b)
		must(n.t, c, err)
		d, err := gorgonia.Mul(c, n.random(tensor.Float32, 24, 8))
		must(n.t, d, err)
		e, err := gorgonia.Reshape(d, tensor.Shape{8, 4})
		must(n.t, e, err)
		f, err := ops.SiLUMul(e, e)
		must(n.t, f, err)
		s, err := gorgonia.Sum(f)
		must(n.t, s, err)
		return []*gorgonia.Node{f, s}
	}},
	{"scalars and constants as operands", func(n *net) []*gorgonia.Node {
		p := n.pool()
		scale := gorgonia.NewScalar(n.g, tensor.Float32, gorgonia.WithName("scale"), gorgonia.WithValue(float32(0.25)))
		ids := gorgonia.NewConstant(tensor.New(tensor.WithShape(3), tensor.WithBacking([]int32{2, 1, 0})), gorgonia.WithName("ids"))
		q, err := ops.Embedding(ids, n.random(tensor.Float32, 3, 64))
		must(n.t, q, err)
		q, err = ops.Reshape(q, 3, 4, 16)
		must(n.t, q, err)
		out, err := ops.BatchDecode(q, n.stacked(tensor.Float32, 2, 16), p.tables, p.lens, 16, ops.WithBMM1ScaleNode(scale),
			ops.WithBMM2ScaleNode(gorgonia.NewConstant(float32(2))))
		return []*gorgonia.Node{must(n.t, out, err)}
	}},
}

// result is a value's dtype, shape and bytes.
type result struct {
	dtype tensor.Dtype
	shape string
	bytes []byte
}

func resultOf(t testing.TB, v gorgonia.Value) result {
	t.Helper()
	r := result{dtype: v.Dtype(), shape: fmt.Sprint(v.Shape())}
	switch v := v.(type) {
	case *tensor.Dense:
		r.bytes = bytes.Clone(raw(v))
	case *gorgonia.F32:
		r.bytes = fmt.Append(nil, math.Float32bits(float32(*v)))
	default:
		t.Fatalf("a result of type %T", v)
	}
	return r
}

func (n *net) clones() []*tensor.Dense {
	vs := make([]*tensor.Dense, len(n.inputs))
	for i, in := range n.inputs {
		vs[i] = in.value.Clone().(*tensor.Dense)
	}
	return vs
}
