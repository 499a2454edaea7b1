package attn

import (
	"math"
	"math/bits"
)

// addressable tells whether the packed bytes of t can be counted in an int.
func (t *Tensor) addressable() bool {
	n := uint64(max(t.DType.Size(), 1))
	for _, d := range t.Shape[:t.Rank] {
		if d == 0 {
			return true
		}
		hi, lo := bits.Mul64(n, uint64(d))
		if hi != 0 || lo > math.MaxInt {
			return false
		}
		n = lo
	}
	return true
}

// span is the range of addresses that t's elements lie in; empty without memory or elements.
func (t *Tensor) span() (from, to uintptr) {
	if t.Ptr == nil || !t.Valid() {
		return 0, 0
	}
	last := 0
	for i, n := range t.Shape[:t.Rank] {
		if n == 0 {
			return 0, 0
		}
		last += (n - 1) * t.Stride[i]
	}
	from = uintptr(t.Ptr)
	return from, from + uintptr((last+1)*t.DType.Size())
}

func (t *Tensor) overlaps(u *Tensor) bool {
	a, b := t.span()
	c, d := u.span()
	return a < d && c < b
}

// same tells whether both are the same elements in the same places.
func (t *Tensor) same(u *Tensor) bool {
	return t.Ptr == u.Ptr && t.DType == u.DType && t.Rank == u.Rank && t.Shape == u.Shape && t.Packed() && u.Packed()
}

// named is a tensor with its argument's name.
type named struct {
	arg string
	t   *Tensor
}

// apart wants memory that a backend writes, an output or a workspace, to be apart from that of other operands: it may write before it has
// read them.
func (c *checker) apart(arg string, out *Tensor, others ...named) {
	from, to := out.span()
	for _, o := range others {
		if a, b := o.t.span(); from < b && a < to {
			c.add(ErrArgument, arg, "memory apart from "+o.arg, "overlapping memory")
		}
	}
}

// inPlace is apart for operands that an output may also be: element for element.
func (c *checker) inPlace(arg string, out *Tensor, others ...named) {
	for _, o := range others {
		if out.overlaps(o.t) && !out.same(o.t) {
			c.add(ErrArgument, arg, "memory apart from "+o.arg+", or the very same", "memory that overlaps in part")
		}
	}
}
