package ops_test

import (
	"math"
	"slices"
	"testing"

	"gorgonia.org/tensor"

	"github.com/gaze-ml/gaze/ops"
)

// What a dtype holds exactly comes back; what it doesn't is the nearest that it holds.
func TestNewTensorRounds(t *testing.T) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	for _, c := range []struct {
		dt        tensor.Dtype
		got, want []float32
	}{
		{f32, []float32{1, -0.1, inf}, []float32{1, -0.1, inf}},
		{f16, []float32{1, 65504, 1e6, 1 + 1.0/2048, 1 + 3.0/2048}, []float32{1, 65504, inf, 1, 1 + 2.0/1024}},
		{bf16, []float32{1, -3, 1 + 1.0/256, 1 + 3.0/256}, []float32{1, -3, 1, 1 + 2.0/128}},
		{e4m3, []float32{448, 1000, -1000, 1, 1 + 1.0/16, 1 + 3.0/16, nan}, []float32{448, 448, -448, 1, 1, 1.25, nan}},
	} {
		d, err := ops.NewTensor(c.dt, tensor.Shape{len(c.got)}, c.got)
		x, err2 := ops.Float32s(must(t, d, err))
		must(t, x, err2)
		for i := range c.want {
			if x[i] != c.want[i] && !(x[i] != x[i] && c.want[i] != c.want[i]) {
				t.Errorf("%v: %v became %v, want %v", c.dt, c.got[i], x[i], c.want[i])
			}
		}
	}
	d, err := ops.NewTensor(i32, tensor.Shape{2, 2}, []float32{1, -2, 3, 4})
	if got := must(t, d, err).Data().([]int32); !slices.Equal(got, []int32{1, -2, 3, 4}) {
		t.Errorf("int32: %v", got)
	}
	d, err = ops.NewTensor(bf16, tensor.Shape{2, 3}, nil)
	if x, err := ops.Float32s(must(t, d, err)); err != nil || !slices.Equal(x, make([]float32, 6)) {
		t.Errorf("nil values: %v, %v", x, err)
	}
}

// Views are read in their own order.
func TestFloat32sOfViews(t *testing.T) {
	d, err := ops.NewTensor(f16, tensor.Shape{2, 3}, []float32{1, 2, 3, 4, 5, 6})
	must(t, d, err)
	v, err := d.Slice(nil, tensor.S(1, 3))
	x, err2 := ops.Float32s(must(t, v, err).(*dense))
	if !slices.Equal(must(t, x, err2), []float32{2, 3, 5, 6}) {
		t.Errorf("columns: %v", x)
	}
	if err := d.T(); err != nil {
		t.Fatal(err)
	}
	x, err = ops.Float32s(d)
	if !slices.Equal(must(t, x, err), []float32{1, 4, 2, 5, 3, 6}) {
		t.Errorf("transposed: %v", x)
	}
}

func TestTensorsRefuse(t *testing.T) {
	for _, c := range []struct {
		what   string
		dt     tensor.Dtype
		shape  tensor.Shape
		values []float32
		kind   error
	}{
		{"too few values", f32, tensor.Shape{2, 3}, make([]float32, 5), ops.ErrShape},
		{"values for blocks", ops.Q4_0, tensor.Shape{2, 1}, make([]float32, 2), ops.ErrShape},
		{"float64", tensor.Float64, tensor.Shape{1}, nil, ops.ErrDType},
		{"rank 6", f32, tensor.Shape{1, 1, 1, 1, 1, 1}, nil, ops.ErrShape},
	} {
		_, err := ops.NewTensor(c.dt, c.shape, c.values)
		wantRefusal(t, c.what, err, "tensor", "", c.kind)
	}
	_, err := ops.Float32s(nil)
	wantRefusal(t, "nil", err, "tensor", "tensor", ops.ErrArgument)
	_, err = ops.Float32s(zeros(i32, 2))
	wantRefusal(t, "int32", err, "tensor", "tensor", ops.ErrDType)
	_, err = ops.Float32s(zeros(ops.Q8_0, 2))
	wantRefusal(t, "blocks", err, "tensor", "tensor", ops.ErrDType)
}

// Every dtype has one name on each side.
func TestDtypes(t *testing.T) {
	for _, dt := range []tensor.Dtype{f32, f16, bf16, e4m3, u8, u16, i32, tensor.Uint32, tensor.Int64, ops.Q8_0, ops.Q4_0, ops.Q4_1, ops.Q5_0, ops.Q5_1, ops.Q4_K, ops.Q5_K, ops.Q6_K} {
		d := ops.DTypeOf(dt)
		if ops.Dtype(d) != dt || d.Size() != int(dt.Size()) {
			t.Errorf("%v: %v of %d bytes, back to %v of %d", dt, d, d.Size(), ops.Dtype(d), dt.Size())
		}
	}
}
