package cpu

import "github.com/gaze-ml/gaze/internal/attn"

// argmaxTask looks for the largest element of rows, a share of the rows an item.
type argmaxTask struct {
	c     *attn.ArgmaxCall
	items int
}

// Argmax gives the index of each row's largest element, the first among equals; NaN counts as less than everything.
func (b *Backend) Argmax(c *attn.ArgmaxCall) error {
	if err := required(c.Op(), operand{"x", &c.X}, operand{"out", &c.Out}); err != nil {
		return err
	}
	f := b.take()
	defer b.give(f)
	t, n := c.X.Shape[0], c.X.Shape[1]
	f.argmax = argmaxTask{c, b.pieces(t, n)}
	defer func() { f.argmax.c = nil }()
	return b.loop(c.Op(), &f.argmax, f.argmax.items, t*n, &f.scratch)
}

func (l *argmaxTask) run(s *scratch, item int) {
	c := l.c
	from, to := share(c.X.Shape[0], l.items, item)
	s.reset()
	x := s.floats(c.X.Shape[1])
	out := slice[int32](c.Out.Ptr, c.X.Shape[0])
	for t := from; t < to; t++ {
		out[t] = int32(largest(row(x, &c.X, t*c.X.Stride[0], len(x))))
	}
}

// largest is the index of the largest of x, 0 where there is nothing but NaN.
func largest(x []float32) int {
	best := -1
	for i, v := range x {
		if v == v && (best < 0 || v > x[best]) {
			best = i
		}
	}
	return max(best, 0)
}
