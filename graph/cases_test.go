package graph_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/gaze-ml/gaze/graph"
	"github.com/gaze-ml/gaze/ops"
)

// uniform is a cache in which attention with q = 0 is easy to know: V of token t and KV head h is t + 100·h, K is noise, and all
// that must not matter is NaN. The tables are a shuffled permutation with -1 behind the last page.
type uniform struct {
	lens                       []int32
	pages, pageSize, heads, d  int
	tables                     []int32
	width                      int
	stacked                    []float32 // [pages, 2, heads, pageSize, d]
	stackedNHD, k, v, kNHD, vH []float32
}

func newUniform(pageSize, heads, d int, lens ...int32) *uniform {
	u := &uniform{lens: lens, pageSize: pageSize, heads: heads, d: d}
	for _, n := range lens {
		u.pages += (int(n) + pageSize - 1) / pageSize
		u.width = max(u.width, (int(n)+pageSize-1)/pageSize)
	}
	r := rand.New(rand.NewPCG(7, 7))
	perm := r.Perm(u.pages + 2)
	u.pages += 2
	size := heads * pageSize * d
	u.stacked = make([]float32, u.pages*2*size)
	for i := range u.stacked {
		u.stacked[i] = float32(math.NaN())
	}
	next := 0
	for _, n := range lens {
		for p := range u.width {
			if p*pageSize >= int(n) {
				u.tables = append(u.tables, -1)
				continue
			}
			page := perm[next]
			next++
			u.tables = append(u.tables, int32(page))
			for t := p * pageSize; t < min((p+1)*pageSize, int(n)); t++ {
				for h := range heads {
					for i := range d {
						at := page*2*size + (h*pageSize+t%pageSize)*d + i
						u.stacked[at] = float32(r.NormFloat64())
						u.stacked[at+size] = float32(t + 100*h)
					}
				}
			}
		}
	}
	u.k, u.v = make([]float32, u.pages*size), make([]float32, u.pages*size)
	u.kNHD, u.vH, u.stackedNHD = make([]float32, u.pages*size), make([]float32, u.pages*size), make([]float32, u.pages*2*size)
	for page := range u.pages {
		copy(u.k[page*size:][:size], u.stacked[page*2*size:])
		copy(u.v[page*size:][:size], u.stacked[page*2*size+size:])
		for kv := range 2 {
			for h := range heads {
				for t := range pageSize {
					row := u.stacked[((page*2+kv)*heads+h)*pageSize*d+t*d:][:d]
					copy(u.stackedNHD[((page*2+kv)*pageSize+t)*heads*d+h*d:], row)
					copy([][]float32{u.kNHD, u.vH}[kv][(page*pageSize+t)*heads*d+h*d:], row)
				}
			}
		}
	}
	return u
}

// forms are the cache in every form that holds K and V apart.
func (u *uniform) forms(n *net) map[string]ops.KV[*gorgonia.Node] {
	hnd, nhd := []int{u.pages, u.heads, u.pageSize, u.d}, []int{u.pages, u.pageSize, u.heads, u.d}
	stack := func(s []int) []int { return append([]int{s[0], 2}, s[1:]...) }
	whole := tensor.New(tensor.WithShape(stack(hnd)...), tensor.WithBacking(u.stacked))
	views := make([]*gorgonia.Node, 2)
	for i := range views {
		v, err := whole.Slice(nil, tensor.S(i))
		must(n.t, v, err)
		views[i] = n.node(tensor.Float32, hnd...)
		n.inputs = append(n.inputs, input{views[i], v.(*tensor.Dense)})
	}
	turned := make([]*gorgonia.Node, 2)
	for i, x := range [][]float32{u.kNHD, u.vH} {
		d := tensor.New(tensor.WithShape(nhd...), tensor.WithBacking(x))
		if err := d.T(0, 2, 1, 3); err != nil {
			n.t.Fatal(err)
		}
		turned[i] = n.node(tensor.Float32, hnd...)
		n.inputs = append(n.inputs, input{turned[i], d})
	}
	return map[string]ops.KV[*gorgonia.Node]{
		"stacked HND":                       ops.StackedKV(n.floats(tensor.Float32, u.stacked, stack(hnd)...), ops.HND),
		"stacked NHD":                       ops.StackedKV(n.floats(tensor.Float32, u.stackedNHD, stack(nhd)...), ops.NHD),
		"pair HND":                          ops.PairKV(n.floats(tensor.Float32, u.k, hnd...), n.floats(tensor.Float32, u.v, hnd...), ops.HND),
		"pair NHD":                          ops.PairKV(n.floats(tensor.Float32, u.kNHD, nhd...), n.floats(tensor.Float32, u.vH, nhd...), ops.NHD),
		"slices with twice the page stride": ops.PairKV(views[0], views[1], ops.HND),
		"transposed views":                  ops.PairKV(turned[0], turned[1], ops.HND),
	}
}

