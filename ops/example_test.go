package ops_test

import (
	"fmt"
	"log"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/gaze-ml/gaze/ops"
)

// values makes a float32 tensor whose element i is f(i).
func values(f func(i int) float32, shape ...int) *tensor.Dense {
	x := make([]float32, tensor.Shape(shape).TotalSize())
	for i := range x {
		x[i] = f(i)
	}
	return tensor.New(tensor.WithShape(shape...), tensor.WithBacking(x))
}

// let makes an input node of a graph with its value.
func let(g *gorgonia.ExprGraph, name string, t *tensor.Dense) *gorgonia.Node {
	n := gorgonia.NewTensor(g, t.Dtype(), t.Dims(), gorgonia.WithShape(t.Shape()...), gorgonia.WithName(name))
	if err := gorgonia.Let(n, t); err != nil {
		log.Fatal(err)
	}
	return n
}

// Two requests decode over pages of 4 tokens. The queries are 0, so each output is the mean of the values in reach, which are
// 0, 1, 2, … along the pool.
func ExampleBatchDecode() {
	const pages, heads, pageSize, headDim = 3, 1, 4, 8
	g := gorgonia.NewGraph()
	q := let(g, "q", values(func(int) float32 { return 0 }, 2, 2, headDim))
	kv := let(g, "kv", values(func(i int) float32 { return float32(i/(2*pageSize*headDim)*pageSize) + float32(i/headDim%pageSize) }, pages, 2, heads, pageSize, headDim))
	tables := let(g, "block_tables", tensor.New(tensor.WithShape(2, 2), tensor.WithBacking([]int32{2, -1, 0, 1})))
	lens := let(g, "seq_lens", tensor.New(tensor.WithShape(2), tensor.WithBacking([]int32{3, 6})))

	out, err := ops.BatchDecode(q, ops.StackedKV(kv, ops.HND), tables, lens, 2*pageSize, ops.WithBMM1Scale(0.35))
	if err != nil {
		log.Fatal(err)
	}
	lse, err := ops.LSE(out, ops.Base2) // log2 of the number of keys, as every score is 0
	if err != nil {
		log.Fatal(err)
	}
	vm := gorgonia.NewTapeMachine(g)
	defer vm.Close()
	if err := vm.RunAll(); err != nil {
		log.Fatal(err)
	}
	o, l := out.Value().Data().([]float32), lse.Value().Data().([]float32)
	fmt.Printf("request 0: %.2f, lse2 %.2f\n", o[0], l[0])
	fmt.Printf("request 1: %.2f, lse2 %.2f\n", o[2*headDim], l[2])
	// Output:
	// request 0: 9.00, lse2 1.58
	// request 1: 2.50, lse2 2.58
}

// Prefill of two packed requests of 2 and 3 tokens over ragged keys and values, without a graph.
func ExamplePrefill() {
	const headDim = 8
	out := values(func(int) float32 { return 0 }, 5, 1, headDim)
	err := ops.Prefill(ops.PrefillArgs{
		Query: values(func(int) float32 { return 0 }, 5, 1, headDim),
		KV: ops.RaggedKV(values(func(int) float32 { return 1 }, 5, 1, headDim),
			values(func(i int) float32 { return float32(i / headDim) }, 5, 1, headDim)),
		QLens:  tensor.New(tensor.WithShape(2), tensor.WithBacking([]int32{2, 3})),
		KVLens: tensor.New(tensor.WithShape(2), tensor.WithBacking([]int32{2, 3})),
		Scale:  0.35, MaxQLen: 3, MaxKVLen: 3, Causal: true, Out: out,
	})
	if err != nil {
		log.Fatal(err)
	}
	for row := range 5 {
		fmt.Printf("%.1f ", out.Data().([]float32)[row*headDim])
	}
	// Output: 0.0 0.5 2.0 2.5 3.0
}

// Every error names the op, the argument, what it got and what it wants.
func ExampleError() {
	g := gorgonia.NewGraph()
	x := gorgonia.NewMatrix(g, tensor.Float32, gorgonia.WithShape(4, 64), gorgonia.WithName("x"))
	w := gorgonia.NewMatrix(g, ops.Q4_0, gorgonia.WithShape(10, 3), gorgonia.WithName("w"))
	_, err := ops.Linear(x, w)
	fmt.Println(err)
	// Output: gaze: linear: weight: bad shape: got 96 weights a row (q4_0[10 3]), 64 columns, want rows of the columns of x
}
