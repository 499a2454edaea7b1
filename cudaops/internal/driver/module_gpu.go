//go:build gpu && linux && amd64 && cgo

package driver

// #include "calls.h"
// #include <stdlib.h>
import "C"

import (
	"fmt"
	"strings"
	"unsafe"
)

// Module is loaded code.
type Module struct{ c C.CUmodule }

// Function is a kernel with one parameter, a struct by value.
type Function struct {
	c      C.CUfunction
	params uintptr // bytes of the struct

	Registers int // a thread
	Local     int // bytes of local memory a thread: spills and arrays
	Shared    int // bytes of static shared memory a block
}

// Load makes a module of a cubin or of PTX, which ends with a zero byte. An error of the driver's own compiler comes with its log.
func (c *Context) Load(image []byte) (*Module, error) {
	if len(image) == 0 {
		return nil, &Error{Call: "cuModuleLoadDataEx", Code: int(C.CUDA_ERROR_INVALID_IMAGE), Text: "an empty image"}
	}
	const size = 8 << 10
	log := (*C.char)(C.calloc(size, 1))
	defer C.free(unsafe.Pointer(log))
	options := [...]C.CUjit_option{C.CU_JIT_ERROR_LOG_BUFFER, C.CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES}
	values := (*[2]unsafe.Pointer)(C.calloc(2, C.size_t(unsafe.Sizeof(uintptr(0)))))
	defer C.free(unsafe.Pointer(values))
	values[0] = unsafe.Pointer(log)
	*(*uintptr)(unsafe.Pointer(&values[1])) = size
	m := new(Module)
	err := c.within("cuModuleLoadDataEx", func() error {
		r := C.cuModuleLoadDataEx(&m.c, unsafe.Pointer(&image[0]), C.uint(len(options)), &options[0], &values[0])
		if r == C.CUDA_SUCCESS {
			return nil
		}
		e := failed("cuModuleLoadDataEx", r)
		if text := strings.TrimSpace(C.GoString(log)); text != "" {
			e.Text += ": " + text
		}
		return e
	})
	if err != nil {
		return nil, err
	}
	return m, nil
}

// Unload gives the module back; its functions end with it.
func (c *Context) Unload(m *Module) error {
	return c.within("cuModuleUnload", func() error { return check("cuModuleUnload", C.cuModuleUnload(m.c)) })
}

// Function finds a kernel.
func (c *Context) Function(m *Module, symbol string) (*Function, error) {
	name := C.CString(symbol)
	defer C.free(unsafe.Pointer(name))
	f := new(Function)
	err := c.within("cuModuleGetFunction", func() error {
		if r := C.cuModuleGetFunction(&f.c, m.c, name); r != C.CUDA_SUCCESS {
			return failed("cuModuleGetFunction "+symbol, r)
		}
		var offset, size C.size_t
		if r := C.cuFuncGetParamInfo(f.c, 0, &offset, &size); r != C.CUDA_SUCCESS {
			return failed("cuFuncGetParamInfo "+symbol, r)
		}
		f.params = uintptr(size)
		for _, a := range []struct {
			of C.CUfunction_attribute
			to *int
		}{
			{C.CU_FUNC_ATTRIBUTE_NUM_REGS, &f.Registers}, {C.CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, &f.Local},
			{C.CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, &f.Shared},
		} {
			var v C.int
			if r := C.cuFuncGetAttribute(&v, a.of, f.c); r != C.CUDA_SUCCESS {
				return failed("cuFuncGetAttribute "+symbol, r)
			}
			*a.to = int(v)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return f, nil
}

// AllowShared lets f's launches ask for up to n bytes of dynamic shared memory.
func (c *Context) AllowShared(f *Function, n int) error {
	return c.within("cuFuncSetAttribute", func() error {
		return check("cuFuncSetAttribute", C.cuFuncSetAttribute(f.c, C.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, C.int(n)))
	})
}

// Run launches f with one argument, the struct at p, by value. P holds no Go pointers and is laid out as the kernel's parameter. It
// allocates nothing when all is well.
func Run[P any](c *Context, f *Function, l *Launch, p *P) error {
	if n := unsafe.Sizeof(*p); n != f.params {
		return &Error{Call: "cuLaunchKernelEx", Code: int(C.CUDA_ERROR_INVALID_VALUE),
			Text: fmt.Sprintf("the parameter struct %T has %d bytes, the kernel takes %d", *p, n, f.params)}
	}
	return run(c, f, l, unsafe.Pointer(p))
}

func run(c *Context, f *Function, l *Launch, p unsafe.Pointer) error {
	return check("cuLaunchKernelEx", C.gaze_run(number(unsafe.Pointer(c.c)), number(unsafe.Pointer(c.s)), number(unsafe.Pointer(f.c)),
		(*C.gaze_launch)(unsafe.Pointer(l)), (*C.uint64_t)(p)))
}

func number(handle unsafe.Pointer) C.uintptr_t { return C.uintptr_t(uintptr(handle)) }

// Encode makes two maps in one crossing into C. The driver wants a current context for it, though it says nothing of one: without, or with
// one that is gone, it answers CUDA_ERROR_INVALID_CONTEXT.
func (c *Context) Encode(first, second *Map, t *[2]Tiled) error {
	return check("cuTensorMapEncodeTiled",
		C.gaze_encode(number(unsafe.Pointer(c.c)), (*C.uint64_t)(&first[0]), (*C.uint64_t)(&second[0]), (*C.gaze_tiled)(unsafe.Pointer(t))))
}

// What crosses into C by address is laid out as C has it.
var (
	_ = [1]struct{}{}[unsafe.Sizeof(Launch{})-C.sizeof_gaze_launch]
	_ = [1]struct{}{}[unsafe.Sizeof(Tiled{})-C.sizeof_gaze_tiled]
	_ = [1]struct{}{}[unsafe.Sizeof(Map{})-C.sizeof_CUtensorMap]
)
