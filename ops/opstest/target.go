package opstest

import (
	"fmt"
	"sync"
	"unsafe"

	"github.com/gaze-ml/gaze/internal/attn"
)

// Target is what the suite tries: a backend and the memory that it works on.
type Target struct {
	Backend  attn.Backend
	Memory   Memory   // nil: HostMemory
	Accuracy Accuracy // how near results must come; the zero value is Exact
}

// Memory is where a backend's tensors live.
type Memory interface {
	// Alloc gives n > 0 bytes of any content, aligned to 256 bytes. Large blocks need not be backed before they are written:
	// the cases about offsets beyond 2³¹ elements ask for much more than they touch.
	Alloc(n int) (unsafe.Pointer, error)
	Free(unsafe.Pointer)
	// Write copies host bytes to dst, Read the other way; Read waits for what was launched before.
	Write(dst unsafe.Pointer, src []byte) error
	Read(dst []byte, src unsafe.Pointer) error
}

// HostMemory is ordinary memory of this process.
type HostMemory struct {
	mu     sync.Mutex
	mapped map[unsafe.Pointer][]byte
}

const (
	alignment = 256
	// mapFrom is the size from which blocks are mapped lazily instead of allocated.
	mapFrom = 1 << 28
)

// Alloc gives memory of the Go heap, or, from 256 MiB on, an anonymous mapping where the system has it.
func (m *HostMemory) Alloc(n int) (unsafe.Pointer, error) {
	if n >= mapFrom {
		b, err := reserve(n)
		if err != nil {
			return nil, fmt.Errorf("%d bytes of address space: %w", n, err)
		}
		p := unsafe.Pointer(unsafe.SliceData(b))
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.mapped == nil {
			m.mapped = make(map[unsafe.Pointer][]byte)
		}
		m.mapped[p] = b
		return p, nil
	}
	b := make([]byte, n+alignment)
	p := unsafe.Pointer(unsafe.SliceData(b))
	return unsafe.Add(p, -uintptr(p)&(alignment-1)), nil
}

// Free returns mappings to the system; the garbage collector has the rest.
func (m *HostMemory) Free(p unsafe.Pointer) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if b, ok := m.mapped[p]; ok {
		delete(m.mapped, p)
		release(b)
	}
}

// Write copies.
func (m *HostMemory) Write(dst unsafe.Pointer, src []byte) error {
	copy(unsafe.Slice((*byte)(dst), len(src)), src)
	return nil
}

// Read copies.
func (m *HostMemory) Read(dst []byte, src unsafe.Pointer) error {
	copy(dst, unsafe.Slice((*byte)(src), len(dst)))
	return nil
}
