//go:build gpu && linux && amd64 && cgo

// Package lazycuda lets a program that uses gorgonia.org/cu start on a machine without a driver. Cu links libcuda and ends the
// process at init where that or its cuInit fails; this package defines the functions that cu refers to as jumps through slots,
// answers cu's cuInit with success, and opens the real library only when somebody asks for a device.
//
// Before [Load] every driver function returns CUDA_ERROR_NOT_INITIALIZED.
package lazycuda

//go:generate go run gen.go

// #cgo LDFLAGS: -Wl,--as-needed -ldl
// #include <stdlib.h>
// #include "lazycuda.h"
import "C"

import (
	"errors"
	"fmt"
	"sync"
	"unsafe"
)

// Library is the driver's user-space library, which the driver installs.
const Library = "libcuda.so.1"

var (
	mu     sync.Mutex
	loaded bool
	result error
)

// Load opens the driver and initialises it, once; later calls give the first one's result. The error is the loader's or the
// driver's own words.
func Load() error {
	mu.Lock()
	defer mu.Unlock()
	if loaded {
		return result
	}
	loaded = true
	name := C.CString(Library)
	defer C.free(unsafe.Pointer(name))
	var code C.int
	if why := C.gaze_cuda_open(name, &code); why != nil {
		defer C.free(unsafe.Pointer(why))
		result = errors.New(C.GoString(why))
	}
	return result
}

// Use fills the slots from find, a C function void *(*)(void *ctx, const char *name), in place of the driver: the way for a
// recording driver into a test. It undoes what Load did.
func Use(find, ctx unsafe.Pointer) error {
	mu.Lock()
	defer mu.Unlock()
	loaded, result = true, nil
	if code := C.gaze_cuda_fill((*[0]byte)(find), ctx); code != 0 {
		result = fmt.Errorf("cuInit returned %d", int(code))
	}
	return result
}
