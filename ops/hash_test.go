package ops

import (
	"reflect"
	"testing"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/gaze-ml/gaze/internal/attn"
)

// Every field of a call's prototype, scalars, dtypes and operands alike, changes the op's hash: Gorgonia takes two ops of one
// hash for one.
func TestHashHoldsEveryField(t *testing.T) {
	hashesEveryField(t, attn.NewDecodeCall())
	hashesEveryField(t, attn.PrefillCall{Scale: 1})
	hashesEveryField(t, attn.NewAppendCall())
	hashesEveryField(t, attn.RMSNormCall{})
	hashesEveryField(t, attn.RoPECall{})
	hashesEveryField(t, attn.LinearCall{})
	hashesEveryField(t, attn.SiLUMulCall{})
	hashesEveryField(t, attn.EmbeddingCall{})
	hashesEveryField(t, attn.CastCall{})
	hashesEveryField(t, attn.MergeLSECall{})
	hashesEveryField(t, attn.ArgmaxCall{})
	hashesEveryField(t, attn.SoftmaxCall{})
	hashesEveryField(t, attn.TopKCall{})
}

func hashesEveryField[C any, P callOf[C]](t *testing.T, proto C) {
	t.Helper()
	seen := map[uint32]string{(&op[C, P]{proto: proto}).Hashcode(): "nothing"}
	flip(reflect.TypeFor[C](), "", func(path string, change func(reflect.Value)) {
		o := &op[C, P]{proto: proto}
		change(reflect.ValueOf(&o.proto).Elem())
		if other, ok := seen[o.Hashcode()]; ok {
			t.Errorf("%T: %s changes the hash no more than %s", proto, path, other)
		}
		seen[o.Hashcode()] = path
	})
	if a, b := (&op[C, P]{proto: proto, serial: 1}).Hashcode(), (&op[C, P]{proto: proto, serial: 2}).Hashcode(); a == b {
		t.Errorf("%T: the serial number doesn't change the hash", proto)
	}
}

// flip visits a change of every scalar in a struct type.
func flip(t reflect.Type, path string, visit func(path string, change func(reflect.Value))) {
	for i := range t.NumField() {
		name := path + "." + t.Field(i).Name
		inner := func(change func(reflect.Value)) func(reflect.Value) {
			return func(v reflect.Value) { change(v.Field(i)) }
		}
		switch ft := t.Field(i).Type; ft.Kind() {
		case reflect.Struct:
			flip(ft, name, func(path string, change func(reflect.Value)) { visit(path, inner(change)) })
		case reflect.Bool:
			visit(name, inner(func(v reflect.Value) { v.SetBool(!v.Bool()) }))
		case reflect.Int, reflect.Int8:
			visit(name, inner(func(v reflect.Value) { v.SetInt(v.Int() + 7) }))
		case reflect.Uint8:
			visit(name, inner(func(v reflect.Value) { v.SetUint(v.Uint() + 1) }))
		case reflect.Float64:
			visit(name, inner(func(v reflect.Value) { v.SetFloat(v.Float() + 1e-12) }))
		case reflect.String:
			visit(name, inner(func(v reflect.Value) { v.SetString(v.String() + "x") }))
		}
	}
}

// Two ops that are equal in everything, or differ only in what no field holds, such as the layout of the cache, are two nodes.
func TestEqualOpsAreTwoNodes(t *testing.T) {
	g := gorgonia.NewGraph()
	in := func(name string, dt tensor.Dtype, shape ...int) *gorgonia.Node {
		return gorgonia.NewTensor(g, dt, len(shape), gorgonia.WithShape(shape...), gorgonia.WithName(name))
	}
	q, kv := in("q", tensor.Float32, 1, 2, 8), in("kv", tensor.Float32, 3, 2, 2, 2, 8)
	tables, lens, x, w := in("tables", tensor.Int32, 1, 2), in("lens", tensor.Int32, 1), in("x", tensor.Float32, 1, 8), in("w", tensor.Float32, 8)
	decode := func(l Layout) func() (*gorgonia.Node, error) {
		return func() (*gorgonia.Node, error) { return BatchDecode(q, StackedKV(kv, l), tables, lens, 0) }
	}
	k := in("k", tensor.Float32, 1, 2, 8)
	out, err := decode(HND)()
	if err != nil {
		t.Fatal(err)
	}
	for name, pair := range map[string][2]func() (*gorgonia.Node, error){
		"decode in two layouts": {decode(HND), decode(NHD)},
		"append": {func() (*gorgonia.Node, error) {
			kv, err := AppendKV(StackedKV(kv, HND), k, k, tables, lens, lens)
			return kv.k, err
		}, nil},
		"norm":    {func() (*gorgonia.Node, error) { return RMSNorm(x, w, 1e-5) }, nil},
		"reshape": {func() (*gorgonia.Node, error) { return Reshape(x, 8) }, nil},
		"LSE":     {func() (*gorgonia.Node, error) { return LSE(out) }, nil},
	} {
		if pair[1] == nil {
			pair[1] = pair[0]
		}
		a, err := pair[0]()
		if err != nil {
			t.Fatal(err)
		}
		b, err := pair[1]()
		if err != nil {
			t.Fatal(err)
		}
		if a == b || a.ID() == b.ID() || a.Hashcode() == b.Hashcode() {
			t.Errorf("%s: nodes %d and %d, hashes %#x and %#x", name, a.ID(), b.ID(), a.Hashcode(), b.Hashcode())
		}
	}
}

// nodeHash is what Gorgonia will give the node.
func TestNodeHash(t *testing.T) {
	g := gorgonia.NewGraph()
	x := gorgonia.NewMatrix(g, tensor.Float32, gorgonia.WithShape(2, 8), gorgonia.WithName("x"))
	for _, shape := range [][]int{{16}, {4, 4}, {2, 2, 4}} {
		n, err := Reshape(x, shape...)
		if err != nil {
			t.Fatal(err)
		}
		if got := nodeHash(n.Op(), n.Shape(), []*gorgonia.Node{x}); got != n.Hashcode() {
			t.Errorf("%v: %#x, the node has %#x", shape, got, n.Hashcode())
		}
	}
}
