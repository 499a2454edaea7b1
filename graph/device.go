package graph

import (
	"reflect"
	"unsafe"

	"gorgonia.org/tensor"

	"github.com/gaze-ml/gaze/internal/attn"
	"github.com/gaze-ml/gaze/internal/cpu"
	"github.com/gaze-ml/gaze/ops"
)

// Device is where a [Machine] keeps its results and what runs its calls.
type Device interface {
	// Name tells people which device it is, "cpu".
	Name() string
	// Backend runs calls whose operands lie in the device's memory.
	Backend() ops.Backend
	// Alloc gives zeroed memory, aligned to 64 bytes, that stays until Free; ErrOutOfMemory where there is none.
	Alloc(bytes int) (unsafe.Pointer, error)
	// Free takes back what Alloc gave.
	Free(unsafe.Pointer) error
	// Copy copies within the device's memory, after the calls before it and before those after it.
	Copy(dst, src unsafe.Pointer, bytes int) error
}

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

// Copy copies.
func (d *CPUDevice) Copy(dst, src unsafe.Pointer, bytes int) error {
	copy(unsafe.Slice((*byte)(dst), bytes), unsafe.Slice((*byte)(src), bytes))
	return nil
}

// dense makes a header over t's memory, which must be contiguous and the host's.
func dense(t *attn.Tensor) *tensor.Dense {
	elems := reflect.SliceAt(ops.Dtype(t.DType).Type, t.Ptr, t.Len()).Interface()
	return tensor.New(tensor.WithShape(t.Shape[:t.Rank]...), tensor.WithBacking(elems))
}
