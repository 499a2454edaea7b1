package cudaops

import (
	"fmt"

	"github.com/gaze-ml/gaze/cudaops/internal/driver"
	"github.com/gaze-ml/gaze/internal/attn"
)

// Alloc gives zeroed device memory, aligned to 256 bytes, that stays until Free or Close. ErrOutOfMemory, which names what is free,
// leaves the Runtime as it was.
func (rt *Runtime) Alloc(bytes int) (driver.Pointer, error) {
	err := rt.enter("alloc")
	defer rt.mu.Unlock()
	if err != nil {
		return nil, err
	}
	a, err := rt.alloc(bytes, true)
	if err != nil {
		return nil, err
	}
	if err := rt.ctx.Fill(a, 0, max(bytes, 1)); err != nil {
		rt.memory.remove(a)
		return nil, rt.fail("alloc", join(err, rt.ctx.Free(a)))
	}
	return a.Pointer(), nil
}

// alloc gives memory of any content, with the lock held; given to the caller, or kept by the Runtime until Close.
func (rt *Runtime) alloc(bytes int, given bool) (driver.Addr, error) {
	op := fmt.Sprintf("alloc %d bytes", bytes)
	if bytes < 0 {
		return 0, attn.Errorf(attn.ErrArgument, "alloc", "bytes", "0 or more", "%d", bytes)
	}
	if err := rt.waiting(op); err != nil {
		return 0, err
	}
	n := max(bytes, 1)
	a, err := rt.ctx.Alloc(n)
	if err != nil {
		err = rt.fail(op, err)
		if e, ok := err.(*CallError); ok && e.Kind == attn.ErrOutOfMemory {
			if free, total, err := rt.ctx.MemInfo(); err == nil {
				e.Op = fmt.Sprintf("%s on %s, of whose %d bytes %d are free", op, rt.Name(), total, free)
			}
		}
		return 0, err
	}
	rt.memory.add(block{at: a, bytes: n, given: given})
	return a, nil
}

// Free takes back what Alloc gave, after the work that was launched before: ErrDevice for other memory, ErrUnsupported while something is
// recorded. Recordings that name the memory refuse to run from then on.
func (rt *Runtime) Free(p driver.Pointer) error {
	const op = "free"
	err := rt.enter(op)
	defer rt.mu.Unlock()
	if err != nil {
		return err
	}
	if err := rt.waiting(op); err != nil {
		return err
	}
	a := driver.Of(p)
	if b, ok := rt.memory.at(a); !ok || b.at != a || !b.given {
		return rt.foreign(op, "ptr", a)
	}
	b, _ := rt.memory.remove(a)
	if err := rt.ctx.Sync(); err != nil {
		rt.memory.add(b)
		return rt.fail(op, err)
	}
	rt.gone(b.at)
	return rt.fail(op, rt.ctx.Free(b.at))
}

// Owns tells whether n bytes from p on are memory that Alloc gave and neither Free nor Close has taken back. It never waits.
func (rt *Runtime) Owns(p driver.Pointer, n int) bool { return rt.memory.holds(driver.Of(p), n) }

func (rt *Runtime) foreign(op, arg string, a driver.Addr) error {
	return attn.Errorf(attn.ErrDevice, op, arg, "memory of "+rt.Name(), "address %#x, which it did not give or has taken back", uint64(a))
}

// holds tells whether n bytes from a on are this Runtime's. With the lock held.
func (rt *Runtime) holds(a driver.Addr, n int) bool {
	if rt.named == nil {
		return rt.resident.holds(&rt.memory, a, n)
	}
	return rt.named.in(rt.memory.all(), a, n)
}

// own wants n bytes from a on to be this Runtime's. With the lock held.
func (rt *Runtime) own(op, arg string, a driver.Addr, n int) error {
	if rt.holds(a, n) {
		return nil
	}
	if b, ok := rt.memory.at(a); ok {
		return attn.Errorf(attn.ErrDevice, op, arg, "memory of "+rt.Name(), "%d bytes, %d past the end of their allocation", n, n-(b.bytes-int(a-b.at)))
	}
	return rt.foreign(op, arg, a)
}

// Write copies host bytes to device memory. It returns when src has been read, which may be before the device has the bytes.
func (rt *Runtime) Write(dst driver.Pointer, src []byte) error {
	const op = "write"
	err := rt.enter(op)
	defer rt.mu.Unlock()
	if err != nil {
		return err
	}
	if err := rt.waiting(op); err != nil {
		return err
	}
	a := driver.Of(dst)
	if err := rt.own(op, "dst", a, len(src)); err != nil {
		return err
	}
	return rt.fail(op, rt.stage.write(a, src))
}

// Read waits for what was launched before and copies device memory to the host. It returns what [Runtime.Sync] does.
func (rt *Runtime) Read(dst []byte, src driver.Pointer) error {
	const op = "read"
	err := rt.enter(op)
	defer rt.mu.Unlock()
	if err != nil {
		return err
	}
	if err := rt.waiting(op); err != nil {
		return err
	}
	a := driver.Of(src)
	if err := rt.own(op, "src", a, len(dst)); err != nil {
		return err
	}
	into := dst // the driver waits by itself where the memory is not pinned
	if len(dst) <= bounceBytes {
		into = rt.bounce[:len(dst)]
	}
	if len(dst) > 0 {
		if err := rt.ctx.ToHost(into, a); err != nil {
			return rt.fail(op, err)
		}
	}
	if err := rt.sync(op); err != nil {
		return err
	}
	if len(dst) <= bounceBytes {
		copy(dst, into)
	}
	return nil
}

// Copy copies device memory in stream order.
func (rt *Runtime) Copy(dst, src driver.Pointer, bytes int) error {
	const op = "copy"
	err := rt.enter(op)
	defer rt.mu.Unlock()
	if err != nil {
		return err
	}
	to, from := driver.Of(dst), driver.Of(src)
	if err := rt.own(op, "dst", to, bytes); err != nil {
		return err
	}
	if err := rt.own(op, "src", from, bytes); err != nil {
		return err
	}
	if bytes == 0 {
		return nil
	}
	return rt.fail(op, rt.ctx.OnDevice(to, from, bytes))
}
