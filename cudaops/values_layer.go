package cudaops

import "github.com/gaze-ml/gaze/internal/attn"

func (rt *Runtime) checkEmbedding(c *attn.EmbeddingCall) error {
	v := rt.values(c.Op())
	ids := v.of("ids", &c.IDs)
	if v.err != nil {
		return v.err
	}
	for t := range c.IDs.Shape[0] {
		if id := ids.at(t); id < 0 || id >= int64(c.Weight.Shape[0]) {
			return judge(opEmbedding, fault{faultID, 0, int64(t), id, int64(c.Weight.Shape[0])})
		}
	}
	return nil
}

func (rt *Runtime) checkRoPE(c *attn.RoPECall) error {
	v := rt.values(c.Op())
	positions := v.of("positions", &c.Positions)
	if v.err != nil {
		return v.err
	}
	for t := range c.X.Shape[0] {
		if pos := positions.at(t); pos < -1 {
			return judge(opRoPE, fault{faultPosition, 0, int64(t), pos, 1 << 31})
		}
	}
	return nil
}
