package cpu

import (
	"math"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/gaze-ml/gaze/internal/attn"
)

var nan = float32(math.NaN())

// fresh gives a packed tensor with zeroed memory.
func fresh(dt attn.DType, shape ...int) attn.Tensor {
	t := attn.Of(dt, shape...)
	t.Ptr = unsafe.Pointer(unsafe.SliceData(make([]uint64, t.Bytes()/8+1)))
	return t
}

// of gives a packed tensor with values rounded to dt.
func of(dt attn.DType, values []float32, shape ...int) attn.Tensor {
	t := fresh(dt, shape...)
	if t.Len() != len(values) {
		panic("shape and values differ")
	}
	store(t.Ptr, dt, values)
	return t
}

func ints(values ...int32) attn.Tensor {
	t := fresh(attn.I32, len(values))
	copy(slice[int32](t.Ptr, len(values)), values)
	return t
}

func reshape(t attn.Tensor, shape ...int) attn.Tensor {
	r := attn.Of(t.DType, shape...)
	r.Ptr = t.Ptr
	return r
}

// values reads a packed tensor.
func values(t *attn.Tensor) []float32 {
	v := make([]float32, t.Len())
	if t.DType == attn.I32 {
		for i, x := range slice[int32](t.Ptr, len(v)) {
			v[i] = float32(x)
		}
		return v
	}
	load(v, t.DType, t.Ptr)
	return v
}

func normal(r *rand.Rand, n int) []float32 {
	v := make([]float32, n)
	for i := range v {
		v[i] = float32(r.NormFloat64())
	}
	return v
}

func filled(n int, v float32) []float32 {
	s := make([]float32, n)
	for i := range s {
		s[i] = v
	}
	return s
}

func infer(t *testing.T, c attn.Call) {
	t.Helper()
	if err := c.Infer(); err != nil {
		t.Fatal(err)
	}
}

// allocate gives an inferred output memory, poisoned where it is of floats.
func allocate(t *attn.Tensor) {
	if t.Valid() && t.Ptr == nil {
		*t = fresh(t.DType, t.Shape[:t.Rank]...)
		if t.DType.Float() {
			store(t.Ptr, t.DType, filled(t.Len(), nan))
		}
	}
}

func run(t *testing.T, b *Backend, c attn.Call) {
	t.Helper()
	if err := c.Run(b); err != nil {
		t.Fatal(err)
	}
}

// close32 wants |got-want| ≤ tol·(1+|want|), or both NaN, or both the same infinity.
func close32(t *testing.T, what string, got, want []float32, tol float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %d values, want %d", what, len(got), len(want))
	}
	for i, w := range want {
		g := float64(got[i])
		if d := math.Abs(g - float64(w)); !(d <= tol*(1+math.Abs(float64(w)))) && got[i] != w && !(g != g && w != w) {
			t.Fatalf("%s[%d] = %v, want %v", what, i, got[i], w)
		}
	}
}

func backend(t testing.TB, threads int) *Backend {
	b := New(threads)
	t.Cleanup(func() { b.Close() })
	return b
}

// rounds is n, or fewer where the race detector makes everything slow.
func rounds(n int) int {
	if raceEnabled {
		return n / 6
	}
	return n
}
