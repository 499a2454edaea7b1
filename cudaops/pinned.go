package cudaops

import (
	"fmt"

	"github.com/gaze-ml/gaze/cudaops/internal/driver"
	"github.com/gaze-ml/gaze/internal/attn"
)

// Pinned gives n > 0 bytes of page-locked host memory until FreePinned or Close: WriteAsync and ReadAsync copy from and to it beside
// the host.
func (rt *Runtime) Pinned(n int) ([]byte, error) {
	err := rt.enter("pinned")
	defer rt.mu.Unlock()
	if err != nil {
		return nil, err
	}
	if n <= 0 {
		return nil, attn.Errorf(attn.ErrArgument, "pinned", "bytes", "more than 0", "%d", n)
	}
	b, err := rt.ctx.AllocPinned(n)
	if err != nil {
		return nil, rt.fail(fmt.Sprintf("pinned %d bytes", n), err)
	}
	rt.pinned.add(block{at: hostAddr(b), bytes: n})
	return b, nil
}

// FreePinned takes back what Pinned gave, after the work that was launched before: ErrArgument for other memory, ErrUnsupported while something
// is recorded. Recordings that name the memory refuse to run from then on.
func (rt *Runtime) FreePinned(b []byte) error {
	const op = "free_pinned"
	err := rt.enter(op)
	defer rt.mu.Unlock()
	if err != nil {
		return err
	}
	if err := rt.waiting(op); err != nil {
		return err
	}
	if err := rt.ctx.Sync(); err != nil {
		return rt.fail(op, err)
	}
	own, ok := rt.pinned.remove(hostAddr(b))
	if !ok {
		return rt.unpinned(op, "memory")
	}
	rt.gone(own.at)
	return rt.fail(op, rt.ctx.FreePinned(driver.Host(own.at.Pointer(), own.bytes)))
}

func hostAddr(b []byte) driver.Addr { return driver.Of(driver.Memory(b)) }

func (rt *Runtime) unpinned(op, arg string) error {
	return attn.Errorf(attn.ErrArgument, op, arg, "memory of Pinned", "memory that it did not give or that was given back")
}

// WriteAsync copies memory of Pinned to the device in stream order: src must not change until the stream has passed. In a capture, a
// replay copies what src then holds.
func (rt *Runtime) WriteAsync(dst driver.Pointer, src []byte) error {
	const op = "write_async"
	err := rt.enter(op)
	defer rt.mu.Unlock()
	if err != nil {
		return err
	}
	a := driver.Of(dst)
	if err := rt.async(op, "dst", a, "src", src); err != nil || len(src) == 0 {
		return err
	}
	return rt.fail(op, rt.ctx.ToDevice(a, src))
}

// ReadAsync copies device memory to memory of Pinned in stream order: dst holds it after the next call that waits.
func (rt *Runtime) ReadAsync(dst []byte, src driver.Pointer) error {
	const op = "read_async"
	err := rt.enter(op)
	defer rt.mu.Unlock()
	if err != nil {
		return err
	}
	a := driver.Of(src)
	if err := rt.async(op, "src", a, "dst", dst); err != nil || len(dst) == 0 {
		return err
	}
	return rt.fail(op, rt.ctx.ToHost(dst, a))
}

// async checks both sides of a copy.
func (rt *Runtime) async(op, device string, a driver.Addr, host string, b []byte) error {
	if len(b) > 0 && !rt.named.in(rt.pinned, hostAddr(b), len(b)) {
		return rt.unpinned(op, host)
	}
	return rt.own(op, device, a, len(b))
}
