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
	p.ropeOperands = ropeOperands{
		X: at.need("x", &c.X), Positions: at.table("positions", &c.Positions, false), Factors: at.may("factors", &c.Factors),
		Out: at.need("out", &c.Out), Fault: rt.faults, XToken: int64(c.X.Stride[0]), XHead: int64(c.X.Stride[1]), Tokens: int64(c.X.Shape[0]),
		Heads: int32(c.X.Shape[1]), HeadDim: int32(c.X.Shape[2]), Rotary: int32(c.Rotary(c.X.Shape[2])), Adjacent: int32(c.Pairing), Op: opRoPE,
	}
	if at.err != nil || c.X.Len() == 0 {
		return at.err
	}
	if c.CheckValues {
		if err := rt.checkRoPE(c); err != nil {
			return err
		}
	}
	rt.frame.ropeTurns.set(&p.Turns, &c.RoPEConfig, c.X.Shape[2])
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

// turns is what the turns of some parameters were made of. The next launch's are nearly always the same.
type turns struct {
	config attn.RoPEConfig
	rotary int
}

// set makes dst, of which t tells, the turns (angle/2π) a position of every pair of heads of size d.
func (t *turns) set(dst *[mostRotary / 2]float64, c *attn.RoPEConfig, d int) {
	n := c.Rotary(d)
	if t.config == *c && t.rotary == n {
		return
	}
	*t = turns{*c, n}
	for i := range n / 2 {
		dst[i] = c.Frequency(i, d) / (2 * math.Pi)
	}
}
