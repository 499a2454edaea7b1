//go:build !(gpu && linux && amd64 && cgo)

package cublaslt

import (
	"errors"

	"github.com/gaze-ml/gaze/cudaops/internal/driver"
)

var errUnbuilt = errors.New("no cuBLASLt: this program was built without CUDA")

// Handle is the library on one context, Plan an algorithm for one kind of product.
type (
	Handle struct{}
	Plan   struct{}
)

// Open makes a handle.
func Open(*driver.Context) (*Handle, error) { return nil, errUnbuilt }

// The methods are never reached: no Handle comes into being in this build.

func (h *Handle) Close() error                     { return errUnbuilt }
func (h *Handle) Plan(Product, int) (*Plan, error) { return nil, errUnbuilt }
func (p *Plan) Close()                             {}
func (h *Handle) Run(*Plan, *Operands) error       { return errUnbuilt }
