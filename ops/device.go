package ops

import (
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/gaze-ml/gaze/internal/attn"
	"github.com/gaze-ml/gaze/internal/cpu"
)

// Device is memory and the backend that runs calls whose operands lie in it. Pointers of memory that isn't the host's are names:
// only the device follows them. Methods may be called from several goroutines; work runs in the order of the calls.
type Device interface {
	// Name tells people which device it is: "cpu", "cuda:0".
	Name() string
	// Backend runs calls whose operands lie in the device's memory; lengths and tables may be the host's, for it to copy in.
	Backend() Backend
	// Alloc gives zeroed memory, aligned to 64 bytes, that stays until Free; ErrOutOfMemory where there is none.
	Alloc(bytes int) (unsafe.Pointer, error)
	// Free takes back what Alloc gave.
	Free(unsafe.Pointer) error
	// Owns tells whether so many bytes from p on are the device's memory.
	Owns(p unsafe.Pointer, bytes int) bool
	// Copy copies within the device's memory, after the calls before it and before those after it.
	Copy(dst, src unsafe.Pointer, bytes int) error
	// Write copies the host's bytes to the device, after the calls before it. It returns when src has been read.
	Write(dst unsafe.Pointer, src []byte) error
	// Read copies the device's memory to the host, after the calls before it, and waits for it. Its error may be that of a call
	// before.
	Read(dst []byte, src unsafe.Pointer) error
}

// Engined is a [Device] that also runs some of Gorgonia's own ops, by an engine that takes device tensors of float32.
type Engined interface {
	TensorEngine() tensor.Engine
}

var (
	registering sync.Mutex
	devices     atomic.Pointer[[]Device] // nil while nobody has registered
)

// Register makes direct calls and ops under the TapeMachine find d by the addresses of their tensors. A device registers when it is
// opened and calls [Unregister] before it closes.
func Register(d Device) {
	change(func(all []Device) []Device {
		if slices.Contains(all, d) {
			return all
		}
		return append(all, d)
	})
}

// Unregister is the opposite of [Register].
func Unregister(d Device) {
	change(func(all []Device) []Device { return slices.DeleteFunc(all, func(o Device) bool { return o == d }) })
}

func change(f func([]Device) []Device) {
	registering.Lock()
	defer registering.Unlock()
	var all []Device
	if now := devices.Load(); now != nil {
		all = slices.Clone(*now)
	}
	if all = f(all); len(all) == 0 {
		devices.Store(nil)
		return
	}
	devices.Store(&all)
}

// Owner is the registered device in whose memory so many bytes from p on lie; nil: none, so they are the host's or nobody's.
func Owner(p unsafe.Pointer, bytes int) Device {
	if all := devices.Load(); all != nil {
		for _, d := range *all {
			if d.Owns(p, bytes) {
				return d
			}
		}
	}
	return nil
}

// Locate is the registered device on which a value lies; nil: the host. It goes by the address, whatever engine and flags say, for
// machines change these. They only tell memory that nobody owns any more, which is ErrDevice, from the host's.
func Locate(op, arg string, v gorgonia.Value) (Device, error) {
	d, ok := v.(*tensor.Dense)
	if !ok || d == nil || d.MemSize() == 0 {
		return nil, nil
	}
	if dev := Owner(pointer(d), int(d.MemSize())); dev != nil {
		return dev, nil
	}
	if !d.IsNativelyAccessible() && d.IsManuallyManaged() {
		return nil, attn.Errorf(ErrDevice, op, arg, "memory of the host or of an open device", "an address in none: freed, or of a device that was closed")
	}
	return nil, nil
}

// Span is the number of bytes from t's first element to behind its last.
func Span(t *attn.Tensor) int { return extent(t) * t.DType.Size() }

// places finds the one device on which the operands of a call lie.
type places struct {
	op        string
	dev       Device // nil: the host
	arg       string // the operand that told; "": none yet
	tables    Device // that of lengths and tables that are not the host's
	tablesArg string
	hostTable string // a length or table that is
}

// see looks at an operand. Lengths, tables and offsets, which are the operands of integers that are only read, may be the host's.
func (p *places) see(arg string, v gorgonia.Value, t *attn.Tensor) error {
	dev, err := Locate(p.op, arg, v)
	if err != nil || t.Ptr == nil {
		return err
	}
	if integers := t.DType == attn.I32 || t.DType == attn.U32 || t.DType == attn.I64; integers && arg != "out" && arg != "indices" {
		if dev == nil {
			p.hostTable = arg
			return nil
		}
		if p.tables != nil && p.tables != dev {
			return elsewhere(p.op, arg, p.tables, p.tablesArg, dev)
		}
		p.tables, p.tablesArg = dev, arg
		return nil
	}
	if p.arg != "" && p.dev != dev {
		return elsewhere(p.op, arg, p.dev, p.arg, dev)
	}
	p.dev, p.arg = dev, arg
	return nil
}

// backend is that of the operands' device. A call that a CUDA graph may hold can't take tables of the host: a replay would copy old
// values.
func (p *places) backend(c attn.Call) (Backend, error) {
	if prefill, ok := c.(*attn.PrefillCall); ok && prefill.CUDAGraph && p.dev != nil && p.hostTable != "" {
		return nil, elsewhere(p.op, p.hostTable, p.dev, p.arg+" with is_cuda_graph_compatible", nil)
	}
	if p.tables != nil && p.tables != p.dev {
		return nil, elsewhere(p.op, p.tablesArg, p.dev, p.arg, p.tables)
	}
	if p.dev == nil {
		return cpu.Default(), nil
	}
	return p.dev.Backend(), nil
}

func elsewhere(op, arg string, want Device, as string, got Device) error {
	return attn.Errorf(ErrDevice, op, arg, "memory of "+nameOf(want)+", as "+as, "memory of %s", nameOf(got))
}

func nameOf(d Device) string {
	if d == nil {
		return "the host"
	}
	return d.Name()
}
