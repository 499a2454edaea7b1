package attn

import (
	"fmt"
	"strings"
	"unsafe"
)

// MaxRank is the highest rank of an operand: a stacked paged cache has five dimensions.
const MaxRank = 5

// Tensor names memory that somebody else owns. The zero value is an absent operand. Ptr is nil while a call is only being
// checked; on a device it is a device pointer, which only that device's backend may follow.
type Tensor struct {
	Ptr    unsafe.Pointer
	DType  DType
	Rank   int
	Shape  [MaxRank]int
	Stride [MaxRank]int // in elements
}

// Of describes a contiguous row-major tensor without memory. More than MaxRank dimensions give an absent tensor.
func Of(dt DType, shape ...int) Tensor {
	if len(shape) > MaxRank {
		return Tensor{}
	}
	t := Tensor{DType: dt, Rank: len(shape)}
	copy(t.Shape[:], shape)
	t.setPacked()
	return t
}

func (t *Tensor) setPacked() {
	n := 1
	for i := t.Rank - 1; i >= 0; i-- {
		t.Stride[i] = n
		n *= t.Shape[i]
	}
}

// Valid tells whether the operand was given.
func (t *Tensor) Valid() bool { return t.DType != Invalid }

// Len is the number of elements.
func (t *Tensor) Len() int {
	n := 1
	for _, d := range t.Shape[:t.Rank] {
		n *= d
	}
	return n
}

// Bytes is the size of a packed tensor of this shape.
func (t *Tensor) Bytes() int { return t.Len() * t.DType.Size() }

// Packed tells whether the elements lie contiguous in row-major order; strides of dimensions of size 1 don't matter.
func (t *Tensor) Packed() bool {
	n := 1
	for i := t.Rank - 1; i >= 0; i-- {
		if t.Shape[i] == 0 {
			return true
		}
		if t.Shape[i] != 1 && t.Stride[i] != n {
			return false
		}
		n *= t.Shape[i]
	}
	return true
}

// At gives the address of element (i, j, k, …) given as an element offset.
func (t *Tensor) At(offset int) unsafe.Pointer {
	return unsafe.Add(t.Ptr, offset*t.DType.Size())
}

// String gives dtype and shape, never values: "bfloat16[2 8 128]".
func (t *Tensor) String() string {
	if !t.Valid() {
		return "absent"
	}
	shape := append([]int(nil), t.Shape[:t.Rank]...) // a copy, so that tensors named in errors can live on the stack
	return fmt.Sprintf("%v[%s]", t.DType, strings.Trim(fmt.Sprint(shape), "[]"))
}

// permuted gives the same memory with its dimensions in another order.
func (t Tensor) permuted(order ...int) Tensor {
	p := t
	p.Rank = len(order)
	for i, o := range order {
		p.Shape[i], p.Stride[i] = t.Shape[o], t.Stride[o]
	}
	for i := len(order); i < MaxRank; i++ {
		p.Shape[i], p.Stride[i] = 0, 0
	}
	return p
}

// Layout is the order of the two middle dimensions of a paged cache.
type Layout uint8

// The layouts, FlashInfer's kv_layout.
const (
	HND Layout = iota // [N, Hkv, P, D]
	NHD               // [N, P, Hkv, D]
)

// String gives "HND" or "NHD".
func (l Layout) String() string {
	switch l {
	case HND:
		return "HND"
	case NHD:
		return "NHD"
	}
	return fmt.Sprintf("Layout(%d)", uint8(l))
}

// PagedView turns one paged cache tensor, [N,Hkv,P,D] in HND or [N,P,Hkv,D] in NHD, into the one form that calls use: HND
// order, with strides that say where things lie.
func PagedView(op, arg string, t Tensor, layout Layout) (Tensor, error) {
	if t.Rank != 4 {
		return Tensor{}, Errorf(ErrShape, op, arg, "rank 4: "+pagedShape(layout), "%s", t.String())
	}
	switch layout {
	case HND:
		return t, nil
	case NHD:
		return t.permuted(0, 2, 1, 3), nil
	}
	return Tensor{}, Errorf(ErrArgument, op, "kv_layout", "HND or NHD", "%v", layout)
}

// SplitStacked turns a stacked cache [N, 2 or 1, …] into its K and V views; with axis 1 of size 1 both are the same memory.
func SplitStacked(op string, t Tensor, layout Layout) (k, v Tensor, err error) {
	if t.Rank != 5 || t.Shape[1] != 1 && t.Shape[1] != 2 {
		return k, v, Errorf(ErrShape, op, "kv_cache", "[N, 2 or 1, "+pagedShape(layout)[4:], "%s", t.String())
	}
	if k, err = PagedView(op, "kv_cache", t.permuted(0, 2, 3, 4), layout); err != nil {
		return k, v, err
	}
	v = k
	if t.Shape[1] == 2 && t.Ptr != nil {
		v.Ptr = t.At(t.Stride[1])
	}
	return k, v, nil
}

func pagedShape(l Layout) string {
	if l == NHD {
		return "[N, P, Hkv, D]"
	}
	return "[N, Hkv, P, D]"
}
