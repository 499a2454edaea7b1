package opstest

import (
	"math"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/gaze-ml/gaze/internal/attn"
)

// fault is a backend that is wrong in one way.
type fault struct {
	name    string
	ops     []string // whose cases must catch it
	backend attn.Backend
}

func bent(f faults) attn.Backend { return &Reference{faults: f} }

// skipping leaves out one step.
func skipping(step string) attn.Backend {
	return bent(faults{skip: func(what string) bool { return what == step }})
}

// placed moves one kind of place. Wherever that leads, the backend stays inside its pools: it should be wrong, not crash.
func placed(kind string, move func(at int, c attn.Call) int) attn.Backend {
	return bent(faults{place: func(what string, at int, c attn.Call) int {
		switch {
		case what == kind:
			return move(at, c)
		case what == "page offset":
			return insidePool(at, c)
		}
		return at
	}})
}

func insidePool(at int, c attn.Call) int {
	var t *attn.Tensor
	switch c := c.(type) {
	case *attn.DecodeCall:
		t = &c.Key
	case *attn.PrefillCall:
		t = &c.Key
	case *attn.AppendCall:
		t = &c.KeyCache
	}
	if at < 0 || at >= t.Shape[0]*t.Stride[0] && t.Shape[0] > 0 {
		return 0
	}
	return at
}

func problemFault(f func(*problem, attn.Call)) attn.Backend { return bent(faults{problem: f}) }

func solutionFault(f func(*problem, *solution, attn.Call)) attn.Backend {
	return bent(faults{solution: f})
}

// eachRequest bends every request.
func eachRequest(f func(p *problem, r *request)) attn.Backend {
	return problemFault(func(p *problem, _ attn.Call) {
		for i := range p.reqs {
			f(p, &p.reqs[i])
		}
	})
}

// seeing replaces the mask of every request.
func seeing(f func(p *problem, r *request, i, c int, old func(i, c int) bool) bool) attn.Backend {
	return eachRequest(func(p *problem, r *request) {
		old := r.mask
		r.mask = func(i, c int) bool { return f(p, r, i, c, old) }
	})
}

// headsOf moves the KV heads: the solver asks for head h/G.
func headsOf(move func(p *problem, h int) int) attn.Backend {
	return eachRequest(func(p *problem, r *request) {
		k, v := r.k, r.v
		r.k = func(j, h int, dst []float64) { k(j, move(p, h), dst) }
		r.v = func(j, h int, dst []float64) { v(j, move(p, h), dst) }
	})
}

// eachRow changes every row's answer.
func eachRow(f func(p *problem, o []float64, lse *float64, row, h int, c attn.Call)) attn.Backend {
	return solutionFault(func(p *problem, s *solution, c attn.Call) {
		each(p, func(row, h int) { f(p, s.row(row, h), &s.lse[row*p.hq+h], row, h, c) })
	})
}

func scaleRow(o []float64, x float64) {
	for d := range o {
		o[d] *= x
	}
}

// meddler calls the reference and then does something wrong to the call's memory.
type meddler struct {
	Reference
	before, after func(attn.Call)
}

func (m *meddler) around(c attn.Call, run func() error) error {
	if m.before != nil {
		m.before(c)
	}
	err := run()
	if m.after != nil {
		m.after(c)
	}
	return err
}

func (m *meddler) Decode(c *attn.DecodeCall) error {
	return m.around(c, func() error { return m.Reference.Decode(c) })
}

func (m *meddler) Prefill(c *attn.PrefillCall) error {
	d := *c // what before changes is the backend's own copy
	return m.around(&d, func() error { return m.Reference.Prefill(&d) })
}

func (m *meddler) RMSNorm(c *attn.RMSNormCall) error {
	return m.around(c, func() error { return m.Reference.RMSNorm(c) })
}

func (m *meddler) RoPE(c *attn.RoPECall) error {
	d := *c
	return m.around(&d, func() error { return m.Reference.RoPE(&d) })
}

func (m *meddler) MergeLSE(c *attn.MergeLSECall) error {
	return m.around(c, func() error { return m.Reference.MergeLSE(c) })
}

