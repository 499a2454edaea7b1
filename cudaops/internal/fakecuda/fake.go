//go:build gpu && linux && amd64 && cgo

// Package fakecuda is a CUDA driver for tests on a machine without one: it takes libcuda's place behind package lazycuda, so that the
// same Go and C code runs as on a GPU. It records launches, keeps stream order (work waits in its stream until somebody waits for
// it, so that reusing memory too early shows), and fails where a real driver would: a wrong context, memory that is not allocated,
// a launch out of bounds. A kernel does nothing unless the test gives it a body.
//
// Device memory is address space without access, so that following a device pointer on the host faults.
package fakecuda

// #include "table.h"
import "C"

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"syscall"
	"unsafe"

	"github.com/gaze-ml/gaze/cudaops/internal/lazycuda"
)

// Config describes the machine.
type Config struct {
	Devices    int
	Capability int // major·10 + minor
	SMs        int
	Memory     int // bytes a device, at most 4 GiB
	Shared     int // bytes of shared memory a block may ask for
}

// Hopper is a machine with two small relatives of an H200.
var Hopper = Config{Devices: 2, Capability: 90, SMs: 132, Memory: 1 << 30, Shared: 227 << 10}

// Launch is one kernel launch, as the driver got it.
type Launch struct {
	Device      int
	Symbol      string
	Grid, Block [3]uint32
	Shared      uint32
	Cluster     uint32
	Overlap     bool
	Params      []byte
}

// Kernel is the body of a kernel: it sees the launch and the device's memory. An error or a panic is an illegal address.
type Kernel func(m *Memory, l *Launch) error

var (
	mu   sync.Mutex // guards everything of this package
	host *machine
)

// machine is the state behind the handles.
type machine struct {
	Config
	devices  []*device
	streams  map[uintptr]*stream
	events   map[uintptr]*event
	modules  map[uintptr]*module
	funcs    map[uintptr]*function
	graphs   map[uintptr][]op
	pinned   map[uintptr][]byte
	owner    map[uintptr]*device // of handles and pinned memory
	lt       map[uintptr]*ltObject
	product  func(m *Memory, p *Product) error
	products []Product
	bodies   map[string]Kernel
	launches []Launch
	failures map[string]failure
	calls    map[string]int
	handles  uintptr
}

type failure struct{ after, code int }

// Install puts the fake in the driver's place with a new machine; handles of the one before are dead.
func Install(c Config) error {
	mu.Lock()
	if host != nil {
		host.free()
	}
	host = &machine{Config: c, streams: map[uintptr]*stream{}, events: map[uintptr]*event{}, modules: map[uintptr]*module{},
		funcs: map[uintptr]*function{}, graphs: map[uintptr][]op{}, pinned: map[uintptr][]byte{}, owner: map[uintptr]*device{}, lt: map[uintptr]*ltObject{}, bodies: map[string]Kernel{},
		failures: map[string]failure{}, calls: map[string]int{}, handles: 1 << 12}
	var err error
	for i := range c.Devices {
		d := &device{ordinal: i, allocations: map[uint64]int{}, total: c.Memory}
		if d.Memory, err = newMemory(); err != nil {
			break
		}
		d.live = d.allocations
		host.devices = append(host.devices, d)
	}
	mu.Unlock()
	if err != nil {
		return err
	}
	return Work()
}

// Idle makes the functions of the launch path succeed at once, outside Go, to see what their callers cost; Work undoes it. Handles
// stay good.
func Idle() error { return lazycuda.Use(C.fake_find_idle, nil) }

// Work is how Install leaves the fake: it does what it is asked.
func Work() error { return lazycuda.Use(C.fake_find, nil) }

// Body gives every kernel of that symbol something to do.
func Body(symbol string, k Kernel) {
	mu.Lock()
	defer mu.Unlock()
	host.bodies[symbol] = k
}

// Fail makes the call after the next n calls of a driver function return code, once: Fail("cuMemAlloc_v2", 0, 2). The function
// "kernel" is a kernel's run itself, whose failure shows later and stays.
func Fail(function string, n, code int) {
	mu.Lock()
	defer mu.Unlock()
	host.failures[function] = failure{host.calls[function] + n, code}
}

