package ops

import (
	"reflect"

	"gorgonia.org/tensor"

	"github.com/gaze-ml/gaze/internal/attn"
	"github.com/gaze-ml/gaze/internal/half"
	"github.com/gaze-ml/gaze/internal/quant"
)

// Dtypes that package tensor lacks. The block types are GGUF's weight formats: one element is a block of 32 or 256 weights
// of a row, so a weight matrix [out, in] is a tensor of shape [out, in/32] or [out, in/256].
var (
	Float16    = dtype[half.F16](attn.F16)
	BFloat16   = dtype[half.BF16](attn.BF16)
	Float8E4M3 = dtype[half.E4M3](attn.E4M3) // float8_e4m3fn, largest value 448
	Q8_0       = dtype[quant.BlockQ8_0](attn.Q8_0)
	Q4_0       = dtype[quant.BlockQ4_0](attn.Q4_0)
	Q4_1       = dtype[quant.BlockQ4_1](attn.Q4_1)
	Q5_0       = dtype[quant.BlockQ5_0](attn.Q5_0)
	Q5_1       = dtype[quant.BlockQ5_1](attn.Q5_1)
	Q4_K       = dtype[quant.BlockQ4_K](attn.Q4_K)
	Q5_K       = dtype[quant.BlockQ5_K](attn.Q5_K)
	Q6_K       = dtype[quant.BlockQ6_K](attn.Q6_K)

	// NVFP4 is an out dtype only: the output is a pair of a uint8 tensor [T,Hq,D/2] with two e2m1 codes a byte, the even
	// element's in the low bits, and a Float8E4M3 tensor of block scales (FP4Scale), one for 16 elements. A value is
	// code·scale/o_sf_scale.
	NVFP4 = tensor.Dtype{Type: reflect.TypeFor[nvfp4]()}
)

type nvfp4 uint8

var (
	toAttn = map[reflect.Type]attn.DType{
		tensor.Float32.Type: attn.F32, tensor.Uint8.Type: attn.U8, tensor.Uint16.Type: attn.U16, tensor.Int32.Type: attn.I32,
		tensor.Uint32.Type: attn.U32, tensor.Int64.Type: attn.I64, tensor.Float64.Type: attn.F64, tensor.Int8.Type: attn.I8,
		tensor.Uint64.Type: attn.U64, tensor.Int.Type: attn.Int, tensor.Bool.Type: attn.Bool,
		reflect.TypeFor[nvfp4](): attn.U8,
	}
	fromAttn = [1 << 8]tensor.Dtype{
		attn.F32: tensor.Float32, attn.U8: tensor.Uint8, attn.U16: tensor.Uint16, attn.I32: tensor.Int32,
		attn.U32: tensor.Uint32, attn.I64: tensor.Int64,
	}
)

// dtype registers T with package tensor, once, while no other goroutine runs.
func dtype[T any](d attn.DType) tensor.Dtype {
	dt := tensor.Dtype{Type: reflect.TypeFor[T]()}
	tensor.Register(dt)
	toAttn[dt.Type], fromAttn[d] = d, dt
	return dt
}

// DTypeOf gives the backends' name of a dtype; types that no op takes are attn.Other.
func DTypeOf(dt tensor.Dtype) attn.DType {
	switch dt.Type { // those of nearly all operands, of which every Do asks
	case tensor.Float32.Type:
		return attn.F32
	case Float16.Type:
		return attn.F16
	case BFloat16.Type:
		return attn.BF16
	case tensor.Int32.Type:
		return attn.I32
	}
	if d, ok := toAttn[dt.Type]; ok {
		return d
	}
	return attn.Other
}

// Dtype is the inverse of DTypeOf.
func Dtype(d attn.DType) tensor.Dtype { return fromAttn[d] }
