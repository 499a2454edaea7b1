package cpu

import (
	"github.com/gaze-ml/gaze/internal/attn"
	"github.com/gaze-ml/gaze/internal/simd"
)

// siluTask is SiLU times up, a share of the rows an item.
type siluTask struct {
	c     *attn.SiLUMulCall
	items int
}

// SiLUMul is gate / (1 + exp(-gate)) · up. Out may be gate or up.
func (b *Backend) SiLUMul(c *attn.SiLUMulCall) error {
	if err := required(c.Op(), operand{"gate", &c.Gate}, operand{"up", &c.Up}, operand{"out", &c.Out}); err != nil {
		return err
	}
	f := b.take()
	defer b.give(f)
	t, n := c.Gate.Shape[0], c.Gate.Shape[1]
	f.silu = siluTask{c, b.pieces(t, 8*n)}
	defer func() { f.silu.c = nil }()
	return b.loop(c.Op(), &f.silu, f.silu.items, t*8*n, &f.scratch)
}

func (l *siluTask) run(s *scratch, item int) {
	c := l.c
	from, to := share(c.Gate.Shape[0], l.items, item)
	n := c.Gate.Shape[1]
	s.reset()
	g, u, y := s.floats(n), s.floats(n), s.floats(n)
	for t := from; t < to; t++ {
		simd.SiLUMul(y, row(g, &c.Gate, t*c.Gate.Stride[0], n), row(u, &c.Up, t*c.Up.Stride[0], n))
		store(c.Out.At(t*n), c.Out.DType, y)
	}
}