// Calls is how often a driver function was called.
func Calls(function string) int {
	mu.Lock()
	defer mu.Unlock()
	return host.calls[function]
}

// Launches gives the launches since the last call, in stream order, run or not yet. Those of a captured graph count when it is
// replayed.
func Launches() []Launch {
	mu.Lock()
	defer mu.Unlock()
	l := host.launches
	host.launches = nil
	return l
}

// Leaks names what has not been given back.
func Leaks() []string {
	mu.Lock()
	defer mu.Unlock()
	var l []string
	for _, d := range host.devices {
		if d.retained > 0 {
			l = append(l, fmt.Sprintf("%d uses of device %d", d.retained, d.ordinal))
		}
		for _, a := range slices.Sorted(maps.Keys(d.allocations)) {
			l = append(l, fmt.Sprintf("%d bytes on device %d", d.allocations[a], d.ordinal))
		}
	}
	for what, n := range map[string]int{"streams": len(host.streams), "events": len(host.events), "modules": len(host.modules),
		"graphs": len(host.graphs), "cuBLASLt objects": len(host.lt), "pinned blocks": len(host.pinned)} {
		if n > 0 {
			l = append(l, fmt.Sprintf("%d %s", n, what))
		}
	}
	return l
}

// Used is the memory that is allocated on a device, in bytes.
func Used(ordinal int) int {
	mu.Lock()
	defer mu.Unlock()
	return host.devices[ordinal].used
}

func (m *machine) handle(d *device) uintptr {
	m.handles += 16
	m.owner[m.handles] = d
	return m.handles
}

// destroy takes away all that a device's context holds, as the end of a broken one does.
func (m *machine) destroy(d *device) {
	for h, o := range m.owner {
		if o == d {
			delete(m.streams, h)
			delete(m.events, h)
			delete(m.modules, h)
			delete(m.funcs, h)
			delete(m.graphs, h)
			delete(m.pinned, h)
			delete(m.owner, h)
		}
	}
	clear(d.allocations)
	d.used, d.broken = 0, success
}

func (m *machine) free() {
	for _, d := range m.devices {
		d.Memory.unmap()
	}
}

// device is one GPU with its primary context, whose handle is the ordinal + 1.
type device struct {
	*Memory
	ordinal     int
	retained    int
	broken      int // the sticky error
	allocations map[uint64]int
	used, total int
	freed       struct{ at, bytes int } // the last memory given back, for the next that has room in it
}

// space is each device's address space.
const space = 4 << 30

// Memory is a device's memory: addresses nobody may follow, and the bytes behind them.
type Memory struct {
	addresses, bytes []byte
	next             int
	live             map[uint64]int // the device's allocations
}

func newMemory() (*Memory, error) {
	const flags = syscall.MAP_ANON | syscall.MAP_PRIVATE | syscall.MAP_NORESERVE
	addresses, err := syscall.Mmap(-1, 0, space, syscall.PROT_NONE, flags)
	if err != nil {
		return nil, err
	}
	bytes, err := syscall.Mmap(-1, 0, space, syscall.PROT_READ|syscall.PROT_WRITE, flags)
	if err != nil {
		return nil, err
	}
	return &Memory{addresses: addresses, bytes: bytes}, nil
}

func (m *Memory) unmap() {
	syscall.Munmap(m.addresses)
	syscall.Munmap(m.bytes)
}

func (m *Memory) base() uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(m.addresses)))) }

// Bytes are the n bytes at address a, which lie in one allocation; else Bytes panics.
func (m *Memory) Bytes(a uint64, n int) []byte {
	for start, size := range m.live {
		if a >= start && a+uint64(n) <= start+uint64(size) {
			return m.bytes[a-m.base():][:n:n]
		}
	}
	panic(fmt.Sprintf("illegal address: %d bytes at %#x", n, a))
}

// On gives slices of any type.
func On[T any](m *Memory, a uint64, n int) []T {
	if n == 0 {
		return nil
	}
	var t T
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(m.Bytes(a, n*int(unsafe.Sizeof(t)))))), n)
}

// As reads a launch's parameters as the struct that the kernel takes.
func As[P any](l *Launch) *P {
	p := new(P)
	copy(unsafe.Slice((*byte)(unsafe.Pointer(p)), unsafe.Sizeof(*p)), l.Params)
	return p
}
