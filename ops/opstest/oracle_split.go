package opstest

import (
	"math"
	"math/rand/v2"
	"slices"
)

// solveSplit is the second derivation of the same answer, as far from the first as the mathematics allows: it works on all
// query heads of a KV head at once, finds each row's keys as ranges instead of asking key by key, goes through them once with
// an online softmax in base 2, in pieces cut at random, and merges the pieces by their log-sum-exps. The sink is one more piece,
// with values of 0.
func (p *problem) solveSplit(rng *rand.Rand) *solution {
	out := p.newSolution()
	group := p.hq / p.hkv
	for n := range p.reqs {
		r := &p.reqs[n]
		for i := range r.l {
			for g := range p.hkv {
				acc := make([]state, group)
				q := make([][]float64, group)
				for x := range group {
					acc[x] = newState(p.dvo)
					q[x] = make([]float64, p.dqk)
					r.q(i, g*group+x, q[x])
				}
				keys := p.keys(r, i)
				for _, piece := range cut(keys, rng) {
					part := make([]state, group)
					for x := range part {
						part[x] = newState(p.dvo)
					}
					p.absorb(part, q, r, g, piece)
					for x := range acc {
						acc[x].merge(part[x])
					}
				}
				for x := range acc {
					h := g*group + x
					sink := newState(p.dvo)
					if p.sinks != nil {
						sink.log2 = p.sinks[h] * math.Log2E
					}
					if len(keys) > 0 || math.Abs(sink.log2) < math.Inf(1) {
						acc[x].merge(sink)
					}
					if len(keys) > 0 && math.IsInf(acc[x].log2, -1) { // no piece and no sink has any weight
						acc[x].spoil()
					}
					dst := out.row(r.row0+i, h)
					for d := range dst {
						dst[d] = p.c2 * acc[x].mean[d]
					}
					at := (r.row0+i)*p.hq + h
					out.lse[at] = acc[x].log2 * math.Ln2
					out.maxV[at] = acc[x].maxV * p.gain()
				}
			}
		}
	}
	return out
}

// keys lists what row i sees, in increasing order.
func (p *problem) keys(r *request, i int) []int {
	pos := r.s - r.l + i
	lo, hi := 0, r.s
	if p.window >= 0 {
		lo = max(lo, pos-min(p.window, r.s))
	}
	prior := min(hi, max(r.s-r.l, 0))
	if r.mask == nil {
		if p.causal {
			hi = min(hi, pos+1)
		}
		prior = hi
	}
	var keys []int
	for j := lo; j < prior; j++ {
		keys = append(keys, j)
	}
	if r.mask != nil {
		for c := max(0, r.l-r.s); c < r.l; c++ {
			if j := r.s - r.l + c; j >= lo && r.mask(i, c) {
				keys = append(keys, j)
			}
		}
	}
	return keys
}

// cut divides a list at random places, shuffled.
func cut(keys []int, rng *rand.Rand) [][]int {
	var out [][]int
	for len(keys) > 0 {
		n := 1 + rng.IntN(len(keys))
		out = append(out, keys[:n])
		keys = keys[n:]
	}
	rng.Shuffle(len(out), func(a, b int) { out[a], out[b] = out[b], out[a] })
	return out
}

// state is attention over some keys: the mean of their values and the base-2 logarithm of their weights' sum.
type state struct {
	mean []float64
	log2 float64
	maxV float64
}

func newState(d int) state { return state{mean: make([]float64, d), log2: math.Inf(-1)} }

// spoil makes it NaN.
func (a *state) spoil() {
	a.log2 = math.NaN()
	for d := range a.mean {
		a.mean[d] = math.NaN()
	}
}

// merge joins two disjoint sets of keys.
func (a *state) merge(b state) {
	a.maxV = math.Max(a.maxV, b.maxV)
	if math.IsInf(b.log2, -1) {
		for d := range a.mean {
			a.mean[d] += 0 * b.mean[d] // NaN where that is NaN or infinite
		}
		return
	}
	top := math.Max(a.log2, b.log2)
	wa, wb := math.Exp2(a.log2-top), math.Exp2(b.log2-top)
	for d := range a.mean {
		a.mean[d] = (wa*a.mean[d] + wb*b.mean[d]) / (wa + wb)
	}
	a.log2 = top + math.Log2(wa+wb)
}

// absorb runs the online softmax of all query heads of KV head g over some keys.
func (p *problem) absorb(part []state, q [][]float64, r *request, g int, keys []int) {
	k, v := make([]float64, p.dqk), make([]float64, p.dvo)
	top, sum := slices.Repeat([]float64{math.Inf(-1)}, len(part)), make([]float64, len(part))
	for _, j := range keys {
		r.k(j, g, k)
		r.v(j, g, v)
		for x := range part {
			s := p.c1 * dot(q[x], k) * math.Log2E
			part[x].maxV = math.Max(part[x].maxV, largest(v))
			if math.IsInf(s, -1) {
				for d := range v {
					part[x].mean[d] += 0 * v[d] // NaN for NaN and Inf
				}
				continue
			}
			shrink := 1.0
			if s > top[x] || math.IsNaN(s) {
				shrink = math.Exp2(top[x] - s)
				top[x] = s
			}
			w := math.Exp2(s - top[x])
			sum[x] = sum[x]*shrink + w
			for d := range v {
				part[x].mean[d] = part[x].mean[d]*shrink + w*v[d]
			}
		}
	}
	for x := range part {
		if sum[x] == 0 { // nothing has any weight
			continue
		}
		for d := range part[x].mean {
			part[x].mean[d] /= sum[x]
		}
		part[x].log2 = top[x] + math.Log2(sum[x])
	}
}
