package cpu

import (
	"math"

	"github.com/gaze-ml/gaze/internal/attn"
	"github.com/gaze-ml/gaze/internal/simd"
)

// mergeTask joins two partial attentions, a share of the tokens an item.
type mergeTask struct {
	c     *attn.MergeLSECall
	items int
}

// MergeLSE joins attention over two disjoint sets of keys.
func (b *Backend) MergeLSE(c *attn.MergeLSECall) error {
	if err := required(c.Op(), operand{"out_a", &c.OutA}, operand{"out_b", &c.OutB}, operand{"lse_a", &c.LSEA},
		operand{"lse_b", &c.LSEB}, operand{"out", &c.Out}, operand{"lse", &c.LSE}); err != nil {
		return err
	}
	f := b.take()
	defer b.give(f)
	cost := 4 * c.OutA.Shape[1] * c.OutA.Shape[2]
	f.merge = mergeTask{c, b.pieces(c.OutA.Shape[0], cost)}
	defer func() { f.merge.c = nil }()
	return b.loop(c.Op(), &f.merge, f.merge.items, cost*c.OutA.Shape[0], &f.scratch)
}

func (m *mergeTask) run(s *scratch, item int) {
	c := m.c
	from, to := share(c.OutA.Shape[0], m.items, item)
	heads, d := c.OutA.Shape[1], c.OutA.Shape[2]
	s.reset()
	sum, buf := s.floats(d), s.floats(d)
	for t := from; t < to; t++ {
		for h := range heads {
			a := float64(*(*float32)(c.LSEA.At(t*c.LSEA.Stride[0] + h*c.LSEA.Stride[1])))
			b := float64(*(*float32)(c.LSEB.At(t*c.LSEB.Stride[0] + h*c.LSEB.Stride[1])))
			top := max(a, b)
			lse := top
			if !math.IsInf(top, -1) {
				lse = top + math.Log(math.Exp(a-top)+math.Exp(b-top))
			}
			clear(sum)
			for _, part := range []struct {
				lse float64
				out *attn.Tensor
			}{{a, &c.OutA}, {b, &c.OutB}} {
				if !math.IsInf(part.lse, -1) { // a part without keys has nothing to say
					x := row(buf, part.out, t*part.out.Stride[0]+h*part.out.Stride[1], d)
					simd.Axpy(float32(math.Exp(part.lse-lse)), x, sum)
				}
			}
			store(c.Out.At((t*heads+h)*d), c.Out.DType, sum)
			*(*float32)(c.LSE.At(t*heads + h)) = float32(lse)
		}
	}
}
