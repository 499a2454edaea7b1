package cudaops

import (
	"fmt"
	"math"

	"github.com/gaze-ml/gaze/internal/attn"
)

// RoPE turns pairs of elements.
func (b *Backend) RoPE(c *attn.RoPECall) error {
	rt := b.rt
	k, err := rt.start(c)
	defer rt.mu.Unlock()
	if err != nil {
		return err
	}
	at := binding{rt: rt, op: c.Op()}
	p := &rt.frame.rope
	p.X, p.Positions, p.Factors = at.need("x", &c.X), at.table("positions", &c.Positions, false), at.may("factors", &c.Factors)
	p.Out, p.Fault, p.Op = at.need("out", &c.Out), rt.faults, opRoPE
	p.XToken, p.XHead, p.Tokens = int64(c.X.Stride[0]), int64(c.X.Stride[1]), int64(c.X.Shape[0])
	p.Heads, p.HeadDim, p.Rotary = int32(c.X.Shape[1]), int32(c.X.Shape[2]), int32(c.Rotary(c.X.Shape[2]))
	p.Adjacent = int32(c.Pairing)
	if at.err != nil || c.X.Len() == 0 {
		return at.err
	}
	if c.CheckValues {
		if err := rt.checkRoPE(c); err != nil {
			return err
		}
	}
	rt.turns.fill(&p.Turns, &c.RoPEConfig, c.X.Shape[2])
	return launch(rt, k, c, rt.blocks(c.X.Shape[0]*c.X.Shape[1], 8), 1, true, p)
}

// mostRotary is how many elements of a head the kernels can turn.
const mostRotary = 512

func (rt *Runtime) decideRoPE(c *attn.RoPECall) (*kernel, []error) {
	return rt.decideRotary(c, key{Op: c.Op(), A: c.X.DType}, "x", c.Rotary(c.X.Shape[2]))
}

func (rt *Runtime) decideAppend(c *attn.AppendCall) (*kernel, []error) {
	n := 0
	if c.RoPE() {
		n = c.Rotary(c.Key.Shape[2])
	}
	return rt.decideRotary(c, key{Op: c.Op(), A: c.Key.DType, B: c.KeyCache.DType}, "k and kv_cache", n)
}

func (rt *Runtime) decideRotary(c attn.Call, k key, arg string, n int) (*kernel, []error) {
	found, why := rt.decidePlain(c, k, arg)
	if n > mostRotary {
		return nil, append(why, rt.unsupported(c, "rotary_dim", []string{fmt.Sprintf("%d or less", mostRotary)}, fmt.Sprint(n)))
	}
	return found, why
}

// turns remembers the frequencies of the last RoPE, which is nearly always the next one's.
type turns struct {
	config attn.RoPEConfig
	rotary int
	of     [mostRotary / 2]float64
}

// fill sets dst to the turns (angle/2π) a position of every pair of heads of size d.
func (t *turns) fill(dst *[mostRotary / 2]float64, c *attn.RoPEConfig, d int) {
	if n := c.Rotary(d); t.config != *c || t.rotary != n {
		t.config, t.rotary = *c, n
		for i := range n / 2 {
			t.of[i] = c.Frequency(i, d) / (2 * math.Pi)
		}
	}
	copy(dst[:], t.of[:t.rotary/2])
}
