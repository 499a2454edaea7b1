package cudaops

import (
	"fmt"
	"math"

	"gorgonia.org/tensor"

	"github.com/gaze-ml/gaze/cudaops/internal/driver"
	"github.com/gaze-ml/gaze/internal/attn"
	"github.com/gaze-ml/gaze/ops"
)

// Engine is the tensor.Engine of device tensors. It runs Gorgonia's Add, Sub, Mul, Div, MatMul, Transpose and copies of float32
// tensors, views included; of anything else package tensor says that the engine has it not. It takes its operands by their
// addresses: memory of another Runtime or of the host is ErrDevice, except a result that a machine has allocated on the host, which
// moves to the device.
//
// Package tensor never gives memory back, so what the engine allocates is scratch: it lasts until Reset. Tensors that shall last come
// from [Runtime.NewTensor].
type Engine struct {
	rt      *Runtime
	chunks  []block
	current int
	used    int // bytes of the current chunk
}

var (
	_ tensor.Engine      = (*Engine)(nil)
	_ tensor.Adder       = (*Engine)(nil)
	_ tensor.Suber       = (*Engine)(nil)
	_ tensor.Muler       = (*Engine)(nil)
	_ tensor.Diver       = (*Engine)(nil)
	_ tensor.MatMuler    = (*Engine)(nil)
	_ tensor.MatVecMuler = (*Engine)(nil)
	_ tensor.Transposer  = (*Engine)(nil)
)

// memory is device memory as tensor.Memory.
type memory struct {
	at    driver.Addr
	bytes int
}

func (m memory) Uintptr() uintptr { return uintptr(m.at) }
func (m memory) MemSize() uintptr { return uintptr(m.bytes) }

// AllocAccessible is false: Go can't follow the pointers.
func (e *Engine) AllocAccessible() bool { return false }

// WorksWith is true for every order: kernels follow strides.
func (e *Engine) WorksWith(tensor.DataOrder) bool { return true }

// Accessible refuses.
func (e *Engine) Accessible(tensor.Memory) (tensor.Memory, error) {
	return nil, attn.Errorf(attn.ErrDevice, "accessible", "mem", "host memory", "memory of %s", e.rt.Name())
}

// Alloc gives scratch memory of any content until Reset.
func (e *Engine) Alloc(size int64) (tensor.Memory, error) {
	err := e.rt.enter("alloc")
	defer e.rt.mu.Unlock()
	if err != nil {
		return nil, err
	}
	a, err := e.scratch(int(size))
	if err != nil {
		return nil, err
	}
	return memory{a, int(size)}, nil
}

// scratch takes the next bytes, with the lock held.
func (e *Engine) scratch(n int) (driver.Addr, error) {
	const chunk, alignment = 32 << 20, 256
	n = (max(n, 1) + alignment - 1) &^ (alignment - 1)
	for ; e.current < len(e.chunks); e.current, e.used = e.current+1, 0 {
		if c := e.chunks[e.current]; e.used+n <= c.bytes {
			a := c.at + driver.Addr(e.used)
			e.used += n
			return a, nil
		}
	}
	a, err := e.rt.alloc(max(n, chunk), false)
	if err != nil {
		return 0, err
	}
	e.chunks = append(e.chunks, block{at: a, bytes: max(n, chunk)})
	e.used = n
	return a, nil
}

// Reset makes all scratch free for new tensors: call it before a run, when nobody needs the results of the last. Addresses then come
// out as in the last run.
func (e *Engine) Reset() {
	e.rt.mu.Lock()
	defer e.rt.mu.Unlock()
	e.current, e.used = 0, 0
}

// Free does nothing but check: scratch ends with Reset, other memory with Runtime.Free.
func (e *Engine) Free(mem tensor.Memory, size int64) error {
	err := e.rt.enter("free")
	defer e.rt.mu.Unlock()
	if err != nil {
		return err
	}
	return e.rt.own("free", "mem", driver.Addr(mem.Uintptr()), int(size))
}

// Memclr zeroes memory. What fails shows at the next call that waits, since Memclr has no error.
func (e *Engine) Memclr(mem tensor.Memory) {
	const op = "memclr"
	rt := e.rt
	err := rt.enter(op)
	defer rt.mu.Unlock()
	a, n := driver.Addr(mem.Uintptr()), int(mem.MemSize())
	if err == nil {
		err = rt.own(op, "mem", a, n)
	}
	if err == nil && n > 0 {
		err = rt.fail(op, rt.ctx.Fill(a, 0, n))
	}
	rt.later(err)
}

