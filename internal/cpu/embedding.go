package cpu

import (
	"fmt"

	"github.com/gaze-ml/gaze/internal/attn"
	"github.com/gaze-ml/gaze/internal/quant"
)

// embeddingTask gathers rows of a table, a share of the tokens an item.
type embeddingTask struct {
	c     *attn.EmbeddingCall
	items int
}

// Embedding gathers the rows that ids name.
func (b *Backend) Embedding(c *attn.EmbeddingCall) error {
	op := c.Op()
	if err := required(op, operand{"ids", &c.IDs}, operand{"weight", &c.Weight}, operand{"out", &c.Out}); err != nil {
		return err
	}
	t, rows, n := c.IDs.Shape[0], c.Weight.Shape[0], c.Out.Shape[1]
	for i := range t {
		if id := integer(&c.IDs, i); id < 0 || id >= rows {
			return bad(op, "ids", fmt.Sprintf("0 to %d", rows-1), "row %d: %d", i, id)
		}
	}
	f := b.take()
	defer b.give(f)
	f.embedding = embeddingTask{c, b.pieces(t, n)}
	defer func() { f.embedding.c = nil }()
	return b.loop(op, &f.embedding, f.embedding.items, t*n, &f.scratch)
}

func (e *embeddingTask) run(s *scratch, item int) {
	c := e.c
	from, to := share(c.IDs.Shape[0], e.items, item)
	n := c.Out.Shape[1]
	s.reset()
	buf := s.floats(n)
	for t := from; t < to; t++ {
		w := c.Weight.At(integer(&c.IDs, t) * c.Weight.Stride[0])
		quant.Dequantize(c.Weight.DType, buf, slice[byte](w, c.Weight.Shape[1]*c.Weight.DType.Size()))
		store(c.Out.At(t*n), c.Out.DType, buf)
	}
}
