// Package cublaslt runs matrix products by NVIDIA's cuBLASLt, which it opens at run time and never links. A machine without the library
// gets an error from [Open], and callers have a kernel of their own.
package cublaslt

import (
	"fmt"

	"github.com/gaze-ml/gaze/cudaops/internal/driver"
)

// Variable names the library's file in the environment, where the loader would not find it by itself.
const Variable = "GAZE_CUBLASLT"

// Type is an element type, a cudaDataType_t.
type Type int32

// The types.
const (
	F32  Type = 0
	F16  Type = 2
	BF16 Type = 14
)

// Product describes d = x·wᵀ + bias in row-major terms, with float32 sums:
//
//	x [Rows,In], w [Out,In], bias [Out], d [Rows,Out], all of one type
type Product struct {
	Type          Type
	Bias          bool
	Rows, In, Out int
	XRow, WRow    int       // strides in elements
	Align         [3]uint32 // bytes that the addresses of w, x and d are multiples of
}

// Operands are a product's addresses; Bias is 0 without one.
type Operands struct {
	X, W, Bias, Out driver.Addr
	Workspace       driver.Addr
	WorkspaceBytes  int
}

// Alignment is the largest power of two, at most 256, that a is a multiple of.
func Alignment(a driver.Addr) uint32 { return uint32(min(a&-a, 256)) }

// Error is a call that failed.
type Error struct {
	Call   string
	Status int // cublasStatus_t
}

func (e *Error) Error() string {
	name := map[int]string{1: "not initialized", 3: "out of memory", 7: "invalid value", 8: "architecture mismatch", 11: "mapping error",
		13: "execution failed", 14: "internal error", 15: "not supported"}[e.Status]
	if name == "" {
		name = "an unknown status"
	}
	return fmt.Sprintf("%s: %s (%d)", e.Call, name, e.Status)
}