func decodeFaults() []fault {
	var stale []float64 // LSE of the call before
	return []fault{
		{"mask edge one key short", nil, seeing(func(_ *problem, _ *request, i, c int, old func(i, c int) bool) bool {
			return (old == nil || old(i, c)) && (c < i || i == 0)
		})},
		{"mask edge one key far", nil, seeing(func(_ *problem, _ *request, i, c int, old func(i, c int) bool) bool {
			return old != nil && old(i, c) || c <= i+1
		})},
		{"draft mask ignored", nil, eachRequest(func(_ *problem, r *request) { r.mask = nil })},
		{"draft mask above the diagonal ignored", nil, eachRequest(func(_ *problem, r *request) {
			if old := r.mask; old != nil {
				r.mask = func(i, c int) bool { return c <= i && old(i, c) }
			}
		})},
		{"mask halves swapped", nil, placed("mask half", func(at int, _ attn.Call) int { return at ^ 1 })},
		{"mask of the first 32 drafts only", nil, placed("mask half", func(at int, _ attn.Call) int { return at % 2 })},
		{"scale applied twice", nil, problemFault(func(p *problem, _ attn.Call) { p.c1 *= p.c1 })},
		{"scale over sqrt(d) again", nil, problemFault(func(p *problem, _ attn.Call) { p.c1 /= math.Sqrt(float64(p.dqk)) })},
		{"bmm2_scale forgotten", nil, problemFault(func(p *problem, _ attn.Call) { p.c2 = 1 })},
		{"bmm2_scale applied twice", nil, problemFault(func(p *problem, _ attn.Call) { p.c2 *= p.c2 })},
		{"scale tensors ignored", nil, skipping("device scale")},
		{"o_scale applied", nil, problemFault(func(p *problem, c attn.Call) { p.c2 /= c.(*attn.DecodeCall).OScale })},
		{"sinks forgotten", nil, problemFault(func(p *problem, _ attn.Call) { p.sinks = nil })},
		{"sinks once per split", nil, problemFault(func(p *problem, _ attn.Call) {
			for h := range p.sinks {
				if longest([]int{p.reqs[0].s}) > 32 {
					p.sinks[h] += math.Ln2
				}
			}
		})},
		{"sinks in base 2", nil, problemFault(func(p *problem, _ attn.Call) { scaleRow(p.sinks, math.Ln2) })},
		{"sinks multiplied by bmm1_scale", nil, problemFault(func(p *problem, _ attn.Call) { scaleRow(p.sinks, p.c1) })},
		{"sinks by KV head", nil, problemFault(func(p *problem, _ attn.Call) {
			if old := slices.Clone(p.sinks); old != nil {
				for h := range old {
					p.sinks[h] = old[h/(p.hq/p.hkv)]
				}
			}
		})},
		{"sink left out of the LSE", nil, solutionFault(func(p *problem, s *solution, _ attn.Call) {
			if q := *p; q.sinks != nil {
				q.sinks = nil
				s.lse = q.solve().lse
			}
		})},
		{"LSE in base 2", nil, eachRow(func(_ *problem, _ []float64, l *float64, _, _ int, _ attn.Call) { *l *= math.Log2E })},
		{"LSE of the call before", nil, solutionFault(func(_ *problem, s *solution, _ attn.Call) {
			was := stale
			if stale = slices.Clone(s.lse); len(was) == len(s.lse) {
				copy(s.lse, was)
			}
		})},
		{"LSE not written", nil, skipping("lse")},
		{"LSE is the maximum alone", nil, eachRow(func(_ *problem, _ []float64, l *float64, _, _ int, _ attn.Call) { *l = math.Floor(*l) })},
		{"page one off", nil, placed("page", func(at int, _ attn.Call) int { return at ^ 1 })},
		{"slot one off", nil, placed("slot", func(at int, c attn.Call) int { return (at + 1) % c.(*attn.DecodeCall).Key.Shape[2] })},
		{"table rows taken as packed", nil, placed("table row", func(at int, c attn.Call) int {
			t := &c.(*attn.DecodeCall).BlockTables
			return at / t.Stride[0] * t.Shape[1]
		})},
		{"page offset in int32", nil, placed("page offset", func(at int, _ attn.Call) int { return int(uint32(at) &^ (1 << 31)) })},
		{"page offset in uint32", nil, placed("page offset", func(at int, _ attn.Call) int { return int(uint32(at)) })},
		{"V with K's strides", nil, placed("V", func(at int, c attn.Call) int {
			k, v := &c.(*attn.DecodeCall).Key, &c.(*attn.DecodeCall).Value
			page, rest := at/v.Stride[0], at%v.Stride[0]
			return (page*k.Stride[0] + rest) % extent(v)
		})},
		{"query rows taken as packed", nil, placed("q row", func(at int, c attn.Call) int {
			q := &c.(*attn.DecodeCall).Query
			return at / max(1, q.Stride[0]) * q.Shape[1] * q.Shape[2]
		})},
		{"first request's query length for all", nil, problemFault(func(p *problem, _ attn.Call) {
			for i := 1; i < len(p.reqs); i++ {
				p.reqs[i].row0 = min(i*p.reqs[0].l, p.reqs[i].row0)
			}
		})},
		{"first request's KV length for all", nil, problemFault(func(p *problem, _ attn.Call) {
			for i := range p.reqs {
				p.reqs[i].s = min(p.reqs[0].s, p.reqs[i].s)
			}
		})},
		{"window one key short", nil, problemFault(func(p *problem, _ attn.Call) {
			if p.window > 0 {
				p.window--
			}
		})},
		{"window one key far", nil, problemFault(func(p *problem, _ attn.Call) {
			if p.window >= 0 {
				p.window++
			}
		})},
		{"window of 0 taken as none", nil, problemFault(func(p *problem, _ attn.Call) {
			if p.window == 0 {
				p.window = -1
			}
		})},
		{"window of the last row for all", nil, solutionFault(func(p *problem, s *solution, _ attn.Call) {
			for _, r := range p.reqs {
				for i := range r.l { // keys from S-1-w on, seen from position S-L+i
					q := *p
					if q.window -= r.l - 1 - i; p.window < 0 || q.window < 0 {
						continue
					}
					other := q.solve()
					for h := range p.hq {
						copy(s.row(r.row0+i, h), other.row(r.row0+i, h))
					}
				}
			}
		})},
		{"window ignored under a mask", nil, problemFault(func(p *problem, _ attn.Call) {
			if p.reqs != nil && p.reqs[0].mask != nil {
				p.window = -1
			}
		})},
		{"KV head h mod Hkv", nil, headsOf(func(p *problem, h int) int { return (h + 1) % p.hkv })},
		{"groups as powers of two", nil, headsOf(func(p *problem, h int) int {
			if g := p.hq / p.hkv; g&(g-1) != 0 {
				return p.hkv - 1 - h
			}
			return h
		})},
		{"NaN of the tail leaks", nil, solutionFault(func(p *problem, s *solution, c attn.Call) {
			each(p, func(row, h int) {
				d := c.(*attn.DecodeCall)
				for _, r := range p.reqs {
					if row >= r.row0 && row < r.row0+r.l && r.s > 0 && r.s%d.Key.Shape[2] != 0 {
						v := make([]float64, p.dvo)
						r.v(r.s, h/(p.hq/p.hkv), v)
						for i, o := 0, s.row(row, h); i < len(o); i++ {
							o[i] += 0 * v[i]
						}
					}
				}
			})
		})},
		{"rows without keys are NaN", nil, eachRow(func(_ *problem, o []float64, l *float64, _, _ int, _ attn.Call) {
			if math.IsInf(*l, -1) {
				scaleRow(o, math.NaN())
			}
		})},
		{"LSE of rows without keys is 0", nil, eachRow(func(_ *problem, _ []float64, l *float64, _, _ int, _ attn.Call) {
			if math.IsInf(*l, -1) {
				*l = 0
			}
		})},
		{"masked scores are -1e5", nil, eachRow(func(_ *problem, o []float64, l *float64, _, _ int, _ attn.Call) {
			if *l < -1e5 {
				scaleRow(o, 0)
			}
		})},
		{"exponentials without the maximum", nil, eachRow(func(_ *problem, o []float64, l *float64, _, _ int, _ attn.Call) {
			if *l > 88.7 {
				scaleRow(o, math.NaN())
			}
		})},
		{"last key left out of long contexts", nil, eachRequest(func(_ *problem, r *request) {
			if r.s > 4000 {
				r.s--
			}
		})},
		{"weights rounded to 16 bits under f32", nil, eachRow(func(_ *problem, o []float64, _ *float64, _, _ int, c attn.Call) {
			if c.(*attn.DecodeCall).Out.DType == attn.F32 {
				for d := range o {
					o[d] = formats[attn.BF16].round(o[d])
				}
			}
		})},
		{"NaN swallowed", nil, bent(faults{store: func(_ *attn.Tensor, _ int, x float64) float64 {
			if math.IsNaN(x) {
				return 0
			}
			return x
		}})},
		{"e4m3 wraps instead of saturating", nil, bent(faults{store: func(t *attn.Tensor, _ int, x float64) float64 {
			if t.DType == attn.E4M3 && math.Abs(x) > 464 {
				return math.NaN()
			}
			return x
		}})},
		{"truncation instead of rounding", nil, bent(faults{store: func(t *attn.Tensor, _ int, x float64) float64 {
			if s := formats[t.DType].step(x); t.DType == attn.F16 && s > 1e-3 {
				return math.Trunc(x/s)*s - math.Copysign(s, x)
			}
			return x
		}})},
		{"nvfp4 scales row by row", nil, placed("scale", func(at int, c attn.Call) int {
			cols := c.(*attn.DecodeCall).OutScale.Shape[1]
			for m := range 256 {
				for k := range cols {
					if swizzled(m, k, cols) == at {
						return m*cols + k
					}
				}
			}
			return at
		})},
		{"nvfp4 start row ignored", nil, placed("scale", func(at int, c attn.Call) int {
			d := c.(*attn.DecodeCall)
			cols := d.OutScale.Shape[1]
			for m := range 256 {
				for k := range cols {
					if swizzled(m, k, cols) == at {
						return swizzled(m-d.SFStartRow, k, cols)
					}
				}
			}
			return at
		})},
		{"nvfp4 high nibble first", nil, skipping("low nibble first")},
		{"bad values pass in silence", nil, &careless{}},
		{"writes before it refuses", nil, &meddler{before: func(c attn.Call) {
			if out := &c.(*attn.DecodeCall).Out; out.Len() > 0 {
				bytesAt(out, 0, 1)[0] = 0
			}
		}}},
		{"writes past the end", nil, &meddler{after: func(c attn.Call) {
			out := &c.(*attn.DecodeCall).Out
			bytesAt(out, out.Len(), 1)[0] = 0
		}}},
		{"writes before the start", nil, &meddler{after: func(c attn.Call) { bytesAt(&c.(*attn.DecodeCall).LSE, -1, 1)[3] = 0 }}},
		{"writes into its cache", nil, &meddler{after: func(c attn.Call) { bytesAt(&c.(*attn.DecodeCall).Key, 0, 1)[0] ^= 1 }}},
		{"last element not written", nil, &meddler{after: func(c attn.Call) {
			if out := &c.(*attn.DecodeCall).Out; out.Len() > 0 {
				bytesAt(out, out.Len()-1, 1)[0] = poisonByte
			}
		}}},
	}
}

