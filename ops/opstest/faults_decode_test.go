package opstest

import (
	"math"
	"slices"

	"github.com/gaze-ml/gaze/internal/attn"
)

// decodeFaults are wrong backends that the decode cases must catch.
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
