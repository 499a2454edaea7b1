package ops

import (
	"errors"
	"math"
	"testing"

	"gorgonia.org/tensor"
)

func TestNewTensorRefuses(t *testing.T) {
	for _, c := range []struct {
		name   string
		dt     tensor.Dtype
		shape  tensor.Shape
		values []float32
		want   error
	}{
		{"no dtype", tensor.Dtype{}, tensor.Shape{2}, nil, ErrDType},
		{"a dtype of others", tensor.Float64, tensor.Shape{2}, nil, ErrDType},
		{"nvfp4", NVFP4, tensor.Shape{2}, nil, ErrDType},
		{"negative", tensor.Float32, tensor.Shape{2, -1}, nil, ErrShape},
		{"more than memory", tensor.Float32, tensor.Shape{1 << 40, 1 << 40}, nil, ErrShape},
		{"an overflow to nothing", tensor.Int32, tensor.Shape{1 << 32, 1 << 32}, nil, ErrShape},
		{"six dimensions", tensor.Float32, tensor.Shape{1, 1, 1, 1, 1, 1}, nil, ErrShape},
		{"too few values", tensor.Float32, tensor.Shape{3}, []float32{1, 2}, ErrShape},
		{"values for blocks", Q4_0, tensor.Shape{1, 1}, []float32{1}, ErrShape},
		{"2^31 as int32", tensor.Int32, tensor.Shape{1}, []float32{1 << 31}, ErrArgument},
		{"-1 as uint32", tensor.Uint32, tensor.Shape{1}, []float32{-1}, ErrArgument},
		{"256 as uint8", tensor.Uint8, tensor.Shape{1}, []float32{256}, ErrArgument},
		{"a half as int64", tensor.Int64, tensor.Shape{1}, []float32{0.5}, ErrArgument},
		{"NaN as int32", tensor.Int32, tensor.Shape{1}, []float32{float32(math.NaN())}, ErrArgument},
		{"2^63 as int64", tensor.Int64, tensor.Shape{1}, []float32{1 << 63}, ErrArgument},
	} {
		if d, err := NewTensor(c.dt, c.shape, c.values); !errors.Is(err, c.want) || d != nil {
			t.Errorf("%s: got %v, want %v", c.name, err, c.want)
		}
	}
	d, err := NewTensor(tensor.Int32, tensor.Shape{3}, []float32{-1 << 31, -1, 1 << 30})
	if err != nil {
		t.Fatal(err)
	}
	if v := d.Data().([]int32); v[0] != math.MinInt32 || v[1] != -1 || v[2] != 1<<30 {
		t.Errorf("got %v", v)
	}
}

func TestDirectCallsRefuseZeroValues(t *testing.T) {
	empty := new(tensor.Dense)
	for name, err := range map[string]error{
		"a Dense that nobody made": Gate(empty, empty, empty),
		"no arguments":             Decode(DecodeArgs{}),
		"a sum without a residual": RMSNormalize(RMSNormArgs{Sum: empty}),
		"an option that is none":   Decode(DecodeArgs{}, Option{}),
	} {
		if !errors.Is(err, ErrArgument) {
			t.Errorf("%s: got %v, want ErrArgument", name, err)
		}
	}
	if _, err := Float32s(empty); !errors.Is(err, ErrArgument) {
		t.Errorf("Float32s: got %v, want ErrArgument", err)
	}
}
