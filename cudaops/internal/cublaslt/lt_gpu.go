//go:build gpu && linux && amd64 && cgo

package cublaslt

// #include <stdlib.h>
// #include "lt.h"
import "C"

import (
	"fmt"
	"os"
	"sync"
	"unsafe"

	"github.com/gaze-ml/gaze/cudaops/internal/driver"
)

// libraries are the names to look for: what the environment names, else CUDA 13's and 12's, whose functions used here are the same.
func libraries() []string {
	if file := os.Getenv(Variable); file != "" {
		return []string{file}
	}
	return []string{"libcublasLt.so.13", "libcublasLt.so.12"}
}

var (
	mu     sync.Mutex
	loaded bool
	absent error
)

func load() error {
	mu.Lock()
	defer mu.Unlock()
	if loaded {
		return absent
	}
	loaded = true
	names := (*[3]*C.char)(C.calloc(3, C.size_t(unsafe.Sizeof(uintptr(0))))) // the last is null
	defer C.free(unsafe.Pointer(names))
	for i, l := range libraries() {
		names[i] = C.CString(l)
		defer C.free(unsafe.Pointer(names[i]))
	}
	if why := C.gaze_lt_open(&names[0]); why != nil {
		defer C.free(unsafe.Pointer(why))
		absent = fmt.Errorf("no cuBLASLt: %s", C.GoString(why))
	}
	return absent
}

// Use takes the library's functions from find, a C function void *(*)(void *ctx, const char *name): the way for a recording library
// into a test.
func Use(find, ctx unsafe.Pointer) error {
	mu.Lock()
	defer mu.Unlock()
	loaded, absent = true, nil
	if missing := C.gaze_lt_use((*[0]byte)(find), ctx); missing != nil {
		absent = fmt.Errorf("no cuBLASLt: %s is missing", C.GoString(missing))
	}
	return absent
}

// Handle is the library on one context.
type Handle struct {
	ctx    C.CUcontext
	stream C.CUstream
	c      unsafe.Pointer
}

// Plan is an algorithm for one kind of product.
type Plan struct{ c *C.gaze_lt_plan }

// Open makes a handle; the error says when there is no library.
func Open(d *driver.Context) (*Handle, error) {
	if err := load(); err != nil {
		return nil, err
	}
	ctx, stream := d.Handles()
	h := &Handle{ctx: C.CUcontext(ctx), stream: C.CUstream(stream)}
	return h, check("cublasLtCreate", C.gaze_lt_create(h.ctx, &h.c))
}

func check(call string, status C.int) error {
	if status == 0 {
		return nil
	}
	return &Error{call, int(status)}
}

// Close gives the handle back, after its plans.
func (h *Handle) Close() error { return check("cublasLtDestroy", C.gaze_lt_destroy(h.ctx, h.c)) }

// Plan picks an algorithm that needs at most so many bytes of workspace. It may take a millisecond; keep the plan. An error of status
// 15 means that there is none.
func (h *Handle) Plan(p Product, workspace int) (*Plan, error) {
	c := C.gaze_lt_product{_type: C.int32_t(p.Type), m: C.int64_t(p.Out), n: C.int64_t(p.Rows), k: C.int64_t(p.In), lda: C.int64_t(p.WRow),
		ldb: C.int64_t(p.XRow), ldd: C.int64_t(p.Out), align_a: C.uint32_t(p.Align[0]), align_b: C.uint32_t(p.Align[1]),
		align_d: C.uint32_t(p.Align[2]), workspace: C.uint64_t(workspace)}
	if p.Bias {
		c.bias = 1
	}
	plan := &Plan{(*C.gaze_lt_plan)(C.calloc(1, C.sizeof_gaze_lt_plan))}
	if err := check("cublasLtMatmulAlgoGetHeuristic", C.gaze_lt_make(h.ctx, h.c, &c, plan.c)); err != nil {
		C.free(unsafe.Pointer(plan.c))
		return nil, err
	}
	return plan, nil
}

// Close gives the plan back.
func (p *Plan) Close() {
	C.gaze_lt_free(p.c)
	C.free(unsafe.Pointer(p.c))
	p.c = nil
}

// Run launches the product. It allocates nothing.
func (h *Handle) Run(p *Plan, o *Operands) error {
	return check("cublasLtMatmul", C.gaze_lt_run(h.ctx, h.stream, h.c, p.c, C.CUdeviceptr(o.W), C.CUdeviceptr(o.X), C.CUdeviceptr(o.Bias),
		C.CUdeviceptr(o.Out), C.CUdeviceptr(o.Workspace), C.size_t(o.WorkspaceBytes)))
}
