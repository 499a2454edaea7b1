package graph

import (
	"reflect"
	"unsafe"

	"gorgonia.org/tensor"

	"github.com/gaze-ml/gaze/internal/attn"
	"github.com/gaze-ml/gaze/internal/cpu"
	"github.com/gaze-ml/gaze/ops"
)

// Device is where a [Machine] keeps its results and what runs its calls: [CPU], or a GPU. One that is an [ops.Engined] too runs some
// of Gorgonia's own ops.
type Device = ops.Device

// CPU is the device that every program has: Go memory, and the Go backend with GOMAXPROCS threads.
var CPU Device = new(CPUDevice)

// CPUDevice is a device with the Go backend and a number of threads of its own.
type CPUDevice struct {
	backend *cpu.Backend // nil: the one that the process shares
}

// NewCPU makes a device that computes with so many threads, the caller's included; 0 means GOMAXPROCS. Close ends them.
func NewCPU(threads int) *CPUDevice { return &CPUDevice{cpu.New(threads)} }

// Close ends the threads that NewCPU started; [CPU] has none of its own. Machines on the device must not run any more.
func (d *CPUDevice) Close() error {
	if d.backend == nil {
		return nil
	}
	return d.backend.Close()
}

// alignment of every buffer: a cache line, and the widest vector of any backend.
const alignment = 64

// Name is "cpu".
func (d *CPUDevice) Name() string { return "cpu" }

// Backend is the Go backend.
func (d *CPUDevice) Backend() ops.Backend {
	if d.backend == nil {
		return cpu.Default()
	}
	return d.backend
}

// Alloc gives memory of the Go heap, which the system backs when it is first touched.
func (d *CPUDevice) Alloc(bytes int) (p unsafe.Pointer, err error) {
	defer func() {
		if recover() != nil { // make refuses sizes that no address space holds
			err = attn.Errorf(ops.ErrOutOfMemory, "alloc", "bytes", "a size that fits into memory", "%d", bytes)
		}
	}()
	b := make([]byte, bytes+alignment)
	p = unsafe.Pointer(unsafe.SliceData(b))
	return unsafe.Add(p, -uintptr(p)%alignment), nil
}

// Free leaves it to the garbage collector: tensors that the caller still has stay valid.
func (d *CPUDevice) Free(unsafe.Pointer) error { return nil }

// Owns is true for all memory that is no other device's.
func (d *CPUDevice) Owns(p unsafe.Pointer, bytes int) bool { return ops.Owner(p, bytes) == nil }

// Copy copies.
func (d *CPUDevice) Copy(dst, src unsafe.Pointer, bytes int) error {
	copy(bytesAt(dst, bytes), bytesAt(src, bytes))
	return nil
}

// Write copies.
func (d *CPUDevice) Write(dst unsafe.Pointer, src []byte) error {
	copy(bytesAt(dst, len(src)), src)
	return nil
}

// Read copies.
func (d *CPUDevice) Read(dst []byte, src unsafe.Pointer) error {
	copy(dst, bytesAt(src, len(dst)))
	return nil
}

func bytesAt(p unsafe.Pointer, n int) []byte { return unsafe.Slice((*byte)(p), n) }

// onHost tells whether a device's memory is the host's: then it owns a variable of Go.
func onHost(d Device) bool {
	p := new(byte)
	return d.Owns(unsafe.Pointer(p), 1)
}

// headerOf makes a header over memory of a device, which must be contiguous.
func headerOf(d Device, t *attn.Tensor) *tensor.Dense {
	if onHost(d) {
		return dense(t)
	}
	return ops.DeviceTensor(d, t)
}

// dense makes a header over t's memory, which must be contiguous and the host's.
func dense(t *attn.Tensor) *tensor.Dense {
	elems := reflect.SliceAt(ops.Dtype(t.DType).Type, t.Ptr, t.Len()).Interface()
	return tensor.New(tensor.WithShape(t.Shape[:t.Rank]...), tensor.WithBacking(elems))
}