func (u *uniform) inputs(n *net) (tables, lens *gorgonia.Node) {
	return n.ints(u.tables, len(u.lens), u.width), n.ints(u.lens, len(u.lens))
}

// once runs the net with its own values, views and all, and gives the outputs.
func (n *net) once(outputs ...*gorgonia.Node) [][]float32 {
	n.t.Helper()
	m, err := graph.NewMachine(n.g, graph.Keep(outputs...))
	must(n.t, m, err)
	defer m.Close()
	for _, in := range n.inputs {
		if err := m.Let(in.node, in.value); err != nil {
			n.t.Fatal(err)
		}
	}
	if err := m.RunAll(); err != nil {
		n.t.Fatal(err)
	}
	var all [][]float32
	for _, o := range outputs {
		d, err := m.Host(o)
		x, err := ops.Float32s(must(n.t, d, err))
		all = append(all, must(n.t, x, err))
	}
	return all
}

// mean is what a row that sees the positions first … last of KV head h gives.
func mean(first, last, h int) float32 { return float32(first+last)/2 + 100*float32(h) }

// The same cache in every form gives the same bits, and the right ones, for grouped heads of several sizes.
func TestCacheForms(t *testing.T) {
	for _, heads := range [][2]int{{9, 3}, {5, 1}, {12, 2}, {28, 4}, {64, 4}, {64, 1}, {7, 7}} {
		t.Run(fmt.Sprintf("heads=%d,%d", heads[0], heads[1]), func(t *testing.T) {
			u := newUniform(16, heads[1], 16, 21, 5, 16)
			n := newNet(t)
			q := n.floats(tensor.Float32, nil, 3, heads[0], 16)
			tables, lens := u.inputs(n)
			qLens := n.ints([]int32{1, 1, 1}, 3)
			var names []string
			var outs []*gorgonia.Node
			for name, kv := range u.forms(n) {
				out, err := ops.BatchDecode(q, kv, tables, lens, 0, ops.WithBMM1Scale(0.25))
				names, outs = append(names, "decode, "+name), append(outs, must(t, out, err))
				out, err = ops.BatchPrefill(q, kv, 0.25, qLens, lens, 1, 21, true, ops.WithBlockTables(tables))
				names, outs = append(names, "prefill, "+name), append(outs, must(t, out, err))
			}
			all := n.once(outs...)
			for i, got := range all {
				for j, x := range got {
					b, h := j/16/heads[0], j/16%heads[0]
					if want := mean(0, int(u.lens[b])-1, h/(heads[0]/heads[1])); math.Abs(float64(x-want)) > 1e-3 {
						t.Fatalf("%s: request %d, head %d: %v, want %v", names[i], b, h, x, want)
					}
				}
			}
			for i, got := range all {
				if !slices.Equal(got, all[i%2]) { // the first decode or the first prefill
					t.Errorf("%s and %s differ", names[i], names[i%2])
				}
			}
		})
	}
}

