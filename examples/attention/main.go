// Command attention is the smallest graph with one attention op: two requests decode over a paged KV cache.
//
// Every query is zero, so each output is the mean of the values that its request has cached: 0, 1, 2, … by position.
package main

import (
	"fmt"
	"log"
	"math"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/gaze-ml/gaze/graph"
	"github.com/gaze-ml/gaze/ops"
)

const pages, kvHeads, pageSize, headDim = 4, 2, 16, 64

func main() {
	log.SetFlags(0)
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

func run() error {
	g := gorgonia.NewGraph()
	q := gorgonia.NewTensor(g, ops.BFloat16, 3, gorgonia.WithShape(2, 8, headDim), gorgonia.WithName("q"))
	kv := gorgonia.NewTensor(g, ops.BFloat16, 5, gorgonia.WithShape(pages, 2, kvHeads, pageSize, headDim), gorgonia.WithName("kv"))
	tables := gorgonia.NewMatrix(g, tensor.Int32, gorgonia.WithShape(2, 2), gorgonia.WithName("block_tables"))
	lens := gorgonia.NewVector(g, tensor.Int32, gorgonia.WithShape(2), gorgonia.WithName("seq_lens"))

	out, err := ops.BatchDecode(q, ops.StackedKV(kv, ops.HND), tables, lens, 2*pageSize, ops.WithBMM1Scale(1/math.Sqrt(headDim)))
	if err != nil {
		return err
	}
	lse, err := ops.LSE(out)
	if err != nil {
		return err
	}

	m, err := graph.NewMachine(g)
	if err != nil {
		return err
	}
	defer m.Close()
	if err := bind(m, q, kv, tables, lens); err != nil {
		return err
	}
	if err := m.RunAll(); err != nil {
		return err
	}
	return show(m, out, lse)
}

// bind gives the inputs: request 0 holds 5 tokens in page 3, request 1 holds 20 in pages 0 and 2.
func bind(m *graph.Machine, q, kv, tables, lens *gorgonia.Node) error {
	cache := make([]float32, kv.Shape().TotalSize())
	for page, first := range map[int]int{3: 0, 0: 0, 2: pageSize} { // page → position of its first slot
		for i := range kvHeads * pageSize * headDim {
			position := first + i/headDim%pageSize
			cache[(page*2+1)*kvHeads*pageSize*headDim+i] = float32(position)
		}
	}
	for _, in := range []struct {
		node   *gorgonia.Node
		values []float32
	}{
		{q, nil}, // zeros
		{kv, cache},
		{tables, []float32{3, -1, 0, 2}}, // -1: never read
		{lens, []float32{5, 20}},
	} {
		t, err := ops.NewTensor(in.node.Dtype(), in.node.Shape(), in.values)
		if err != nil {
			return err
		}
		if err := m.Let(in.node, t); err != nil {
			return err
		}
	}
	return nil
}

func show(m *graph.Machine, out, lse *gorgonia.Node) error {
	o, err := m.Host(out)
	if err != nil {
		return err
	}
	l, err := m.Host(lse)
	if err != nil {
		return err
	}
	ov, err := ops.Float32s(o)
	if err != nil {
		return err
	}
	lv, err := ops.Float32s(l)
	if err != nil {
		return err
	}
	for r := range 2 {
		fmt.Printf("request %d: out %.1f, lse %.4f\n", r, ov[r*8*headDim], lv[r*8])
	}
	return nil
}
