package cpu

import (
	"math"

	"github.com/gaze-ml/gaze/internal/attn"
	"github.com/gaze-ml/gaze/internal/simd"
)

// normTask is RMSNorm, a share of the rows an item.
type normTask struct {
	c     *attn.RMSNormCall
	items int
}

// RMSNorm normalises rows, after the residual add. Out and Sum may be x or residual.
func (b *Backend) RMSNorm(c *attn.RMSNormCall) error {
	if err := required(c.Op(), operand{"x", &c.X}, operand{"weight", &c.Weight}, operand{"out", &c.Out}); err != nil {
		return err
	}
	if err := present(c.Op(), operand{"residual", &c.Residual}, operand{"sum", &c.Sum}); err != nil {
		return err
	}
	f := b.take()
	defer b.give(f)
	t, h := c.X.Shape[0], c.X.Shape[1]
	f.norm = normTask{c, b.pieces(t, 4*h)}
	defer func() { f.norm.c = nil }()
	return b.loop(c.Op(), &f.norm, f.norm.items, t*4*h, &f.scratch)
}

func (n *normTask) run(s *scratch, item int) {
	c := n.c
	from, to := share(c.X.Shape[0], n.items, item)
	h := c.X.Shape[1]
	s.reset()
	r, buf := s.floats(h), s.floats(h)
	weight := row(s.floats(h), &c.Weight, 0, h)
	for t := from; t < to; t++ {
		x := row(r, &c.X, t*c.X.Stride[0], h)
		if c.Residual.Valid() {
			copy(r, x)
			simd.Axpy(1, row(buf, &c.Residual, t*c.Residual.Stride[0], h), r)
			x = r
			if c.Sum.Valid() {
				store(c.Sum.At(t*h), c.Sum.DType, r)
			}
		}
		scale := float32(1 / math.Sqrt(float64(simd.Dot(x, x))/float64(h)+c.Eps))
		out := buf
		if c.Out.DType == attn.F32 {
			out = f32(&c.Out, t*h, h)
		}
		simd.ScaledMul(out, scale, x, weight)
		if c.Out.DType != attn.F32 {
			store(c.Out.At(t*h), c.Out.DType, out)
		}
	}
}
