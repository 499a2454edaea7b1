package ops

import (
	"unsafe"

	"gorgonia.org/tensor"

	"github.com/gaze-ml/gaze/internal/attn"
)

// DeviceTensor makes a header over a device's memory, which t describes and which must be contiguous. Go code must not look at its
// elements, and %v does.
func DeviceTensor(d Device, t *attn.Tensor) *tensor.Dense {
	return tensor.New(tensor.Of(Dtype(t.DType)), tensor.WithShape(t.Shape[:t.Rank]...), tensor.WithEngine(engineOf(d)),
		tensor.FromMemory(uintptr(t.Ptr), uintptr(t.Bytes())))
}

// allocOn makes a zeroed tensor on a device; nil: the host.
func allocOn(d Device, t attn.Tensor) (*tensor.Dense, error) {
	if d == nil {
		return Alloc(t), nil
	}
	p, err := d.Alloc(t.Bytes())
	if err != nil {
		return nil, err
	}
	t.Ptr = p
	return DeviceTensor(d, &t), nil
}

func engineOf(d Device) tensor.Engine {
	if e, ok := d.(Engined); ok {
		return e.TensorEngine()
	}
	return &copying{d}
}

// copying is the engine of a device that runs none of Gorgonia's own ops: it tells package tensor that Go can't look at the memory,
// and copies.
type copying struct{ dev Device }

// memory is device memory as tensor.Memory.
type memory struct {
	at    unsafe.Pointer
	bytes int
}

func (m memory) Uintptr() uintptr { return uintptr(m.at) }
func (m memory) MemSize() uintptr { return uintptr(m.bytes) }

func (e *copying) AllocAccessible() bool           { return false }
func (e *copying) WorksWith(tensor.DataOrder) bool { return true }

func (e *copying) Alloc(size int64) (tensor.Memory, error) {
	p, err := e.dev.Alloc(int(size))
	return memory{p, int(size)}, err
}

func (e *copying) Free(m tensor.Memory, _ int64) error { return e.dev.Free(pointer(m)) }

func (e *copying) Memset(tensor.Memory, any) error {
	return attn.Errorf(ErrUnsupported, "memset", "", "a device with an engine", "%s", e.dev.Name())
}

// Memclr can't tell of an error.
func (e *copying) Memclr(m tensor.Memory) { _ = e.dev.Write(pointer(m), make([]byte, m.MemSize())) }

func (e *copying) Accessible(tensor.Memory) (tensor.Memory, error) {
	return nil, attn.Errorf(ErrDevice, "accessible", "mem", "memory of the host", "memory of %s", e.dev.Name())
}

// Memcpy copies on the device, and from and to the host.
func (e *copying) Memcpy(dst, src tensor.Memory) error {
	n := int(min(dst.MemSize(), src.MemSize()))
	to, from := pointer(dst), pointer(src)
	switch toDevice, fromDevice := e.dev.Owns(to, n), e.dev.Owns(from, n); {
	case n == 0:
		return nil
	case toDevice && fromDevice:
		return e.dev.Copy(to, from, n)
	case toDevice:
		return e.dev.Write(to, unsafe.Slice((*byte)(from), n))
	case fromDevice:
		return e.dev.Read(unsafe.Slice((*byte)(to), n), from)
	}
	return attn.Errorf(ErrDevice, "memcpy", "", "memory of "+e.dev.Name()+" on one side", "none")
}

// pointer is the address as package unsafe wants it: Go memory stays alive by m, device memory is nothing that Go follows.
func pointer(m tensor.Memory) unsafe.Pointer {
	p := m.Uintptr()
	return *(*unsafe.Pointer)(unsafe.Pointer(&p))
}
