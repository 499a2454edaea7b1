package fakedevice

import (
	"fmt"
	"slices"
	"sync"
	"unsafe"

	"gorgonia.org/tensor"

	"github.com/gaze-ml/gaze/internal/attn"
	"github.com/gaze-ml/gaze/internal/cpu"
	"github.com/gaze-ml/gaze/ops"
)

// Device is a graph.Device whose memory is an arena.
type Device struct {
	name    string
	cpu     *cpu.Backend
	backend backend
	engine  engine

	mu     sync.Mutex // one call at a time, as on a stream
	mem    []byte     // the arena; nil once closed
	blocks []block    // what Alloc gave, by address
	fail   map[string]failure
	refuse func(attn.Call) []error
	counts Counts
	record *recording // under way
}

// block is one allocation, as offsets into the arena.
type block struct{ at, end int }

// Counts is what was done to a device.
type Counts struct {
	Writes, Reads, Copies            int
	WrittenBytes, ReadBytes          int
	Launches                         int // calls of gaze's ops
	EngineOps                        int // of Gorgonia's own
	Replays                          int // of recordings
	Allocs, Frees, Blocks, UsedBytes int // Blocks and UsedBytes are those that are there now
}

type failure struct {
	after int // so many of the kind still work
	err   error
	panic any
}

// Alignment and distance of allocations: an overrun hits nobody's memory.
const (
	alignment = 64
	gap       = 64
)

// New makes a device with so many bytes and registers it. The error is ErrNoDevice where the system can't protect pages: tests must
// say that they are skipped.
func New(name string, bytes int) (*Device, error) {
	mem, err := reserve(bytes)
	if err != nil {
		return nil, err
	}
	d := &Device{name: name, cpu: cpu.New(1), mem: mem, fail: map[string]failure{}}
	d.backend.dev, d.engine.dev = d, d
	ops.Register(d)
	return d, nil
}

// Name is what New was told.
func (d *Device) Name() string { return d.name }

// Backend runs calls on the arena.
func (d *Device) Backend() ops.Backend { return &d.backend }

// TensorEngine runs some of Gorgonia's own ops on the arena.
func (d *Device) TensorEngine() tensor.Engine { return &d.engine }

// Refuse makes Supports answer so.
func (d *Device) Refuse(f func(attn.Call) []error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.refuse = f
}

// FailAfter makes one "alloc", "write", "read", "copy" or "launch" fail, when so many of them have worked.
func (d *Device) FailAfter(kind string, n int, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fail[kind] = failure{after: n, err: err}
}

// PanicAfter makes one panic.
func (d *Device) PanicAfter(kind string, n int, with any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fail[kind] = failure{after: n, panic: with}
}

// Counts is what was done so far.
func (d *Device) Counts() Counts {
	d.mu.Lock()
	defer d.mu.Unlock()
	c := d.counts
	c.Blocks = len(d.blocks)
	for _, b := range d.blocks {
		c.UsedBytes += b.end - b.at
	}
	return c
}

// enter starts something of a kind, with the lock held.
func (d *Device) enter(kind string) error {
	if d.mem == nil {
		return attn.Errorf(ops.ErrDevice, kind, "device", "an open device", "%s after Close", d.name)
	}
	if d.record != nil && kind != "launch" && kind != "copy" {
		return attn.Errorf(ops.ErrUnsupported, kind, "", "no recording under way", "a call that a recording can't hold")
	}
	f, ok := d.fail[kind]
	if !ok {
		return nil
	}
	if f.after > 0 {
		f.after--
		d.fail[kind] = f
		return nil
	}
	delete(d.fail, kind)
	if f.panic != nil {
		panic(f.panic)
	}
	return f.err
}

// open makes the arena accessible until the function that it returns is called, with the lock held.
func (d *Device) open() func() {
	protect(d.mem, true)
	return d.shut
}

func (d *Device) shut() { protect(d.mem, false) }

// Alloc gives the first gap that is large enough.
func (d *Device) Alloc(bytes int) (unsafe.Pointer, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.enter("alloc"); err != nil {
		return nil, err
	}
	at, i := 0, 0
	for ; i < len(d.blocks) && d.blocks[i].at-gap < at+max(bytes, 1); i++ {
		at = (d.blocks[i].end + gap + alignment - 1) / alignment * alignment
	}
	if end := at + max(bytes, 1); end <= len(d.mem) {
		d.blocks = slices.Insert(d.blocks, i, block{at, end})
		d.counts.Allocs++
		defer d.open()()
		clear(d.mem[at:end])
		return d.pointer(at), nil
	}
	return nil, attn.Errorf(ops.ErrOutOfMemory, "alloc", "bytes", "a gap in an arena of "+fmt.Sprint(len(d.mem)), "%d", bytes)
}