// Each request has its own number of queries; a larger maximum changes nothing, a smaller one and wrong sums are refused.
func TestVariableQueries(t *testing.T) {
	u := newUniform(4, 1, 8, 9, 10, 7, 2)
	for _, c := range []struct {
		cum  []int32
		max  int
		want bool
	}{{[]int32{0, 1, 4, 4, 6}, 3, true}, {[]int32{0, 1, 4, 4, 6}, 100, true}, {[]int32{0, 1, 4, 4, 6}, 2, false}, {[]int32{0, 1, 4, 4, 5}, 3, false},
		{[]int32{0, 1, 4, 3, 6}, 3, false}, {[]int32{1, 1, 4, 4, 6}, 3, false}} {
		t.Run(fmt.Sprint(c.cum, " at most ", c.max), func(t *testing.T) {
			n := newNet(t)
			tables, lens := u.inputs(n)
			kv := ops.StackedKV(n.floats(tensor.Float32, u.stacked, u.pages, 2, 1, 4, 8), ops.HND)
			out, err := ops.BatchDecode(n.floats(tensor.Float32, nil, 6, 1, 8), kv, tables, lens, 0, ops.WithVarLenQueries(c.max, n.ints(c.cum, 5)))
			must(t, out, err)
			if !c.want {
				m, _ := n.letAll()
				wantError(t, m.RunAll(), ops.ErrArgument, "decode", "_q")
				return
			}
			got := n.once(out)[0]
			for row, want := range []float32{4, 3.5, 4, 4.5, 0, 0.5} {
				if got[row*8] != want {
					t.Errorf("row %d: %v, want %v", row, got[row*8], want)
				}
			}
		})
	}
}

// A query that is a part of a wider tensor gives what its copy gives; lengths that lie apart are refused by name.
func TestViewsOfInputs(t *testing.T) {
	n := newNet(t)
	p := n.pool()
	wide := must(t, tensor.New(tensor.WithShape(3, 8, 16), tensor.WithBacking(make([]float32, 3*8*16))), nil)
	for i := range wide.Data().([]float32) {
		wide.Data().([]float32)[i] = float32(n.r.NormFloat64())
	}
	q := n.node(tensor.Float32, 3, 4, 16)
	kv := n.stacked(tensor.Float32, 2, 16)
	out, err := ops.BatchDecode(q, kv, p.tables, p.lens, 16)
	must(t, out, err)
	part, err := wide.Slice(nil, tensor.S(0, 4))
	must(t, part, err)
	n.inputs = append(n.inputs, input{q, part.(*tensor.Dense)})
	got := n.once(out)[0]
	n.inputs[len(n.inputs)-1].value = part.Materialize().(*tensor.Dense)
	for i, x := range n.once(out)[0] {
		if x != got[i] {
			t.Fatalf("element %d: %v from a view, %v from its copy", i, got[i], x)
		}
	}

	column := must(t, tensor.New(tensor.WithShape(3, 2), tensor.WithBacking([]int32{9, 1, 4, 1, 14, 1})), nil)
	apart, err := column.Slice(nil, tensor.S(0))
	must(t, apart, err)
	m, _ := n.letAll()
	if err := m.Let(p.lens, apart.(*tensor.Dense)); err != nil {
		t.Fatal(err)
	}
	wantError(t, m.RunAll(), ops.ErrShape, "decode", "seq_lens", "contiguous")

	// Tables may be a part of a wider one: their rows lie apart, their entries together.
	rows := make([]int32, 3*(poolWidth+3))
	for i := range rows {
		rows[i] = 1 << 30
		if j := i % (poolWidth + 3); j > 0 && j <= poolWidth {
			rows[i] = n.inputs[0].value.Data().([]int32)[i/(poolWidth+3)*poolWidth+j-1]
		}
	}
	tables, err := tensor.New(tensor.WithShape(3, poolWidth+3), tensor.WithBacking(rows)).Slice(nil, tensor.S(1, 1+poolWidth))
	must(t, tables, err)
	n.inputs[0].value = tables.(*tensor.Dense)
	for i, x := range n.once(out)[0] {
		if x != got[i] {
			t.Fatalf("element %d: %v with a part of a wider table, want %v", i, x, got[i])
		}
	}
}

