package cpu

import "github.com/gaze-ml/gaze/internal/attn"

// castTask copies elements to another dtype, a share of them an item.
type castTask struct {
	c     *attn.CastCall
	items int
}

// Cast copies x to the dtype of out.
func (b *Backend) Cast(c *attn.CastCall) error {
	if err := required(c.Op(), operand{"x", &c.X}, operand{"out", &c.Out}); err != nil {
		return err
	}
	f := b.take()
	defer b.give(f)
	n := c.X.Len()
	f.cast = castTask{c, b.pieces(n, 1)}
	defer func() { f.cast.c = nil }()
	return b.loop(c.Op(), &f.cast, f.cast.items, n, &f.scratch)
}

func (e *castTask) run(s *scratch, item int) {
	c := e.c
	from, to := share(c.X.Len(), e.items, item)
	const most = 1024 // elements at a time, which stay in the first-level cache
	s.reset()
	buf := s.floats(most)
	for ; from < to; from += most {
		store(c.Out.At(from), c.Out.DType, row(buf, &c.X, from, min(most, to-from)))
	}
}
