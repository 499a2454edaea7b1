package graph_test

import (
	"errors"
	"fmt"
	"hash"
	"hash/fnv"
	"strings"
	"testing"

	"github.com/chewxy/hm"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/gaze-ml/gaze/graph"
	"github.com/gaze-ml/gaze/ops"
)

// foreign is somebody else's op on one float32 matrix.
type foreign struct {
	tag string
	do  func(gorgonia.Value) (gorgonia.Value, error)
}

func (f *foreign) Arity() int { return 1 }
func (f *foreign) Type() hm.Type {
	m := gorgonia.TensorType{Dims: 2, Of: tensor.Float32}
	return hm.NewFnType(m, m)
}
func (f *foreign) InferShape(ds ...gorgonia.DimSizer) (tensor.Shape, error) {
	return ds[0].(tensor.Shape).Clone(), nil
}
func (f *foreign) Do(vs ...gorgonia.Value) (gorgonia.Value, error) { return f.do(vs[0]) }
func (f *foreign) ReturnsPtr() bool                                { return true }
func (f *foreign) CallsExtern() bool                               { return false }
func (f *foreign) OverwritesInput() int                            { return -1 }
func (f *foreign) WriteHash(h hash.Hash)                           { fmt.Fprint(h, f.tag) }
func (f *foreign) Hashcode() uint32 {
	h := fnv.New32a()
	f.WriteHash(h)
	return h.Sum32()
}
func (f *foreign) String() string { return f.tag }

// wantError looks for a kind and for words in a typed error.
func wantError(t *testing.T, err error, kind error, words ...string) {
	t.Helper()
	var e *ops.Error
	if !errors.Is(err, kind) || !errors.As(err, &e) {
		t.Errorf("%v, want %v", err, kind)
		return
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%q, want it to say %q", err, w)
		}
	}
}

func TestLetRefuses(t *testing.T) {
	n := newNet(t)
	x, w := n.random(tensor.Float32, 3, 16), n.random(tensor.Float32, 16)
	y, err := ops.RMSNorm(x, w, 1e-5)
	must(t, y, err)
	scalar := gorgonia.NewScalar(n.g, tensor.Float32, gorgonia.WithName("scalar"))
	other := newNet(t).random(tensor.Float32, 3, 16)
	m, _ := n.letAll()
	secret := []float32{123456}
	dense := func(dt tensor.Dtype, shape ...int) *tensor.Dense {
		return tensor.New(tensor.Of(dt), tensor.WithShape(shape...))
	}
	for _, c := range []struct {
		what  string
		node  *gorgonia.Node
		value gorgonia.Value
		kind  error
		words []string
	}{
		{"nil", x, nil, ops.ErrArgument, []string{"input0", "none"}},
		{"a nil tensor", x, (*tensor.Dense)(nil), ops.ErrArgument, []string{"input0", "none"}},
		{"a nil scalar", scalar, (*gorgonia.F32)(nil), ops.ErrArgument, []string{"scalar", "none"}},
		{"a tensor without a dtype", x, new(tensor.Dense), ops.ErrArgument, []string{"input0", "without a dtype"}},
		{"too few rows", x, dense(tensor.Float32, 2, 16), ops.ErrShape, []string{"input0", "(3, 16)", "(2, 16)"}},
		{"another rank", w, dense(tensor.Float32, 16, 1), ops.ErrShape, []string{"input1", "(16)", "(16, 1)"}},
		{"another dtype", x, dense(tensor.Float64, 3, 16), ops.ErrDType, []string{"input0", "float32", "float64"}},
		{"half", x, dense(ops.Float16, 3, 16), ops.ErrDType, []string{"input0", "float32", "Float16"}},
		{"a scalar for a matrix", x, gorgonia.NewF32(1), ops.ErrArgument, []string{"input0", "F32"}},
		{"a vector for a scalar", scalar, tensor.New(tensor.WithShape(1), tensor.WithBacking(secret)), ops.ErrShape, []string{"scalar"}},
		{"another scalar", scalar, gorgonia.NewF64(123456), ops.ErrDType, []string{"scalar", "float64"}},
		{"sparse", x, tensor.CSRFromCoord(tensor.Shape{3, 16}, []int{0}, []int{0}, secret), ops.ErrArgument, []string{"input0", "CS"}},
		{"an op's node", y, dense(tensor.Float32, 3, 16), ops.ErrArgument, []string{"rms_norm", "input"}},
		{"another graph's node", other, dense(tensor.Float32, 3, 16), ops.ErrArgument, []string{"input0", "not in the graph"}},
		{"no node", nil, dense(tensor.Float32, 3, 16), ops.ErrArgument, []string{"nil"}},
	} {
		t.Run(c.what, func(t *testing.T) {
			err := m.Let(c.node, c.value)
			wantError(t, err, c.kind, c.words...)
			if err != nil && strings.Contains(err.Error(), "123456") {
				t.Errorf("%q prints a value", err)
			}
		})
	}
	if err := m.RunAll(); err != nil {
		t.Errorf("after refused values: %v", err)
	}
	if err := m.Let(scalar, gorgonia.NewF32(1)); err != nil {
		t.Error(err)
	}
}