// Attention sees what the append before it wrote, two appends both happen, and layers of one name don't share a cache.
func TestAppendIsOrdered(t *testing.T) {
	cache, err := graph.NewKVCache(graph.CPU, graph.KVCacheConfig{Layers: 2, KVHeads: 1, HeadDim: 8, PageSize: 2, Pages: 4, DType: tensor.Float32})
	must(t, cache, err)
	n := newNet(t)
	layers, err := cache.Nodes(n.g)
	must(t, layers, err)
	tables, lens := n.ints([]int32{2, 0}, 1, 2), n.ints([]int32{2}, 1)
	value := func(x float32) *gorgonia.Node {
		v := make([]float32, 8)
		for i := range v {
			v[i] = x
		}
		return n.floats(tensor.Float32, v, 1, 1, 8)
	}
	q, request := value(0), n.ints([]int32{0}, 1)
	var outs []*gorgonia.Node
	for l, kv := range layers {
		before, err := ops.BatchDecode(q, kv, tables, lens, 0)
		outs = append(outs, must(t, before, err))
		for at := range 2 {
			kv, err = ops.AppendKV(kv, value(1), value(float32(10*l+at+1)), tables, n.ints([]int32{int32(at)}, 1), request)
			must(t, kv, err)
		}
		after, err := ops.BatchDecode(q, kv, tables, lens, 0)
		outs = append(outs, must(t, after, err))
	}
	got := n.once(outs...)
	for i, want := range []float32{0, 1.5, 0, 11.5} {
		if got[i][0] != want {
			t.Errorf("attention %d: %v, want %v", i, got[i][0], want)
		}
	}
	for i, want := range []float32{1.5, 1.5, 11.5, 11.5} { // the caches are the caller's: a second run begins with what the first wrote
		if x := n.once(outs[i])[0][0]; x != want {
			t.Errorf("attention %d, again: %v, want %v", i, x, want)
		}
	}
}

// A decode loop by Let, with and without Reset, sees each step's values; the first step's copy stays.
func TestDecodeLoop(t *testing.T) {
	u := newUniform(4, 2, 8, 12)
	for _, reset := range []bool{false, true} {
		n := newNet(t)
		tables, lens := u.inputs(n)
		q := n.floats(tensor.Float32, nil, 1, 4, 8)
		out, err := ops.BatchDecode(q, ops.StackedKV(n.floats(tensor.Float32, u.stacked, u.pages, 2, 2, 4, 8), ops.HND), tables, lens, 0)
		must(t, out, err)
		m, _ := n.letAll()
		var first *tensor.Dense
		for step := range 3 {
			if err := m.Let(lens, tensor.New(tensor.WithShape(1), tensor.WithBacking([]int32{int32(5 + step)}))); err != nil {
				t.Fatal(err)
			}
			if err := m.Let(q, tensor.New(tensor.WithShape(1, 4, 8), tensor.WithBacking(make([]float32, 32)))); err != nil {
				t.Fatal(err)
			}
			if reset {
				m.Reset()
			}
			if err := m.RunAll(); err != nil {
				t.Fatal(err)
			}
			d, err := m.Host(out)
			must(t, d, err)
			if step == 0 {
				first = d
			}
			if x := d.Data().([]float32)[31]; math.Abs(float64(x-mean(0, 4+step, 1))) > 1e-4 {
				t.Errorf("reset %v, step %d: %v, want %v", reset, step, x, mean(0, 4+step, 1))
			}
		}
		if x := first.Data().([]float32)[31]; math.Abs(float64(x-mean(0, 4, 1))) > 1e-4 {
			t.Errorf("the first step's copy became %v", x)
		}
	}
}

// Tensors without elements: no requests, no tokens.
func TestNothingToDo(t *testing.T) {
	n := newNet(t)
	zero := func(dt tensor.Dtype, shape ...int) *gorgonia.Node {
		node := n.node(dt, shape...)
		n.inputs = append(n.inputs, input{node, tensor.New(tensor.Of(dt), tensor.WithShape(shape...))})
		return node
	}
	kv, err := ops.AppendKV(n.stacked(tensor.Float32, 2, 16), zero(tensor.Float32, 0, 2, 16), zero(tensor.Float32, 0, 2, 16), zero(tensor.Int32, 0, 4), zero(tensor.Int32, 0), zero(tensor.Int32, 0))
	must(t, kv, err)
	out, err := ops.BatchDecode(zero(tensor.Float32, 0, 4, 16), kv, zero(tensor.Int32, 0, 4), zero(tensor.Int32, 0), 0)
	must(t, out, err)
	lse, err := ops.LSE(out)
	must(t, lse, err)
	m, err := graph.NewMachine(n.g)
	must(t, m, err)
	for _, in := range n.inputs {
		if err := m.Let(in.node, in.value); err != nil {
			t.Fatal(err)
		}
	}
	if err := m.RunAll(); err != nil {
		t.Fatal(err)
	}
	d, err := m.Host(out)
	if must(t, d, err); !slices.Equal(d.Shape(), tensor.Shape{0, 4, 16}) {
		t.Errorf("an output of shape %v", d.Shape())
	}
}
