package cpu

import (
	"math"
	"slices"
	"unsafe"

	"github.com/gaze-ml/gaze/internal/attn"
	"github.com/gaze-ml/gaze/internal/simd"
)

// softmaxTask turns rows of logits into probabilities, a share of the rows an item.
type softmaxTask struct {
	c     *attn.SoftmaxCall
	items int
}

// Softmax gives each row's probabilities. Out may be the logits.
func (b *Backend) Softmax(c *attn.SoftmaxCall) error {
	if err := required(c.Op(), operand{"logits", &c.Logits}, operand{"out", &c.Out}); err != nil {
		return err
	}
	f := b.take()
	defer b.give(f)
	t, cost := c.Logits.Shape[0], 8*c.Logits.Shape[1]
	f.softmax = softmaxTask{c, b.pieces(t, cost)}
	defer func() { f.softmax.c = nil }()
	return b.loop(c.Op(), &f.softmax, f.softmax.items, t*cost, &f.scratch)
}

func (l *softmaxTask) run(_ *scratch, item int) {
	c := l.c
	from, to := share(c.Logits.Shape[0], l.items, item)
	n := c.Logits.Shape[1]
	for t := from; t < to; t++ {
		out := f32(&c.Out, t*n, n)
		load(out, c.Logits.DType, c.Logits.At(t*c.Logits.Stride[0]))
		softmax(out, c.Temperature)
	}
}

// softmax works in place. Differences are divided in float64, so that no temperature is too large or too small.
func softmax(x []float32, temperature float64) {
	switch m := simd.Max(x); {
	case m != m || m > math.MaxFloat32:
		for i := range x {
			x[i] = float32(math.NaN())
		}
	case m < -math.MaxFloat32:
		clear(x)
	default:
		sum := 0.0
		for part := range slices.Chunk(x, 256) { // a sum of as many float32 is good enough
			for i := range part {
				part[i] = float32(float64(part[i]-m) / temperature)
			}
			sum += float64(simd.ExpSumInPlace(part, 0))
		}
		simd.Scale(float32(1/sum), x)
	}
}

// topKTask looks for the largest elements of rows, a share of the rows an item.
type topKTask struct {
	c     *attn.TopKCall
	items int
}

// TopK gives each row's largest elements and their columns.
func (b *Backend) TopK(c *attn.TopKCall) error {
	if err := required(c.Op(), operand{"logits", &c.Logits}, operand{"values", &c.Values}, operand{"indices", &c.Indices}); err != nil {
		return err
	}
	f := b.take()
	defer b.give(f)
	t, cost := c.Logits.Shape[0], 2*c.Logits.Shape[1]
	f.topK = topKTask{c, b.pieces(t, cost)}
	defer func() { f.topK.c = nil }()
	return b.loop(c.Op(), &f.topK, f.topK.items, t*cost, &f.scratch)
}

func (l *topKTask) run(s *scratch, item int) {
	c := l.c
	from, to := share(c.Logits.Shape[0], l.items, item)
	n, k := c.Logits.Shape[1], c.K
	s.reset()
	buf := s.floats(n)
	heap := slice[uint64](unsafe.Pointer(unsafe.SliceData(s.floats(2*k))), k)
	for t := from; t < to; t++ {
		x := row(buf, &c.Logits, t*c.Logits.Stride[0], n)
		topK(heap, x)
		values, indices := f32(&c.Values, t*k, k), slice[int32](c.Indices.At(t*k), k)
		for i, r := range heap {
			indices[i] = int32(^uint32(r))
			values[i] = x[indices[i]]
		}
	}
}

// topK sets heap to the ranks of the largest of x, the highest first. Meanwhile the lowest of them is at the root, which most elements
// don't get past.
func topK(heap []uint64, x []float32) {
	k := len(heap)
	for i, v := range x[:k] {
		heap[i] = rank(v, i)
	}
	for i := k/2 - 1; i >= 0; i-- {
		sink(heap, i)
	}
	for i, v := range x[k:] {
		if r := rank(v, k+i); r > heap[0] {
			heap[0] = r
			sink(heap, 0)
		}
	}
	for last := k - 1; last > 0; last-- {
		heap[0], heap[last] = heap[last], heap[0]
		sink(heap[:last], 0)
	}
}

// rank orders elements: the larger one is higher, of equal ones that of the lower index, which is in the low half, inverted. NaN is lower
// than everything.
func rank(v float32, i int) uint64 {
	b := math.Float32bits(v + 0) // -0 becomes 0
	switch {
	case v != v:
		b = 0
	case b>>31 == 1:
		b = ^b
	default:
		b |= 1 << 31
	}
	return uint64(b)<<32 | uint64(^uint32(i))
}

// sink moves the rank at i down to its place.
func sink(heap []uint64, i int) {
	for {
		child := 2*i + 1
		if child >= len(heap) {
			return
		}
		if child+1 < len(heap) && heap[child+1] < heap[child] {
			child++
		}
		if heap[i] <= heap[child] {
			return
		}
		heap[i], heap[child] = heap[child], heap[i]
		i = child
	}
}
