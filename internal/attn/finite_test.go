package attn

import (
	"errors"
	"math"
	"testing"
)

// TestFinite: a scale must be finite in float32, in which backends compute.
func TestFinite(t *testing.T) {
	for x, want := range map[float64]bool{1: true, -3e38: true, 0: true, 1e-60: true, 1e39: false, -1e300: false, math.Inf(1): false, math.NaN(): false} {
		k := checker{op: "decode"}
		if k.finite("bmm1_scale", x); (k.err() == nil) != want || !want && !errors.Is(k.err(), ErrArgument) {
			t.Errorf("%v: %v", x, k.err())
		}
	}
}

// TestFactor: so must what they divide by, and it must not be 0 there.
func TestFactor(t *testing.T) {
	for x, want := range map[float64]bool{1: true, 1e-40: true, 3e38: true, 0: false, -1: false, 1e-60: false, 1e60: false, math.Inf(1): false, math.NaN(): false} {
		k := checker{op: "decode"}
		if k.factor("o_sf_scale", x); (k.err() == nil) != want || !want && !errors.Is(k.err(), ErrArgument) {
			t.Errorf("%v: %v", x, k.err())
		}
	}
}

// TestNoHeads: a query without heads is nothing that attention could divide among KV heads.
func TestNoHeads(t *testing.T) {
	for _, heads := range [][2]int{{0, 2}, {2, 0}, {3, 2}, {0, 0}} {
		k := checker{op: "decode"}
		if k.heads(heads[0], heads[1]); !errors.Is(k.err(), ErrShape) {
			t.Errorf("%d query heads, %d KV heads: %v, want ErrShape", heads[0], heads[1], k.err())
		}
	}
}