// A value bound to a node is looked at as one from Let is.
func TestRunAllRefusesValues(t *testing.T) {
	n := newNet(t)
	x, w := n.node(tensor.Float32, 3, 16), n.random(tensor.Float32, 16)
	y, err := ops.RMSNorm(x, w, 1e-5)
	must(t, y, err)
	m, _ := n.letAll()
	wantError(t, m.RunAll(), ops.ErrArgument, x.Name(), "Let", "none")
	_, err = m.Host(y)
	wantError(t, err, ops.ErrArgument, "run that succeeded")
	good := tensor.New(tensor.Of(tensor.Float32), tensor.WithShape(3, 16))
	if err := m.Let(x, good); err != nil {
		t.Fatal(err)
	}
	if err := m.RunAll(); err != nil {
		t.Fatal(err)
	}
	if err := good.Reshape(16, 3); err != nil {
		t.Fatal(err)
	}
	wantError(t, m.RunAll(), ops.ErrShape, x.Name(), "(3, 16)", "(16, 3)")
	_, err = m.Value(y)
	wantError(t, err, ops.ErrArgument, "run that succeeded")
	if err := good.Reshape(3, 16); err != nil {
		t.Fatal(err)
	}
	if err := m.RunAll(); err != nil {
		t.Errorf("after an error: %v", err)
	}
}

func TestMachineClosed(t *testing.T) {
	n := newNet(t)
	nodes := nets[0].build(n)
	m, vs := n.letAll()
	if err := m.RunAll(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := m.Close(); err != nil {
			t.Fatal(err)
		}
	}
	m.Reset()
	_, hostErr := m.Host(nodes[0])
	_, valueErr := m.Value(nodes[0])
	for _, err := range []error{m.RunAll(), m.Let(n.inputs[0].node, vs[0]), hostErr, valueErr} {
		wantError(t, err, ops.ErrArgument, "closed")
	}
}