func prefillFaults() []fault {
	changePrefill := func(f func(c *attn.PrefillCall)) attn.Backend {
		return &meddler{before: func(c attn.Call) { f(c.(*attn.PrefillCall)) }}
	}
	return []fault{
		{"causal mask anchored top left", nil, seeing(func(_ *problem, r *request, i, c int, _ func(i, c int) bool) bool { return r.s-r.l+c <= i })},
		{"causal mask anchored at the maxima", nil, problemFault(func(p *problem, c attn.Call) {
			shift := c.(*attn.PrefillCall).MaxKVLen - c.(*attn.PrefillCall).MaxQLen
			for n := range p.reqs {
				r := &p.reqs[n]
				r.mask = func(i, col int) bool { return !p.causal || r.s-r.l+col <= i+shift }
			}
		})},
		{"shift clamped at 0", nil, eachRequest(func(p *problem, r *request) {
			if p.causal && r.l > r.s {
				r.mask = func(i, c int) bool { return r.s-r.l+c <= i }
			}
		})},
		{"always causal", nil, problemFault(func(p *problem, _ attn.Call) { p.causal = true })},
		{"never causal", nil, problemFault(func(p *problem, _ attn.Call) { p.causal = false })},
		{"q_scale and k_scale ignored", nil, problemFault(func(p *problem, c attn.Call) { p.c1 = c.(*attn.PrefillCall).Scale })},
		{"v_scale ignored", nil, problemFault(func(p *problem, _ attn.Call) { p.c2 = 1 })},
		{"padding of the LSE left", nil, skipping("lse padding")},
		{"rows past the end left", nil, skipping("rows past the end")},
		{"offsets of q ignored", nil, changePrefill(func(c *attn.PrefillCall) { c.OffsetsQ = attn.Tensor{} })},
		{"offsets of out ignored", nil, changePrefill(func(c *attn.PrefillCall) { c.OffsetsO = attn.Tensor{} })},
		{"offsets of k ignored", nil, changePrefill(func(c *attn.PrefillCall) { c.OffsetsK = attn.Tensor{} })},
		{"offsets of v ignored", nil, changePrefill(func(c *attn.PrefillCall) { c.OffsetsV = attn.Tensor{} })},
		{"offsets of the LSE ignored", nil, changePrefill(func(c *attn.PrefillCall) { c.OffsetsStats = attn.Tensor{} })},
		{"bad values pass in silence", nil, &careless{}},
		{"V with K's page stride", nil, placed("V", func(at int, c attn.Call) int {
			k, v := &c.(*attn.PrefillCall).Key, &c.(*attn.PrefillCall).Value
			return (at/v.Stride[0]*k.Stride[0] + at%v.Stride[0]) % extent(v)
		})},
		{"page offset in uint32", nil, placed("page offset", func(at int, _ attn.Call) int { return int(uint32(at)) })},
		{"page one off", nil, placed("page", func(at int, _ attn.Call) int { return at ^ 1 })},
		{"LSE without the descales", nil, solutionFault(func(p *problem, s *solution, c attn.Call) {
			q := *p
			q.c1 = c.(*attn.PrefillCall).Scale
			s.lse = q.solve().lse
		})},
		{"writes between the requests", nil, &meddler{after: func(c attn.Call) {
			if p := c.(*attn.PrefillCall); p.OffsetsO.Valid() && p.Batch() > 0 && intAt(&p.OffsetsO, 0) > 0 {
				bytesAt(&p.Out, 0, 1)[0] = 0
			}
		}}},
	}
}

