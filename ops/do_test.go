package ops_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/gaze-ml/gaze/ops"
)

// Values that no graph would pass to an op, given to its Do: an error of the op's each time, never a panic, and the next valid Do
// gives what it gave before.
func TestDoRefusesValues(t *testing.T) {
	for name, c := range directs {
		t.Run(name, func(t *testing.T) {
			b := c(newMaker(t))
			g := gorgonia.NewGraph()
			nodes := make([]*node, len(b.in))
			for i, d := range b.in {
				nodes[i] = input(g, i, d.Dtype(), d.Shape()...)
			}
			outs, err := b.build(nodes)
			must(t, outs, err)
			opNode := g.AllNodes()[len(b.in)]
			op := opNode.Op()
			values := func() (vals []gorgonia.Value) { // in the op's own order
				in := clones(b.in)
				for it := g.From(opNode.ID()); it.Next(); {
					vals = append(vals, in[it.Node().ID()])
				}
				return vals
			}
			valid := func() []byte {
				t.Helper()
				v, err := op.Do(values()...)
				return bytes.Clone(raw(must(t, v, err).(*dense)))
			}
			want := valid()
			returned := zeros(f32, 2)
			tensor.ReturnTensor(returned) // a header without memory, as UnbindAllNonInputs leaves
			for i, v := range values() {
				dt, shape := v.Dtype(), v.Shape()
				for what, bad := range map[string]gorgonia.Value{
					"nil": nil, "a nil tensor": (*dense)(nil), "a scalar": gorgonia.NewF64(1), "a nil scalar": (*gorgonia.F32)(nil), "float64": zeros(tensor.Float64, shape...), "a returned tensor": returned,
					"a masked tensor": tensor.New(tensor.Of(dt), tensor.WithShape(shape...), tensor.WithMask(make([]bool, shape.TotalSize()))),
				} {
					vals := values()
					vals[i] = bad
					_, err := op.Do(vals...)
					var e *ops.Error
					if !errors.As(err, &e) || e.Arg == "" || strings.Contains(err.Error(), "panic") {
						t.Errorf("operand %d is %s: %v, want an error about it", i, what, err)
					}
				}
			}
			_, err = op.Do()
			wantRefusal(t, "no operands", err, op.String(), "operands", ops.ErrArgument)
			if got := valid(); !bytes.Equal(got, want) {
				t.Error("the next valid Do gives something else")
			}
		})
	}
}

// What Do returned lives until the op runs again: then its memory has the new values, under the same header.
func TestDoOwnsItsOutput(t *testing.T) {
	m := newMaker(t)
	g := gorgonia.NewGraph()
	y, err := ops.SiLUMul(input(g, 0, f32, 2, 8), input(g, 1, f32, 2, 8))
	must(t, y, err)
	run := func() *dense {
		v, err := y.Op().Do(m.random(f32, 2, 8), m.random(f32, 2, 8))
		return must(t, v, err).(*dense)
	}
	a := run()
	before := bytes.Clone(raw(a))
	b := run()
	if a != b || bytes.Equal(before, raw(a)) {
		t.Error("want the same tensor, with new values")
	}
}

// A header that was changed is not given again, whoever gave it: the op, a name for a result or for its operand. What has gone into
// package tensor's pool is somebody else's.
func TestDoGivesNoChangedHeader(t *testing.T) {
	g := gorgonia.NewGraph()
	xNode := input(g, 0, f32, 2, 8)
	normed, sum, err := ops.AddRMSNorm(xNode, xNode, input(g, 1, f32, 8), 1e-5)
	must(t, normed, err)
	rows, err := ops.Reshape(xNode, 4, 4)
	must(t, rows, err)
	x, w := newMaker(t).random(f32, 2, 8), newMaker(t).random(f32, 8)
	for name, do := range map[string]func() (gorgonia.Value, error){
		"op":         func() (gorgonia.Value, error) { return normed.Op().Do(x, w, x) },
		"projection": func() (gorgonia.Value, error) { return sum.Op().Do(x) },
		"reshape":    func() (gorgonia.Value, error) { return rows.Op().Do(x) },
	} {
		must(t, must1(normed.Op().Do(x, w, x)), nil)
		first := must1(do()).(*dense)
		shape, memory, engine := first.Shape().Clone(), first.Uintptr(), first.Engine()
		for what, change := range map[string]func(d *dense) error{
			"reshaped":         func(d *dense) error { return d.Reshape(16) },
			"reshaped in part": func(d *dense) error { d.Shape()[0], d.Shape()[1] = 1, 16; return nil },
			"transposed":       func(d *dense) error { return d.T() },
			"masked":           func(d *dense) error { return d.ResetMask() },
			"given an engine":  func(d *dense) error { tensor.WithEngine(tensor.Float32Engine{})(d); return nil },
			"returned": func(d *dense) error {
				sizes := d.Shape()
				tensor.ReturnTensor(d)
				for range 100 {
					if lent := tensor.BorrowInts(cap(sizes)); &lent[0] == &sizes[0] {
						return errors.New("its shape was lent")
					}
				}
				return nil
			},
			"returned and lent": func(d *dense) error {
				keep := d.ShallowClone()
				tensor.ReturnTensor(d)
				for range 5000 { // more than the pool has room for
					if keep.ShallowClone() == d {
						return nil
					}
				}
				return errors.New("never lent")
			},
		} {
			d := must1(do()).(*dense)
			if err := change(d); err != nil {
				t.Fatal(err)
			}
			next := must1(do()).(*dense)
			if next == d || !next.Shape().Eq(shape) || next.Uintptr() != memory || next.IsMasked() || next.IsMaterializable() || next.Engine() != engine {
				t.Errorf("%s, %s: %p %v after %p", name, what, next, next.Shape(), d)
			}
			if again := must1(do()); again != gorgonia.Value(next) {
				t.Errorf("%s, %s: another header each time", name, what)
			}
		}
	}
}