// What goes wrong inside an op is an error that names the node; the process lives and the next run is right.
func TestRunAllSurvivesOps(t *testing.T) {
	boom := errors.New("boom")
	for _, c := range []struct {
		what  string
		do    func(v gorgonia.Value) (gorgonia.Value, error)
		check func(*testing.T, error)
	}{
		{"an error", func(gorgonia.Value) (gorgonia.Value, error) { return nil, boom },
			func(t *testing.T, err error) {
				if !errors.Is(err, boom) {
					t.Errorf("%v, want %v", err, boom)
				}
			}},
		{"a panic", func(gorgonia.Value) (gorgonia.Value, error) { panic("ouch") },
			func(t *testing.T, err error) { wantError(t, err, ops.ErrArgument, "panic", "ouch") }},
		{"a nil dereference", func(gorgonia.Value) (gorgonia.Value, error) { var p *tensor.Dense; return p, p.Reshape(1) },
			func(t *testing.T, err error) { wantError(t, err, ops.ErrArgument, "panic", "nil pointer") }},
		{"no value", func(gorgonia.Value) (gorgonia.Value, error) { return nil, nil },
			func(t *testing.T, err error) { wantError(t, err, ops.ErrArgument, "none") }},
		{"a wrong shape", func(gorgonia.Value) (gorgonia.Value, error) {
			return tensor.New(tensor.Of(tensor.Float32), tensor.WithShape(2, 16)), nil
		}, func(t *testing.T, err error) { wantError(t, err, ops.ErrShape, "(3, 16)", "(2, 16)") }},
		{"a wrong dtype", func(gorgonia.Value) (gorgonia.Value, error) {
			return tensor.New(tensor.Of(tensor.Float64), tensor.WithShape(3, 16)), nil
		}, func(t *testing.T, err error) { wantError(t, err, ops.ErrDType, "float64") }},
	} {
		t.Run(c.what, func(t *testing.T) {
			n := newNet(t)
			x := n.random(tensor.Float32, 3, 16)
			bad := true
			f := &foreign{"their op", func(v gorgonia.Value) (gorgonia.Value, error) {
				if bad {
					return c.do(v)
				}
				return v, nil
			}}
			y, err := gorgonia.ApplyOp(f, x)
			must(t, y, err)
			z, err := ops.SiLUMul(y, x)
			must(t, z, err)
			m, _ := n.letAll()
			for range 2 {
				err = m.RunAll()
				if err == nil || !strings.Contains(err.Error(), "node 1 (") || !strings.Contains(err.Error(), "their op") {
					t.Errorf("%v, want the node's ID and op", err)
				}
				c.check(t, err)
				_, err = m.Value(z)
				wantError(t, err, ops.ErrArgument)
			}
			bad = false
			if err := m.RunAll(); err != nil {
				t.Fatalf("after the error: %v", err)
			}
			if _, err := m.Value(z); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// Values that an op of gaze refuses, on the Machine and on the TapeMachine: an error that names op and argument, and the next
// valid run works.
func TestOpsRefuseValues(t *testing.T) {
	for _, c := range []struct {
		what  string
		input int // of the pool
		bad   []int32
		words []string
	}{
		{"a page outside the pool", 0, []int32{0, 1, poolPages, -1, 3, -1, -1, -1, 4, 5, 6, 7}, []string{"decode", "block_tables"}},
		{"a page that is needed and absent", 0, []int32{0, -1, 2, -1, 3, -1, -1, -1, 4, 5, 6, 7}, []string{"decode", "block_tables"}},
		{"more tokens than the table holds", 1, []int32{9, 4, 17}, []string{"decode", "seq_lens"}},
		{"a negative length", 1, []int32{9, -1, 14}, []string{"decode", "seq_lens"}},
	} {
		t.Run(c.what, func(t *testing.T) {
			n := newNet(t)
			nodes := nets[0].build(n)
			m, vs := n.letAll()
			want, _ := n.onMachine(nodes, 1)
			good := append([]int32(nil), vs[c.input].Data().([]int32)...)
			tapeVals := n.clones()
			for i, in := range n.inputs {
				if err := gorgonia.Let(in.node, tapeVals[i]); err != nil {
					t.Fatal(err)
				}
			}
			tape := gorgonia.NewTapeMachine(n.g)
			defer tape.Close()
			for _, vm := range []struct {
				name string
				vm   gorgonia.VM
				mem  []int32
				read func() gorgonia.Value
			}{
				{"Machine", m, vs[c.input].Data().([]int32), func() gorgonia.Value { v, _ := m.Value(nodes[0]); return v }},
				{"TapeMachine", tape, tapeVals[c.input].Data().([]int32), nodes[0].Value},
			} {
				copy(vm.mem, c.bad)
				err := vm.vm.RunAll()
				if err == nil {
					t.Fatalf("%s: no error", vm.name)
				}
				for _, w := range c.words {
					if !strings.Contains(err.Error(), w) {
						t.Errorf("%s: %q, want it to say %q", vm.name, err, w)
					}
				}
				if vm.name == "Machine" {
					wantError(t, err, ops.ErrArgument)
				}
				copy(vm.mem, good)
				vm.vm.Reset()
				if err := vm.vm.RunAll(); err != nil {
					t.Fatalf("%s: after the error: %v", vm.name, err)
				}
				if got := resultOf(t, vm.read()); string(got.bytes) != string(want[0][0].bytes) {
					t.Errorf("%s: another result after the error", vm.name)
				}
			}
		})
	}
}

func TestNewMachineRefuses(t *testing.T) {
	norm := func(n *net) *gorgonia.Node {
		y, err := ops.RMSNorm(n.random(tensor.Float32, 3, 16), n.random(tensor.Float32, 16), 1e-5)
		return must(n.t, y, err)
	}
	var into gorgonia.Value
	for _, c := range []struct {
		what  string
		build func(n *net) []graph.Option
		kind  error
		words []string
	}{
		{"a Read", func(n *net) []graph.Option { gorgonia.Read(norm(n), &into); return nil }, ops.ErrUnsupported, []string{"statement", "node 3"}},
		{"a Set", func(n *net) []graph.Option { gorgonia.Set(norm(n), n.inputs[0].node); return nil }, ops.ErrUnsupported, []string{"statement"}},
		{"one hash for two nodes", func(n *net) []graph.Option {
			same := func(v gorgonia.Value) (gorgonia.Value, error) { return v, nil }
			a, b := collision(n, same)
			if a == b {
				n.t.Fatal("Gorgonia merged the two")
			}
			return nil
		}, ops.ErrUnsupported, []string{"hash"}},
		{"a constant written in place", func(n *net) []graph.Option {
			p := n.pool()
			out, err := ops.BatchDecode(n.random(tensor.Float32, 3, 4, 16), n.stacked(tensor.Float32, 2, 16), p.tables, p.lens, 16,
				ops.WithOut(gorgonia.NewConstant(tensor.New(tensor.Of(tensor.Float32), tensor.WithShape(3, 4, 16)), gorgonia.WithName("c"))))
			must(n.t, out, err)
			return nil
		}, ops.ErrArgument, []string{"constant", "in place"}},
		{"Keep of nil", func(n *net) []graph.Option { norm(n); return []graph.Option{graph.Keep(nil)} }, ops.ErrArgument, []string{"nil"}},
		{"Outputs of another graph", func(n *net) []graph.Option {
			norm(n)
			return []graph.Option{graph.Outputs(newNet(n.t).random(tensor.Float32, 1))}
		}, ops.ErrArgument, []string{"not in it"}},
		{"no device", func(n *net) []graph.Option { norm(n); return []graph.Option{graph.On(nil)} }, ops.ErrNoDevice, nil},
		{"a removed node", func(n *net) []graph.Option {
			y := norm(n)
			n.g.Node(y.ID()) // fills the index that removal leaves behind
			z, err := ops.SiLUMul(y, y)
			must(n.t, z, err)
			n.g.Node(z.ID())
			n.g.RemoveNode(n.inputs[0].node)
			return nil
		}, ops.ErrUnsupported, []string{"removed"}},
	} {
		t.Run(c.what, func(t *testing.T) {
			n := newNet(t)
			opts := c.build(n)
			_, err := graph.NewMachine(n.g, opts...)
			wantError(t, err, c.kind, c.words...)
		})
	}
	_, err := graph.NewMachine(nil)
	wantError(t, err, ops.ErrArgument, "graph", "nil")
}

// collision puts two ops into the graph whose nodes have one 32-bit hash: it writes what gorgonia.Node.WriteHash does, for one op
// after the other, until two agree.
func collision(n *net, do func(gorgonia.Value) (gorgonia.Value, error)) (a, b *gorgonia.Node) {
	x := n.random(tensor.Float32, 3, 16)
	tags := map[uint32]string{}
	for i := 0; ; i++ {
		tag := fmt.Sprintf("%x", uint64(i)*0x9e3779b97f4a7c15) // long and mixed, else FNV rarely collides
		h := fnv.New32a()
		fmt.Fprintf(h, "%v%v%s", x.Type(), x.Shape(), tag)
		other, ok := tags[h.Sum32()]
		if !ok {
			tags[h.Sum32()] = tag
			continue
		}
		a, err := gorgonia.ApplyOp(&foreign{other, do}, x)
		must(n.t, a, err)
		b, err := gorgonia.ApplyOp(&foreign{tag, do}, x)
		return a, must(n.t, b, err)
	}
}
