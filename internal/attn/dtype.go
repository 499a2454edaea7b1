package attn

import "fmt"

// DType is the element type of a Tensor. The block formats Q8_0 … Q6_K are GGUF's: one element is a whole block of weights,
// so a weight matrix [out, in] has the shape [out, in/BlockLen].
type DType uint8

// The element types.
const (
	Invalid DType = iota // an absent operand
	F32
	F16
	BF16
	E4M3 // float8_e4m3fn
	U8   // two e2m1 codes, the low nibble first
	U16
	I32
	U32
	I64
	Q8_0
	Q4_0
	Q4_1
	Q5_0
	Q5_1
	Q4_K
	Q5_K
	Q6_K
	// Types that no operand takes, known so that errors can name them.
	F64
	I8
	U64
	Int // Go's int
	Bool
	Other
	numDTypes
)

var dtypes = [numDTypes]struct {
	name     string
	size     int
	blockLen int
}{
	Invalid: {"absent", 0, 0},
	F32:     {"float32", 4, 1}, F16: {"float16", 2, 1}, BF16: {"bfloat16", 2, 1}, E4M3: {"float8_e4m3", 1, 1},
	U8: {"uint8", 1, 1}, U16: {"uint16", 2, 1}, I32: {"int32", 4, 1}, U32: {"uint32", 4, 1}, I64: {"int64", 8, 1},
	Q8_0: {"q8_0", 34, 32}, Q4_0: {"q4_0", 18, 32}, Q4_1: {"q4_1", 20, 32}, Q5_0: {"q5_0", 22, 32}, Q5_1: {"q5_1", 24, 32},
	Q4_K: {"q4_K", 144, 256}, Q5_K: {"q5_K", 176, 256}, Q6_K: {"q6_K", 210, 256},
	F64: {"float64", 8, 1}, I8: {"int8", 1, 1}, U64: {"uint64", 8, 1}, Int: {"int", 8, 1}, Bool: {"bool", 1, 1},
	Other: {"another type", 1, 1},
}

// String gives the dtype's name, e.g. "bfloat16".
func (d DType) String() string {
	if d < numDTypes {
		return dtypes[d].name
	}
	return fmt.Sprintf("DType(%d)", uint8(d))
}

// Size is the size of one element in bytes (of one block for the block formats).
func (d DType) Size() int { return dtypes[d].size }

// BlockLen is the number of weights in one element: 1, or 32 or 256 for the block formats.
func (d DType) BlockLen() int { return dtypes[d].blockLen }

// Quantised tells whether one element is a block of weights.
func (d DType) Quantised() bool { return d >= Q8_0 && d <= Q6_K }

// Half tells whether d is float16 or bfloat16.
func (d DType) Half() bool { return d == F16 || d == BF16 }

// Float tells whether d is float32, float16 or bfloat16.
func (d DType) Float() bool { return d == F32 || d.Half() }