// Memset sets every element of memory to a float32, int32 or uint32.
func (e *Engine) Memset(mem tensor.Memory, val any) error {
	const op = "memset"
	rt := e.rt
	err := rt.enter(op)
	defer rt.mu.Unlock()
	if err != nil {
		return err
	}
	var word uint32
	switch v := val.(type) {
	case float32:
		word = math.Float32bits(v)
	case int32:
		word = uint32(v)
	case uint32:
		word = v
	default:
		return attn.Errorf(attn.ErrDType, op, "val", "float32, int32 or uint32", "%T", val)
	}
	a, n := driver.Addr(mem.Uintptr()), int(mem.MemSize())
	if err := rt.own(op, "mem", a, n); err != nil || n < 4 {
		return err
	}
	return rt.fillWords(op, a, n/4, word)
}

// Memcpy copies between tensors' memory, on the device or to and from the host; from the device to the host it waits.
func (e *Engine) Memcpy(dst, src tensor.Memory) error {
	const op = "memcpy"
	rt := e.rt
	n := int(min(dst.MemSize(), src.MemSize()))
	to, from := driver.Addr(dst.Uintptr()), driver.Addr(src.Uintptr())
	toDevice, fromDevice := rt.memory.holds(to, n), rt.memory.holds(from, n)
	for _, side := range []struct {
		arg   string
		at    driver.Addr
		owned bool
	}{{"dst", to, toDevice}, {"src", from, fromDevice}} {
		if side.owned {
			continue
		}
		host, err := rt.onHost(op, side.at.Pointer())
		if err != nil {
			return err
		}
		if !host {
			return rt.foreign(op, side.arg, side.at)
		}
	}
	switch {
	case n == 0:
		return nil
	case toDevice && fromDevice:
		return rt.Copy(to.Pointer(), from.Pointer(), n)
	case toDevice:
		return rt.Write(to.Pointer(), driver.Host(from.Pointer(), n))
	case fromDevice:
		return rt.Read(driver.Host(to.Pointer(), n), from.Pointer())
	}
	copy(driver.Host(to.Pointer(), n), driver.Host(from.Pointer(), n))
	return nil
}

// operand describes a tensor that must be float32 and on this device.
func (e *Engine) operand(op, arg string, t tensor.Tensor) (attn.Tensor, error) {
	d, ok := t.(*tensor.Dense)
	if !ok {
		return attn.Tensor{}, attn.Errorf(attn.ErrArgument, op, arg, "a *tensor.Dense", "%T", t)
	}
	v, err := ops.View(op, arg, d)
	if err != nil {
		return v, err
	}
	if v.DType != attn.F32 {
		return v, attn.Errorf(attn.ErrDType, op, arg, "float32", "%v", v.DType)
	}
	n, err := span(op, arg, &v)
	if err != nil {
		return v, err
	}
	return v, e.rt.own(op, arg, driver.Of(v.Ptr), n)
}

// adopt moves a result that a machine has allocated in host memory, though labelled as ours, to the device. Its content is lost.
func (e *Engine) adopt(op string, t tensor.Tensor) error {
	d, ok := t.(*tensor.Dense)
	if !ok {
		return attn.Errorf(attn.ErrArgument, op, "reuse", "a *tensor.Dense", "%T", t)
	}
	n := int(d.MemSize())
	at := driver.Addr(d.Uintptr())
	if e.rt.holds(at, n) {
		return nil
	}
	if !e.rt.ctx.OnHost(at.Pointer()) {
		return e.rt.foreign(op, "reuse", at)
	}
	a, err := e.scratch(n)
	if err != nil {
		return err
	}
	e.wrap(d, a, n)
	return nil
}

// wrap gives d device memory.
func (e *Engine) wrap(d *tensor.Dense, a driver.Addr, n int) {
	tensor.FromMemory(uintptr(a), uintptr(n))(d)
	tensor.WithEngine(e)(d)
}

// dense makes a tensor over device memory.
func (e *Engine) dense(dt tensor.Dtype, shape tensor.Shape, a driver.Addr, n int) *tensor.Dense {
	return tensor.New(tensor.Of(dt), tensor.WithShape(shape...), tensor.WithEngine(e), tensor.FromMemory(uintptr(a), uintptr(n)))
}

// unsupported is an op or option that the engine has not.
func (e *Engine) unsupported(op, want, got string, a ...any) error {
	return attn.Errorf(attn.ErrUnsupported, op, "", want, "%s", fmt.Sprintf(got, a...))
}