func layerFaults() []fault {
	norm, rope, merge := []string{"rms_norm"}, []string{"rope"}, []string{"merge_lse"}
	changeRoPE := func(f func(c *attn.RoPECall)) attn.Backend {
		return &meddler{before: func(c attn.Call) { f(c.(*attn.RoPECall)) }}
	}
	storing := func(f func(x float64) float64) attn.Backend {
		return bent(faults{store: func(_ *attn.Tensor, _ int, x float64) float64 { return f(x) }})
	}
	return []fault{
		{"bad positions pass in silence", []string{"append_kv"}, &careless{}},
		{"bad ids pass in silence", []string{"embedding"}, &careless{}},
		{"append one slot off", []string{"append_kv"}, placed("append slot", func(at int, c attn.Call) int { return at ^ 1 })},
		{"append multiplies by the scale", []string{"append_kv"}, skipping("divide by the scale")},
		{"append offset in uint32", []string{"append_kv"}, placed("page offset", func(at int, _ attn.Call) int { return int(uint32(at)) })},
		{"append truncates", []string{"append_kv"}, bent(faults{store: func(t *attn.Tensor, _ int, x float64) float64 {
			if s := formats[t.DType].step(x); t.DType != attn.F32 {
				return math.Trunc(x/s) * s
			}
			return x
		}})},
		{"eps outside the root", norm, &meddler{after: func(c attn.Call) {
			n := c.(*attn.RMSNormCall)
			d := *n
			d.Eps, d.Sum = n.Eps*n.Eps, attn.Tensor{}
			_ = new(Reference).RMSNorm(&d)
		}}},
		{"residual forgotten", norm, &meddler{after: func(c attn.Call) {
			d := *c.(*attn.RMSNormCall)
			d.Residual, d.Sum = attn.Tensor{}, attn.Tensor{}
			_ = new(Reference).RMSNorm(&d)
		}}},
		{"sum not written", norm, &meddler{after: func(c attn.Call) {
			if n := c.(*attn.RMSNormCall); n.Sum.Valid() {
				for i := range n.Sum.Len() {
					b := bytesAt(&n.Sum, i, 1)
					for k := range b {
						b[k] = poisonByte
					}
				}
			}
		}}},
		{"pairings swapped", rope, changeRoPE(func(c *attn.RoPECall) { c.Pairing ^= 1 })},
		{"scaling ignored", rope, changeRoPE(func(c *attn.RoPECall) { c.Scaling = attn.RoPEScaling{} })},
		{"Llama 3's scaling as a plain factor", rope, changeRoPE(func(c *attn.RoPECall) { c.Scaling.LowFreqFactor = 0 })},
		{"factors ignored", rope, changeRoPE(func(c *attn.RoPECall) { c.Factors = attn.Tensor{} })},
		{"rotary_dim ignored", rope, changeRoPE(func(c *attn.RoPECall) { c.RotaryDim = 0 })},
		{"position -1 turned", rope, placed("position", func(at int, _ attn.Call) int {
			if at < 0 {
				return 1
			}
			return at
		})},
		{"position one off", rope, placed("position", func(at int, _ attn.Call) int { return max(at, at+1) })},
		{"angles in f32", rope, placed("position", func(at int, _ attn.Call) int {
			if at > 1<<16 {
				return at + 1
			}
			return at
		})},
		{"bias forgotten", []string{"linear"}, skipping("bias")},
		{"output in 16 bits", []string{"linear"}, storing(func(x float64) float64 { return formats[attn.BF16].round(x) })},
		{"gate and up swapped", []string{"silu_mul"}, skipping("gate before up")},
		{"merge in base 2", merge, &meddler{after: func(c attn.Call) {
			m := *c.(*attn.MergeLSECall)
			for i := range m.LSE.Len() {
				var x [1]float64
				floatsAt(x[:], &m.LSE, i)
				encodeRow(bytesAt(&m.LSE, i, 1), attn.F32, []float64{x[0] * math.Log2E})
			}
		}}},
		{"merge takes the first side", merge, &meddler{after: func(c attn.Call) {
			m := *c.(*attn.MergeLSECall)
			m.OutB, m.LSEB = m.OutA, m.LSEA
			m.LSE = attn.Of(attn.F32, m.LSE.Shape[0], m.LSE.Shape[1])
			b := make([]byte, m.LSE.Bytes()+1)
			m.LSE.Ptr = pointer(b)
			_ = new(Reference).MergeLSE(&m)
		}}},
		{"embedding row one off", []string{"embedding"}, &shiftedEmbedding{}},
	}
}