// Two names of one result are two headers: a machine gives each node's back to a pool.
func TestNamesOfOneResult(t *testing.T) {
	g, c := gorgonia.NewGraph(), hostDecode()
	out, err := ops.BatchDecode(input(g, 0, f32, 2, 2, 8), ops.StackedKV(input(g, 1, f32, 3, 2, 1, 4, 8), ops.HND), input(g, 2, i32, 2, 2), input(g, 3, i32, 2), 8)
	must(t, out, err)
	var names [2]*node
	for i := range names {
		names[i], err = ops.LSE(out)
		must(t, names[i], err)
	}
	_, err = out.Op().Do(c.Query, c.KV.Tensors()[0], c.BlockTables, c.SeqLens)
	must(t, 0, err)
	a, b := must1(names[0].Op().Do(out.Value())).(*dense), must1(names[1].Op().Do(out.Value())).(*dense)
	if a == b || a.Uintptr() != b.Uintptr() {
		t.Errorf("%p and %p, want two headers over the same memory", a, b)
	}
}

// A Do that sees nothing new leaves nothing to the garbage collector.
func TestDoAllocatesNothing(t *testing.T) {
	m := newMaker(t)
	g := gorgonia.NewGraph()
	xNode := input(g, 0, f32, 2, 8)
	normed, sum, err := ops.AddRMSNorm(xNode, xNode, input(g, 1, f32, 8), 1e-5)
	must(t, normed, err)
	rows, err := ops.Reshape(xNode, 4, 4)
	must(t, rows, err)
	x, w := m.random(f32, 2, 8), m.random(f32, 8)
	norm, one := []gorgonia.Value{x, w, x}, []gorgonia.Value{x}
	if n := testing.AllocsPerRun(100, func() {
		must1(normed.Op().Do(norm...))
		must1(sum.Op().Do(one...))
		must1(rows.Op().Do(one...))
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// A projection names what its op wrote last, and nothing before.
func TestProjectionBeforeItsOp(t *testing.T) {
	g := gorgonia.NewGraph()
	x := input(g, 0, f32, 2, 8)
	normed, sum, err := ops.AddRMSNorm(x, x, input(g, 1, f32, 8), 1e-5)
	must(t, normed, err)
	_, err = sum.Op().Do(zeros(f32, 2, 8))
	wantRefusal(t, "sum before norm", err, "sum", "out", ops.ErrArgument)
	x0 := newMaker(t).random(f32, 2, 8)
	_, err = normed.Op().Do(x0, zeros(f32, 8), x0)
	must(t, 0, err)
	v, err := sum.Op().Do(zeros(f32, 2, 8))
	got := must(t, v, err).(*dense).Data().([]float32)
	for i, x := range x0.Data().([]float32) {
		if got[i] != 2*x {
			t.Fatalf("element %d is %v, want %v", i, got[i], 2*x)
		}
	}
}

// Gradients stop with an error at an op of gaze, and work beside it.
func TestGradients(t *testing.T) {
	g := gorgonia.NewGraph()
	x, w := input(g, 0, f32, 2, 8), input(g, 1, f32, 8)
	y, err := ops.RMSNorm(x, w, 1e-5)
	must(t, y, err)
	through, err := gorgonia.Sum(y)
	must(t, through, err)
	beside, err := gorgonia.Sum(must1(gorgonia.Square(x)))
	must(t, beside, err)
	if _, err := gorgonia.Grad(through, x); err == nil {
		t.Error("a gradient through RMSNorm")
	}
	if _, err := gorgonia.Grad(beside, x); err != nil {
		t.Errorf("beside RMSNorm: %v", err)
	}
}

func must1[T any](x T, err error) T {
	if err != nil {
		panic(err)
	}
	return x
}
