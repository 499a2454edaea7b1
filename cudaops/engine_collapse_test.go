package cudaops

import (
	"math/rand/v2"
	"testing"

	"github.com/gaze-ml/gaze/internal/attn"
)

// TestCollapse: joined dimensions visit the same elements in the same order, in every tensor.
func TestCollapse(t *testing.T) {
	const seed = 7
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, seed))
	four, refused := 0, 0
	for range 2000 {
		rank := r.IntN(attn.MaxRank + 1)
		shape := make([]int, rank)
		for i := range shape {
			shape[i] = 1 + r.IntN(3)
		}
		a, b := attn.Of(attn.F32, shape...), attn.Of(attn.F32, shape...)
		for i := range rank { // views: a stretched dimension stretches those outside of it
			if r.IntN(3) == 0 {
				for j := range i + 1 {
					a.Stride[j] *= 2
				}
			}
			if r.IntN(6) == 0 {
				b.Stride[i] = 0
			}
		}
		var dims, as, bs [4]int64
		if !collapse(&dims, []*attn.Tensor{&a, &b}, []*[4]int64{&as, &bs}) {
			refused++
			if rank <= 4 {
				t.Fatalf("refused %v with strides %v, %v", shape, a.Stride, b.Stride)
			}
			continue
		}
		if dims[0] > 1 {
			four++
		}
		want := offsets(shape, a.Stride[:rank], b.Stride[:rank])
		var got [][2]int
		for i := range dims[0] {
			for j := range dims[1] {
				for k := range dims[2] {
					for l := range dims[3] {
						at := func(s [4]int64) int { return int(i*s[0] + j*s[1] + k*s[2] + l*s[3]) }
						got = append(got, [2]int{at(as), at(bs)})
					}
				}
			}
		}
		if len(got) != len(want) {
			t.Fatalf("%v: %d elements, want %d", shape, len(got), len(want))
		}
		for i := range got {
			if got[i] != want[i] {
				t.Fatalf("%v, strides %v and %v: element %d at %v, want %v", shape, a.Stride, b.Stride, i, got[i], want[i])
			}
		}
	}
	if four == 0 || refused == 0 {
		t.Errorf("%d cases of four dimensions, %d refused: too few to tell", four, refused)
	}
}

// offsets walks a shape in row-major order.
func offsets(shape, a, b []int) [][2]int {
	if len(shape) == 0 {
		return [][2]int{{0, 0}}
	}
	var all [][2]int
	for i := range shape[0] {
		for _, o := range offsets(shape[1:], a[1:], b[1:]) {
			all = append(all, [2]int{o[0] + i*a[0], o[1] + i*b[0]})
		}
	}
	return all
}