// careless takes bad values for good ones and does nothing.
type careless struct{ Reference }

func (b *careless) Decode(c *attn.DecodeCall) error {
	_ = b.Reference.Decode(c)
	return nil
}

func (b *careless) Prefill(c *attn.PrefillCall) error {
	_ = b.Reference.Prefill(c)
	return nil
}

func (b *careless) Append(c *attn.AppendCall) error {
	_ = b.Reference.Append(c)
	return nil
}

func (b *careless) Embedding(c *attn.EmbeddingCall) error {
	_ = b.Reference.Embedding(c)
	return nil
}

// shiftedEmbedding gathers the row after the right one.
type shiftedEmbedding struct{ Reference }

func (s *shiftedEmbedding) Embedding(c *attn.EmbeddingCall) error {
	d := *c
	ids := make([]byte, c.IDs.Bytes()+4)
	for t := range c.IDs.Shape[0] {
		le.PutUint32(ids[4*t:], uint32((intAt(&c.IDs, t)+1)%c.Weight.Shape[0]))
	}
	d.IDs.Ptr = pointer(ids)
	return s.Reference.Embedding(&d)
}

// work is about what a case costs the reference.
func work(b body) int {
	n := 0
	switch s := b.(type) {
	case decodeSpec:
		for i, l := range s.lengths() {
			n += (l*s.hq + 2*s.hkv) * s.kvLens[i] * s.d
		}
	case prefillSpec:
		for i, l := range s.qLens {
			n += (l*s.hq + 2*s.hkv) * s.kvLens[i] * (s.dqk + s.dvo) / 2
		}
	case sameBits:
		for _, v := range s {
			n += work(v.spec.(body))
		}
	case reused, concurrent, goldenBody:
		n = 1 << 26
	}
	return n
}

// Every fault that a kernel's author may plant is caught by some case.
func TestFaults(t *testing.T) {
	groups := []struct {
		ops    []string
		faults []fault
	}{{[]string{"decode"}, decodeFaults()}, {[]string{"prefill"}, prefillFaults()}, {nil, layerFaults()}}
	count := 0
	for _, g := range groups {
		for _, f := range g.faults {
			count++
			if f.ops == nil {
				f.ops = g.ops
			}
			t.Run(f.ops[0]+"/"+f.name, func(t *testing.T) {
				tried := 0
				cases := Cases(Filter{Ops: f.ops, Grid: -1})
				slices.SortStableFunc(cases, func(a, b Case) int { return work(a.body) - work(b.body) }) // quick ones first
				for _, c := range cases {
					tried++
					r := c.Check(Target{Backend: f.backend}, DefaultSeed)
					if r.Status != Fail {
						continue
					}
					if t.Logf("caught after %d cases by %s", tried, r); strings.Contains(r.String(), "panic") {
						t.Error("the fault's own code panics")
					}
					return
				}
				t.Errorf("no case of %d catches it", tried)
			})
		}
	}
	if count < 25 {
		t.Errorf("%d faults", count)
	}
}

func pointer(b []byte) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(b)) }
