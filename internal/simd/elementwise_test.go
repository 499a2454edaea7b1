package simd

import (
	"math"
	"math/rand/v2"
	"testing"
)

func TestScaledMul(t *testing.T) {
	eachISA(t, func(t *testing.T, r *rand.Rand) {
		for n := range lengths {
			dst, x, y, alpha := vector(r, n), vector(r, n), vector(r, n), float32(r.NormFloat64())
			ScaledMul(dst.v, alpha, x.v, y.v)
			for i := range n {
				if want := alpha * x.v[i] * y.v[i]; dst.v[i] != want {
					t.Fatalf("n=%d: element %d is %v, want %v", n, i, dst.v[i], want)
				}
			}
			want := dst.v
			ScaledMul(x.v, alpha, x.v, y.v) // in place
			for i := range n {
				if x.v[i] != want[i] {
					t.Fatalf("n=%d in place: element %d is %v, want %v", n, i, x.v[i], want[i])
				}
			}
			dst.intact(t)
			x.intact(t)
		}
	})
}

func TestSiLUMul(t *testing.T) {
	eachISA(t, func(t *testing.T, r *rand.Rand) {
		for n := range lengths {
			dst, gate, up := vector(r, n), vector(r, n), vector(r, n)
			for i := range gate.v {
				gate.v[i] *= 30
				if i%7 == 3 {
					gate.v[i] *= 30 // far out on both sides, where the exponential over- and underflows
				}
			}
			SiLUMul(dst.v, gate.v, up.v)
			for i := range n {
				g := gate.at(0, i)
				want := g / (1 + math.Exp(-g)) * up.at(0, i)
				if d := math.Abs(float64(dst.v[i]) - want); !(d <= 1e-6*math.Abs(want)+1e-36) {
					t.Fatalf("n=%d: silu(%v)·%v = %v, want %v", n, g, up.at(0, i), dst.v[i], want)
				}
			}
			dst.intact(t)
		}
	})
}
