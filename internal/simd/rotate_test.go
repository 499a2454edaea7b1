package simd

import (
	"math"
	"math/rand/v2"
	"testing"
)

func TestRotate(t *testing.T) {
	eachISA(t, func(t *testing.T, r *rand.Rand) {
		for n := range lengths {
			for name, rotate := range map[string]func(out, x, cos, sin []float32){"adjacent": RotateAdjacent, "halves": RotateHalves} {
				out, x, cos, sin := vector(r, 2*n), vector(r, 2*n), vector(r, n), vector(r, n)
				rotate(out.v, x.v, cos.v, sin.v)
				for i := range n {
					p, q := 2*i, 2*i+1
					if name == "halves" {
						p, q = i, n+i
					}
					a, b, c, s := x.at(0, p), x.at(0, q), cos.at(0, i), sin.at(0, i)
					near(t, name, out.v[p], a*c-b*s, math.Abs(a*c)+math.Abs(b*s), 2)
					near(t, name, out.v[q], a*s+b*c, math.Abs(a*s)+math.Abs(b*c), 2)
				}
				out.intact(t)
				want := out.v
				rotate(x.v, x.v, cos.v, sin.v)
				for i := range want {
					if x.v[i] != want[i] {
						t.Fatalf("%s in place, n=%d: element %d is %v, want %v", name, n, i, x.v[i], want[i])
					}
				}
				x.intact(t)
			}
		}
	})
}
