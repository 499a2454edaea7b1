package ops_test

import (
	"bytes"
	"math"
	"math/rand/v2"
	"testing"

	"gorgonia.org/tensor"

	"github.com/gaze-ml/gaze/internal/quant"
	"github.com/gaze-ml/gaze/ops"
)

// Convert dequantises every format of weights and rounds once, in each shape, and leaves the original alone.
func TestConvert(t *testing.T) {
	const seed = 3
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, seed))
	for _, from := range []tensor.Dtype{f32, f16, bf16, ops.Q8_0, ops.Q4_0, ops.Q4_1, ops.Q5_0, ops.Q5_1, ops.Q4_K, ops.Q5_K, ops.Q6_K} {
		d := ops.DTypeOf(from)
		for _, shape := range [][]int{{512}, {3, 256}, {2, 3, 256}} {
			x := make([]float32, tensor.Shape(shape).TotalSize())
			for i := range x {
				x[i] = float32(r.NormFloat64())
			}
			stored := append([]int(nil), shape...)
			stored[len(stored)-1] /= d.BlockLen()
			w, err := ops.NewTensor(from, stored, nil)
			must(t, w, err)
			if d.Quantised() {
				b := raw(w)
				quant.Quantize(d, b, x)
				quant.Dequantize(d, x, b)
			} else {
				w, err = ops.NewTensor(from, shape, x)
				must(t, w, err)
				x, err = ops.Float32s(w)
				must(t, x, err)
			}
			for _, to := range []tensor.Dtype{f32, f16, bf16} {
				want, err := ops.NewTensor(to, shape, x)
				must(t, want, err)
				got, err := ops.Convert(w, to)
				must(t, got, err)
				if !got.Shape().Eq(tensor.Shape(shape)) || got.Dtype() != to || !bytes.Equal(raw(got), raw(want)) {
					t.Errorf("%v %v to %v: other bits, or %v %v", from, stored, to, got.Dtype(), got.Shape())
				}
			}
		}
	}
	big, err := ops.NewTensor(f32, tensor.Shape{2}, []float32{1e6, -1e6})
	must(t, big, err)
	inf, err := ops.Convert(big, f16)
	must(t, inf, err)
	x, err := ops.Float32s(inf)
	if must(t, x, err); !math.IsInf(float64(x[0]), 1) || !math.IsInf(float64(x[1]), -1) {
		t.Errorf("beyond float16: %v", x)
	}
}

// What Convert can't do is refused by name.
func TestConvertRefuses(t *testing.T) {
	w, err := ops.NewTensor(f32, tensor.Shape{4, 6}, nil)
	must(t, w, err)
	view, err := w.Slice(nil, tensor.S(0, 3))
	must(t, view, err)
	ids, err := ops.NewTensor(tensor.Int32, tensor.Shape{4}, nil)
	must(t, ids, err)
	none, err := ops.NewTensor(f32, tensor.Shape{0, 6}, nil)
	must(t, none, err)
	for what, c := range map[string]struct {
		t    *tensor.Dense
		dt   tensor.Dtype
		arg  string
		kind error
	}{
		"nil": {nil, f16, "tensor", ops.ErrArgument}, "a slice": {view.(*tensor.Dense), f16, "tensor", ops.ErrShape}, "integers": {ids, f16, "tensor", ops.ErrDType},
		"to integers": {w, tensor.Int32, "dtype", ops.ErrDType}, "to blocks": {w, ops.Q8_0, "dtype", ops.ErrDType}, "to nothing": {w, tensor.Dtype{}, "dtype", ops.ErrDType},
		"no elements": {none, f16, "tensor", ops.ErrShape},
	} {
		_, err := ops.Convert(c.t, c.dt)
		wantRefusal(t, what, err, "convert", c.arg, c.kind)
	}
}
