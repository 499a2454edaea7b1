// Package driver is the one place of cudaops that knows C: the CUDA driver API, through gorgonia.org/cu where that has the call and
// through a thin layer of C where it does not (launches with attributes, pinned memory, graphs) or where a call must set its
// context and do its work without a second crossing into C.
//
// Nothing happens at init. Without the build tag gpu, or where the driver or a device is missing, [Count], [Query] and [Open] say so
// in an [*Error]; types and methods are the same in every build.
package driver

import (
	"fmt"
	"unsafe"
)

// Pointer is unsafe.Pointer, so that the layers above need not import unsafe to name a tensor's memory.
type Pointer = unsafe.Pointer

// Addr is a device address.
type Addr uint64

// Of is the address that a device tensor's pointer stands for.
func Of(p Pointer) Addr { return Addr(uintptr(p)) }

// Pointer is the pointer by which tensors name a. It must never be followed on the host.
func (a Addr) Pointer() Pointer { return *(*Pointer)(unsafe.Pointer(&a)) }

// Host is n bytes of host memory at p, for a copy: p is not a device address, and what it points to outlives the slice.
func Host(p Pointer, n int) []byte { return unsafe.Slice((*byte)(p), n) }

// Memory is the address of a non-empty slice's bytes.
func Memory(b []byte) Pointer { return unsafe.Pointer(unsafe.SliceData(b)) }

// Properties describes a device.
type Properties struct {
	Ordinal      int
	Name         string
	UUID         string
	Capability   int // major·10 + minor: 90 is Hopper
	SMs          int // streaming multiprocessors
	Memory       int // bytes
	SharedMemory int // bytes a block may have when its kernel asks for them
	L2           int // bytes
	Driver       int // the newest CUDA that the driver knows, 1000·major + 10·minor
}

// Launch is the shape of one kernel launch.
type Launch struct {
	Grid, Block [3]uint32
	Shared      uint32 // dynamic shared memory, bytes
	Cluster     uint32 // blocks along x in a thread-block cluster; 0: none
	Overlap     uint32 // 1: programmatic dependent launch, the kernel may start before the one ahead of it has ended
}

// Tiled describes a tensor of four dimensions, the innermost first, for bulk copies of boxes into shared memory with its 128-byte
// swizzle; elements outside come as 0.
type Tiled struct {
	Address Addr // a multiple of 16
	Dims    [4]uint64
	Strides [3]uint64 // of the outer three, in bytes, multiples of 16
	Box     [4]uint32
	BF16    uint32 // 1: bfloat16, 0: float16
}

// Map is a CUtensorMap.
type Map = [16]uint64

// Error is a driver call that failed, or a driver that isn't there (Code -1).
type Error struct {
	Call string // "cuMemAlloc"
	Code int    // CUresult
	Text string // "CUDA_ERROR_OUT_OF_MEMORY: out of memory", or the loader's words
}

func (e *Error) Error() string { return e.Call + ": " + e.Text }

// The results that callers tell apart.
const (
	codeAbsent        = -1
	codeOutOfMemory   = 2
	codeNotInit       = 3
	codeStubLibrary   = 34
	codeNoDevice      = 100
	codeInvalidDevice = 101
)

// Absent tells whether there is no device, no driver, or no support for either in this build.
func (e *Error) Absent() bool {
	switch e.Code {
	case codeAbsent, codeNotInit, codeStubLibrary, codeNoDevice, codeInvalidDevice:
		return true
	}
	return false
}

// OutOfMemory tells whether device or pinned memory ran out; the context is as before.
func (e *Error) OutOfMemory() bool { return e.Code == codeOutOfMemory }

// Sticky tells whether the context is broken for good: a kernel has failed, and every later call on the device reports it.
func (e *Error) Sticky() bool {
	switch e.Code {
	case 214, 220, // ECC, NVLink
		700, 702, // illegal address, time-out
		709, 710, // context destroyed, assert
		714, 715, 716, 717, 718, 719: // stack, instruction, alignment, address space, program counter, launch failure
		return true
	}
	return false
}

func absent(call, format string, a ...any) *Error {
	return &Error{Call: call, Code: codeAbsent, Text: fmt.Sprintf(format, a...)}
}
