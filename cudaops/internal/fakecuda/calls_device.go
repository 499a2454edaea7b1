//go:build gpu && linux && amd64 && cgo

package fakecuda

// #include <cuda.h>
// #include "table.h"
import "C"

import (
	"fmt"
	"slices"
	"syscall"
	"unsafe"
)

// call is the frame of every driver function: counted, failing when a test wants it, else f's work under the lock.
func call(function string, f func() int) C.CUresult {
	mu.Lock()
	defer mu.Unlock()
	host.calls[function]++
	if code := host.failing(function); code != success {
		return C.CUresult(code)
	}
	return C.CUresult(f())
}

// within is call for functions that need a current context, which gives the device; a broken device answers for all of them.
func within(function string, f func(d *device) int) C.CUresult {
	return call(function, func() int {
		n := int(C.fake_current())
		if n < 1 || n > len(host.devices) || host.devices[n-1].retained == 0 {
			return invalidContext
		}
		d := host.devices[n-1]
		if d.broken != success {
			return d.broken
		}
		return f(d)
	})
}

var names = map[int]string{success: "CUDA_SUCCESS", invalidValue: "CUDA_ERROR_INVALID_VALUE", outOfMemory: "CUDA_ERROR_OUT_OF_MEMORY",
	invalidDevice: "CUDA_ERROR_INVALID_DEVICE", invalidImage: "CUDA_ERROR_INVALID_IMAGE", invalidContext: "CUDA_ERROR_INVALID_CONTEXT",
	invalidHandle: "CUDA_ERROR_INVALID_HANDLE", notFound: "CUDA_ERROR_NOT_FOUND", illegalAddress: "CUDA_ERROR_ILLEGAL_ADDRESS",
	outOfResources: "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", captureRefused: "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"}

var texts = map[int]*C.char{}

func text(code C.CUresult, p **C.char) C.CUresult {
	return call("", func() int {
		n, ok := names[int(code)]
		if !ok {
			return invalidValue
		}
		if texts[int(code)] == nil {
			texts[int(code)] = C.CString(n)
		}
		*p = texts[int(code)]
		return success
	})
}

//export fakeGetErrorName
func fakeGetErrorName(code C.CUresult, p **C.char) C.CUresult { return text(code, p) }

//export fakeGetErrorString
func fakeGetErrorString(code C.CUresult, p **C.char) C.CUresult { return text(code, p) }

//export fakeDriverGetVersion
func fakeDriverGetVersion(p *C.int) C.CUresult {
	return call("cuDriverGetVersion", func() int { *p = 13000; return success })
}

//export fakeDeviceGetCount
func fakeDeviceGetCount(p *C.int) C.CUresult {
	return call("cuDeviceGetCount", func() int { *p = C.int(host.Devices); return success })
}

//export fakeDeviceGet
func fakeDeviceGet(p *C.CUdevice, n C.int) C.CUresult {
	return call("cuDeviceGet", func() int {
		if n < 0 || int(n) >= host.Devices {
			return invalidDevice
		}
		*p = C.CUdevice(n)
		return success
	})
}

//export fakeDeviceGetName
func fakeDeviceGetName(p *C.char, n C.int, d C.CUdevice) C.CUresult {
	return call("cuDeviceGetName", func() int {
		b := unsafe.Slice((*byte)(unsafe.Pointer(p)), int(n))
		copy(b, fmt.Sprintf("Fake GPU %d\x00", int(d)))
		return success
	})
}

//export fakeDeviceGetUuid
func fakeDeviceGetUuid(p *C.CUuuid, d C.CUdevice) C.CUresult {
	return call("cuDeviceGetUuid", func() int { p.bytes[15] = C.char(d); return success })
}

//export fakeDeviceTotalMem
func fakeDeviceTotalMem(p *C.size_t, d C.CUdevice) C.CUresult {
	return call("cuDeviceTotalMem_v2", func() int { *p = C.size_t(host.Memory); return success })
}

//export fakeDeviceGetAttribute
func fakeDeviceGetAttribute(p *C.int, a C.CUdevice_attribute, d C.CUdevice) C.CUresult {
	return call("cuDeviceGetAttribute", func() int {
		v, ok := map[C.CUdevice_attribute]int{
			C.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: host.Capability / 10, C.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: host.Capability % 10,
			C.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: host.SMs, C.CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: host.Shared,
			C.CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE: 50 << 20,
		}[a]
		if !ok {
			return invalidValue
		}
		*p = C.int(v)
		return success
	})
}

