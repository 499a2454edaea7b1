package cudaops

import "github.com/gaze-ml/gaze/internal/attn"

// Cast copies x to the dtype of out.
func (b *Backend) Cast(c *attn.CastCall) error {
	rt := b.rt
	k, err := rt.start(c)
	defer rt.mu.Unlock()
	if err != nil {
		return err
	}
	at := binding{rt: rt, op: c.Op()}
	p := &rt.frame.cast
	*p = castParams{X: at.need("x", &c.X), Out: at.need("out", &c.Out), N: int64(c.X.Len())}
	if at.err != nil || p.N == 0 {
		return at.err
	}
	return launch(rt, k, c, rt.blocks(c.X.Len(), elementsPerBlock), 1, true, p)
}