// pointer never looks at the memory.
func (d *Device) pointer(at int) unsafe.Pointer {
	return unsafe.Add(unsafe.Pointer(unsafe.SliceData(d.mem)), at)
}

// Free takes back what Alloc gave.
func (d *Device) Free(p unsafe.Pointer) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.enter("free"); err != nil {
		return err
	}
	at := d.offset(p)
	i := slices.IndexFunc(d.blocks, func(b block) bool { return b.at == at })
	if i < 0 {
		return d.foreign("free", "ptr")
	}
	defer d.open()()
	for j := d.blocks[i].at; j < d.blocks[i].end; j++ {
		d.mem[j] = 0xff // NaN of every float dtype
	}
	d.blocks = slices.Delete(d.blocks, i, i+1)
	d.counts.Frees++
	return nil
}

func (d *Device) offset(p unsafe.Pointer) int {
	return int(uintptr(p) - uintptr(unsafe.Pointer(unsafe.SliceData(d.mem))))
}

func (d *Device) foreign(op, arg string) error {
	return attn.Errorf(ops.ErrDevice, op, arg, "memory of "+d.name, "an address that it did not give or has taken back")
}

// Owns tells whether the bytes lie in one allocation.
func (d *Device) Owns(p unsafe.Pointer, bytes int) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.owns(p, bytes)
}

func (d *Device) owns(p unsafe.Pointer, bytes int) bool {
	if d.mem == nil || bytes < 0 {
		return false
	}
	at := d.offset(p)
	i, found := slices.BinarySearchFunc(d.blocks, at, func(b block, at int) int { return b.at - at })
	if !found {
		i--
	}
	return i >= 0 && at >= d.blocks[i].at && at+bytes <= d.blocks[i].end
}

// Copy copies within the arena.
func (d *Device) Copy(dst, src unsafe.Pointer, bytes int) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.enter("copy"); err != nil {
		return err
	}
	if !d.owns(dst, bytes) || !d.owns(src, bytes) {
		return d.foreign("copy", "ptr")
	}
	if d.record != nil {
		d.record.note(func() error { return d.copy(dst, src, bytes) })
		return nil
	}
	defer d.open()()
	return d.copy(dst, src, bytes)
}

// copy is Copy with the lock held and the arena open.
func (d *Device) copy(dst, src unsafe.Pointer, bytes int) error {
	copy(unsafe.Slice((*byte)(dst), bytes), unsafe.Slice((*byte)(src), bytes))
	d.counts.Copies++
	return nil
}

// Write copies from the host.
func (d *Device) Write(dst unsafe.Pointer, src []byte) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.enter("write"); err != nil {
		return err
	}
	if !d.owns(dst, len(src)) || len(src) > 0 && d.within(unsafe.Pointer(unsafe.SliceData(src))) {
		return d.foreign("write", "dst")
	}
	defer d.open()()
	copy(unsafe.Slice((*byte)(dst), len(src)), src)
	d.counts.Writes++
	d.counts.WrittenBytes += len(src)
	return nil
}

// Read copies to the host.
func (d *Device) Read(dst []byte, src unsafe.Pointer) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.enter("read"); err != nil {
		return err
	}
	if !d.owns(src, len(dst)) || len(dst) > 0 && d.within(unsafe.Pointer(unsafe.SliceData(dst))) {
		return d.foreign("read", "src")
	}
	defer d.open()()
	copy(dst, unsafe.Slice((*byte)(src), len(dst)))
	d.counts.Reads++
	d.counts.ReadBytes += len(dst)
	return nil
}

// within tells whether p is an address of the arena, given out or not.
func (d *Device) within(p unsafe.Pointer) bool {
	at := d.offset(p)
	return at >= 0 && at < len(d.mem)
}

// Close ends the use of the arena, whose addresses stay reserved: stale pointers fault then, instead of naming memory of others. A
// second Close does nothing; everything else is ErrDevice afterwards.
func (d *Device) Close() error {
	ops.Unregister(d)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.mem == nil {
		return nil
	}
	d.mem, d.blocks = nil, nil
	return d.cpu.Close()
}
