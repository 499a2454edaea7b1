//go:build gpu && linux && amd64 && cgo

package driver

// #include "calls.h"
import "C"

import (
	"runtime"
	"unsafe"

	"gorgonia.org/cu"
)

// Context is a device with one stream. It is the device's primary context, which every library in the process shares; a kernel
// that fails breaks it until all its Contexts are closed. Methods may be called from any goroutine, one at a time.
type Context struct {
	device cu.Device
	ctx    cu.CUContext
	stream cu.Stream

	c C.CUcontext
	s C.CUstream
}

// Event is a mark in the stream.
type Event struct {
	event cu.Event
	c     C.CUevent
}

// Open makes a context on device n.
func Open(n int) (*Context, error) {
	d, err := get(n)
	if err != nil {
		return nil, err
	}
	c := &Context{device: d}
	if c.ctx, err = d.RetainPrimaryCtx(); err != nil {
		return nil, checkCU("cuDevicePrimaryCtxRetain", err)
	}
	err = c.within("cuStreamCreate", func() (err error) {
		if r := C.cuCtxGetCurrent(&c.c); r != C.CUDA_SUCCESS {
			return failed("cuCtxGetCurrent", r)
		}
		c.stream, err = cu.MakeStream(C.CU_STREAM_NON_BLOCKING)
		c.s = C.CUstream(unsafe.Pointer(c.stream.C()))
		return err
	})
	if err != nil {
		d.ReleasePrimaryCtx()
		return nil, err
	}
	return c, nil
}

// within calls f with the context current on a locked thread; f's error is package cu's or this package's.
func (c *Context) within(call string, f func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := cu.SetCurrentContext(c.ctx); err != nil {
		return checkCU("cuCtxSetCurrent", err)
	}
	err := f()
	if e, ok := err.(*Error); ok {
		return e
	}
	return checkCU(call, err)
}

// Close gives the stream and the context back. Memory, modules, events and graphs are the caller's to give back before.
func (c *Context) Close() error {
	err := c.within("cuStreamDestroy", func() error { return c.stream.Destroy() })
	if release := checkCU("cuDevicePrimaryCtxRelease", c.device.ReleasePrimaryCtx()); err == nil {
		err = release
	}
	return err
}

// Sync waits for everything in the stream.
func (c *Context) Sync() error { return check("cuStreamSynchronize", C.gaze_sync(c.c, c.s)) }

// MemInfo is the device's free and total memory in bytes.
func (c *Context) MemInfo() (free, total int, err error) {
	err = c.within("cuMemGetInfo", func() error {
		f, t, err := cu.MemInfo()
		free, total = int(f), int(t)
		return err
	})
	return free, total, err
}

// Alloc gives n > 0 bytes of device memory, aligned to 256.
func (c *Context) Alloc(n int) (a Addr, err error) {
	err = c.within("cuMemAlloc", func() error {
		p, err := cu.MemAlloc(int64(n))
		a = Addr(p)
		return err
	})
	return a, err
}

// Free gives memory of Alloc back; the driver waits for kernels that may use it.
func (c *Context) Free(a Addr) error {
	return c.within("cuMemFree", func() error { return cu.MemFree(cu.DevicePtr(a)) })
}

// AllocPinned gives n > 0 bytes of page-locked host memory, which copies need to run beside the host.
func (c *Context) AllocPinned(n int) (b []byte, err error) {
	err = c.within("cuMemHostAlloc", func() error {
		var p unsafe.Pointer
		if r := C.cuMemHostAlloc(&p, C.size_t(n), C.CU_MEMHOSTALLOC_PORTABLE); r != C.CUDA_SUCCESS {
			return failed("cuMemHostAlloc", r)
		}
		b = unsafe.Slice((*byte)(p), n)
		return nil
	})
	return b, err
}

// FreePinned gives memory of AllocPinned back.
func (c *Context) FreePinned(b []byte) error {
	return c.within("cuMemFreeHost", func() error { return cu.MemFreeHost(unsafe.Pointer(unsafe.SliceData(b))) })
}

// ToDevice copies src to dst in stream order. Pinned memory must stay as it is until then; other memory has been read on return.
func (c *Context) ToDevice(dst Addr, src []byte) error {
	p := unsafe.Pointer(unsafe.SliceData(src))
	return check("cuMemcpyHtoDAsync", C.gaze_to_device(c.c, c.s, C.CUdeviceptr(dst), p, C.size_t(len(src))))
}

// ToHost copies src to dst in stream order; pinned memory is written when the stream gets there, other memory before the return.
func (c *Context) ToHost(dst []byte, src Addr) error {
	p := unsafe.Pointer(unsafe.SliceData(dst))
	return check("cuMemcpyDtoHAsync", C.gaze_to_host(c.c, c.s, p, C.CUdeviceptr(src), C.size_t(len(dst))))
}

// OnDevice copies n bytes in stream order; the ranges must not overlap.
func (c *Context) OnDevice(dst, src Addr, n int) error {
	return check("cuMemcpyDtoDAsync", C.gaze_on_device(c.c, c.s, C.CUdeviceptr(dst), C.CUdeviceptr(src), C.size_t(n)))
}

// Fill sets n bytes to b in stream order.
func (c *Context) Fill(dst Addr, b byte, n int) error {
	return check("cuMemsetD8Async", C.gaze_fill(c.c, c.s, C.CUdeviceptr(dst), C.uchar(b), C.size_t(n)))
}

// NewEvent makes a mark, not yet in the stream.
func (c *Context) NewEvent() (*Event, error) {
	e := new(Event)
	err := c.within("cuEventCreate", func() (err error) {
		e.event, err = cu.MakeEvent(cu.DefaultEvent)
		e.c = *(*C.CUevent)(unsafe.Pointer(&e.event))
		return err
	})
	return e, err
}

// Record puts e at the stream's end.
func (c *Context) Record(e *Event) error { return check("cuEventRecord", C.gaze_record(c.c, c.s, e.c)) }

// Wait waits until the stream has come to e; at once for an event that was never recorded.
func (c *Context) Wait(e *Event) error { return check("cuEventSynchronize", C.gaze_wait(c.c, e.c)) }

// Destroy gives e back.
func (c *Context) Destroy(e *Event) error {
	return c.within("cuEventDestroy", func() error { return cu.DestroyEvent(&e.event) })
}

// Elapsed is the device's time between two marks that the stream has passed, in milliseconds.
func (c *Context) Elapsed(from, to *Event) (ms float64, err error) {
	err = c.within("cuEventElapsedTime", func() (err error) {
		ms, err = from.event.Elapsed(to.event)
		return err
	})
	return ms, err
}

// Handles are the context and the stream as C has them, for libraries that launch into the stream.
func (c *Context) Handles() (ctx, stream Pointer) {
	return Pointer(c.c), Pointer(c.s)
}

// OnHost tells whether p is no device's memory. Where the driver can't tell, as after a failed kernel, it is taken for a device's, which
// nobody reads. The driver wants a current context for it.
func (c *Context) OnHost(p Pointer) bool {
	var kind C.uint
	r := C.gaze_kind(number(unsafe.Pointer(c.c)), C.CUdeviceptr(Of(p)), &kind)
	return r == C.CUDA_ERROR_INVALID_VALUE || r == C.CUDA_SUCCESS && kind == C.CU_MEMORYTYPE_HOST
}