//export fakeDevicePrimaryCtxRetain
func fakeDevicePrimaryCtxRetain(p *C.CUcontext, d C.CUdevice) C.CUresult {
	return call("cuDevicePrimaryCtxRetain", func() int {
		host.devices[d].retained++
		*(*uintptr)(unsafe.Pointer(p)) = uintptr(d) + 1
		return success
	})
}

//export fakeDevicePrimaryCtxRelease
func fakeDevicePrimaryCtxRelease(n C.CUdevice) C.CUresult {
	return call("cuDevicePrimaryCtxRelease", func() int {
		d := host.devices[n]
		if d.retained == 0 {
			return invalidContext
		}
		if d.retained--; d.retained == 0 && d.broken != success {
			host.destroy(d)
		}
		return success
	})
}

//export fakeMemGetInfo
func fakeMemGetInfo(free, total *C.size_t) C.CUresult {
	return within("cuMemGetInfo", func(d *device) int {
		*free, *total = C.size_t(d.total-d.used), C.size_t(d.total)
		return success
	})
}

//export fakeMemAlloc
func fakeMemAlloc(p *C.CUdeviceptr, n C.size_t) C.CUresult {
	return within("cuMemAlloc", func(d *device) int {
		at, again := (d.next+511)&^511, n <= C.size_t(d.freed.bytes)
		if again { // as drivers do
			at = d.freed.at
		}
		switch {
		case n == 0:
			return invalidValue
		case d.used+int(n) > d.total || at+int(n) > space:
			return outOfMemory
		}
		if again {
			d.freed.bytes = 0
		}
		a := d.base() + uint64(at)
		d.next = max(d.next, at+int(n))
		d.allocations[a] = int(n)
		d.used += int(n)
		for i := range d.bytes[at : at+int(n)] { // what fresh memory holds is nobody's to rely on
			if i == 1<<20 {
				break
			}
			d.bytes[at+i] = 0xcd
		}
		*p = C.CUdeviceptr(a)
		return success
	})
}

//export fakeMemFree
func fakeMemFree(p C.CUdeviceptr) C.CUresult {
	return within("cuMemFree", func(d *device) int {
		n, ok := d.allocations[uint64(p)]
		if !ok {
			return invalidValue
		}
		for _, s := range host.streams {
			if s.device == d {
				s.drain(len(s.pending))
			}
		}
		delete(d.allocations, uint64(p))
		d.used -= n
		d.freed.at, d.freed.bytes = int(uint64(p)-d.base()), (n+511)&^511
		return d.broken
	})
}

//export fakePointerGetAttribute
func fakePointerGetAttribute(v unsafe.Pointer, a C.CUpointer_attribute, p C.CUdeviceptr) C.CUresult {
	return within("cuPointerGetAttribute", func(*device) int {
		for _, d := range host.devices {
			if a == C.CU_POINTER_ATTRIBUTE_MEMORY_TYPE && d.inside(uint64(p), 1) {
				*(*uint32)(v) = C.CU_MEMORYTYPE_DEVICE
				return success
			}
		}
		return invalidValue
	})
}

//export fakeMemHostAlloc
func fakeMemHostAlloc(p *unsafe.Pointer, n C.size_t, flags C.uint) C.CUresult {
	return within("cuMemHostAlloc", func(d *device) int {
		b, err := syscall.Mmap(-1, 0, int(n), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
		if err != nil {
			return outOfMemory
		}
		*p = unsafe.Pointer(unsafe.SliceData(b))
		host.pinned[uintptr(*p)] = b
		host.owner[uintptr(*p)] = d
		return success
	})
}

//export fakeMemFreeHost
func fakeMemFreeHost(p unsafe.Pointer) C.CUresult {
	return within("cuMemFreeHost", func(*device) int {
		b, ok := host.pinned[uintptr(p)]
		if !ok {
			return invalidValue
		}
		delete(host.pinned, uintptr(p))
		syscall.Munmap(b)
		return success
	})
}

func isPinned(p unsafe.Pointer, n int) bool {
	for start, b := range host.pinned {
		if a := uintptr(p); a >= start && a+uintptr(n) <= start+uintptr(len(b)) {
			return true
		}
	}
	return false
}

// contents copies host memory.
func contents(p unsafe.Pointer, n int) []byte { return slices.Clone(unsafe.Slice((*byte)(p), n)) }
