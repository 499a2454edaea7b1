package attn

import (
	"fmt"
	"math"
	"strings"
)

func oneOf(list []DType) string {
	s := make([]string, len(list))
	for i, d := range list {
		s[i] = d.String()
	}
	return strings.Join(s, " or ")
}

// tensor checks presence, dtype and rank, in that order. It reports whether shapes may be looked at.
func (c *checker) tensor(arg string, t *Tensor, rank int, want ...DType) bool {
	if !t.Valid() {
		c.add(ErrArgument, arg, fmt.Sprintf("a tensor of rank %d", rank), "nothing")
		return false
	}
	return c.optional(arg, t, rank, want...)
}

// optional is tensor for an operand that may be absent.
func (c *checker) optional(arg string, t *Tensor, rank int, want ...DType) bool {
	if !t.Valid() {
		return true
	}
	good := false
	for _, d := range want {
		good = good || d == t.DType
	}
	if !good {
		c.add(ErrDType, arg, oneOf(append([]DType(nil), want...)), "%v", t.DType)
	}
	if t.Rank != rank {
		c.add(ErrShape, arg, fmt.Sprintf("rank %d", rank), "rank %d, %v", t.Rank, t.String())
		return false
	}
	for _, n := range t.Shape[:t.Rank] {
		if n < 0 {
			c.add(ErrShape, arg, "sizes ≥ 0", "%v", t.String())
			return false
		}
	}
	if !t.addressable() {
		c.add(ErrShape, arg, "fewer than 2^63 bytes", "%v", t.String())
		return false
	}
	return good
}

// shape wants exactly these sizes; -1 is any.
func (c *checker) shape(arg string, t *Tensor, want ...int) {
	if !t.Valid() {
		return
	}
	for i, n := range want {
		if n >= 0 && t.Shape[i] != n {
			w := fmt.Sprint(append([]int(nil), want...))
			c.add(ErrShape, arg, strings.ReplaceAll(w, "-1", "any"), "%v", t.String())
			return
		}
	}
}

// unitLast wants stride 1 in the last dimension: kernels read whole rows.
func (c *checker) unitLast(arg string, t *Tensor) {
	if t.Valid() && t.Rank > 0 && t.Shape[t.Rank-1] > 1 && t.Stride[t.Rank-1] != 1 {
		c.add(ErrShape, arg, "stride 1 in the last dimension", "strides %v of %v", append([]int(nil), t.Stride[:t.Rank]...), t.String())
	}
}

func (c *checker) packed(arg string, t *Tensor) {
	if t.Valid() && !t.Packed() {
		c.add(ErrShape, arg, "a contiguous tensor", "strides %v of %v", append([]int(nil), t.Stride[:t.Rank]...), t.String())
	}
}

// scalarTensor wants one f32 element of any rank, absent or not.
func (c *checker) scalarTensor(arg string, t *Tensor) {
	if !t.Valid() {
		return
	}
	if t.DType != F32 {
		c.add(ErrDType, arg, "float32", "%v", t.DType)
	}
	if t.Len() != 1 {
		c.add(ErrShape, arg, "one element", "%v", t.String())
	}
}

func (c *checker) finite(arg string, x float64) {
	if f := float64(float32(x)); math.IsNaN(f) || math.IsInf(f, 0) { // backends compute in float32
		c.add(ErrArgument, arg, "a finite number of float32", "%v", x)
	}
}

func (c *checker) positive(arg string, x float64) {
	if !(x > 0) || math.IsInf(x, 0) {
		c.add(ErrArgument, arg, "a finite number above 0", "%v", x)
	}
}

// factor is positive for what a backend computes with in float32.
func (c *checker) factor(arg string, x float64) {
	if f := float64(float32(x)); !(f > 0) || math.IsInf(f, 0) {
		c.add(ErrArgument, arg, "a finite number of float32 above 0", "%v", x)
	}
}

// heads wants Hq to be a multiple of Hkv.
func (c *checker) heads(hq, hkv int) {
	if hq == 0 || hkv == 0 || hq%hkv != 0 {
		c.add(ErrShape, "num_heads", "query heads a multiple of KV heads, 1 or more", "%d query heads, %d KV heads", hq, hkv)
	}
}

// headDim holds for every backend; a backend may support fewer.
func (c *checker) headDim(arg string, d int) {
	if d <= 0 || d%8 != 0 || d > 512 {
		c.add(ErrShape, arg, "head_dim a multiple of 8, 8 to 512", "head_dim %d", d)
	}
}

// output fills an empty output descriptor or checks a given one, which must be contiguous.
func (c *checker) output(arg string, t *Tensor, dt DType, shape ...int) {
	if !t.Valid() {
		*t = Of(dt, shape...)
		return
	}
	if c.optional(arg, t, len(shape), dt) {
		c.shape(arg, t, shape...)
		c.packed(arg, t)
	}
}
