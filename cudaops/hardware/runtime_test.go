//go:build gpu && linux && amd64 && cgo

package hardware

import (
	"errors"
	"math/rand/v2"
	"testing"

	"gorgonia.org/tensor"

	"github.com/gaze-ml/gaze/ops"
)

// TestEngine holds Gorgonia's ops on device tensors against the standard engine.
func TestEngine(t *testing.T) {
	const seed = 9
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, seed))
	rt := open(t, 0)
	matrix := func(rows, cols int) (h, d *tensor.Dense) {
		x := make([]float32, rows*cols)
		for i := range x {
			x[i] = float32(r.IntN(32)+1) / 4 // sums of products are exact
		}
		h = tensor.New(tensor.WithShape(rows, cols), tensor.WithBacking(x))
		d, err := rt.Upload(h)
		must(t, err)
		return h, d
	}
	same := func(what string, got, want tensor.Tensor) {
		t.Helper()
		h, err := rt.Download(got.(*tensor.Dense))
		must(t, err)
		if !h.Eq(want) {
			t.Errorf("%s differs", what)
		}
	}
	a, da := matrix(65, 130)
	b, db := matrix(65, 130)
	for name, f := range map[string]func(x, y any, o ...tensor.FuncOpt) (tensor.Tensor, error){"add": tensor.Add, "sub": tensor.Sub, "mul": tensor.Mul, "div": tensor.Div} {
		want, err := f(a, b)
		must(t, err)
		got, err := f(da, db)
		must(t, err)
		same(name, got, want)
		want, err = f(a, float32(2))
		must(t, err)
		got, err = f(da, float32(2))
		must(t, err)
		same(name+" scalar", got, want)
	}
	w, dw := matrix(130, 67)
	want, err := tensor.MatMul(a, w)
	must(t, err)
	got, err := tensor.MatMul(da, dw)
	must(t, err)
	same("matmul", got, want)
	must(t, w.T(), dw.T(), w.Transpose(), dw.Transpose())
	same("transpose", dw, w)
	must(t, rt.Sync())
}

// TestOutOfMemory: more than there is gives a typed error, and the Runtime goes on.
func TestOutOfMemory(t *testing.T) {
	rt := open(t, 0)
	_, err := rt.Alloc(rt.Properties().Memory + 1<<30)
	if !errors.Is(err, ops.ErrOutOfMemory) {
		t.Errorf("%v, want ErrOutOfMemory", err)
	}
	c := small.decode(t, rt)
	must(t, rt.Backend().Decode(c), rt.Sync())
}
