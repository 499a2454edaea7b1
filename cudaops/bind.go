package cudaops

import (
	"github.com/gaze-ml/gaze/cudaops/internal/driver"
	"github.com/gaze-ml/gaze/internal/attn"
)

// binding turns the operands of one call into device addresses. It keeps the first error, after which everything is 0.
type binding struct {
	rt  *Runtime
	op  string
	err error

	scratch int // where in the Runtime's memory for host tables the next one goes
}

// need is the address of an operand that the call must have.
func (b *binding) need(arg string, t *attn.Tensor) driver.Addr {
	if t.Valid() {
		return b.given(arg, t)
	}
	if b.err == nil {
		b.err = attn.Errorf(attn.ErrArgument, b.op, arg, "a tensor: the call must have passed Infer", "nothing")
	}
	return 0
}

// may is the address of an operand, 0 where it is absent.
func (b *binding) may(arg string, t *attn.Tensor) driver.Addr {
	if t.Valid() {
		return b.given(arg, t)
	}
	return 0
}

func (b *binding) given(arg string, t *attn.Tensor) driver.Addr {
	if b.err != nil {
		return 0
	}
	a := driver.Of(t.Ptr)
	n, err := span(b.op, arg, t)
	if err == nil && n > 0 {
		err = b.rt.own(b.op, arg, a, n)
	}
	if err != nil {
		b.err = err
		return 0
	}
	return a
}

// table is may for lengths, tables and offsets, which may lie in host memory: they are copied to the device, unless the call is
// recorded, where a copy would repeat old values.
func (b *binding) table(arg string, t *attn.Tensor, frozen bool) driver.Addr {
	if t.Valid() {
		return b.givenTable(arg, t, frozen)
	}
	return 0
}

func (b *binding) givenTable(arg string, t *attn.Tensor, frozen bool) driver.Addr {
	if b.err != nil {
		return 0
	}
	rt, a := b.rt, driver.Of(t.Ptr)
	n, err := span(b.op, arg, t)
	if err == nil && (n == 0 || rt.holds(a, n)) {
		return a
	}
	if err != nil || !rt.ctx.OnHost(t.Ptr) {
		return b.given(arg, t)
	}
	if frozen || rt.named != nil {
		b.err = attn.Errorf(attn.ErrDevice, b.op, arg, "memory of "+rt.Name()+", as for every operand of a call that a CUDA graph may hold", "host memory")
		return 0
	}
	to, err := b.room(n)
	if err != nil {
		b.err = err
		return 0
	}
	b.err = rt.fail(b.op, rt.stage.write(to, driver.Host(t.Ptr, n)))
	return to
}

// room gives n bytes of the Runtime's memory for host tables. Every call starts at its beginning: stream order keeps a table until the
// kernel that reads it is done. A block that is too small is left, with what lies in it, for a larger one.
func (b *binding) room(n int) (driver.Addr, error) {
	rt := b.rt
	if b.scratch+n > rt.tables.bytes {
		size := max(2*rt.tables.bytes, n, 1<<20)
		a, err := rt.alloc(size, false)
		if err != nil {
			return 0, err
		}
		rt.tables, b.scratch = block{at: a, bytes: size}, 0
	}
	a := rt.tables.at + driver.Addr(b.scratch)
	b.scratch += (n + 255) &^ 255
	return a, nil
}

// span is the number of bytes from t's first element to behind its last.
func span(op, arg string, t *attn.Tensor) (int, error) {
	n := 1
	for i, d := range t.Shape[:t.Rank] {
		if d == 0 {
			return 0, nil
		}
		if t.Stride[i] < 0 {
			return 0, attn.Errorf(attn.ErrShape, op, arg, "strides of 0 or more", "%v of %v", append([]int(nil), t.Stride[:t.Rank]...), t.String())
		}
		n += (d - 1) * t.Stride[i]
	}
	return n * t.DType.Size(), nil
}
