package opstest

import "math"

// uniform is the fixture whose answers can be worked by hand: queries of 0, so that every visible key has the same weight, keys
// of any noise, and V[t, h, every dim] = t + 100·h. The output is the mean of the visible t, plus 100 for each KV head, and
// the LSE is the logarithm of their number. Above 1000 keys V is t mod 2, to stay exact in 16 bits.
func uniform(kvLens []int, qLen, page, hq, hkv, d int) decodeSpec {
	s := newDecode(kvLens, qLen, page, hq, hkv, d)
	s.fillQ = func(_, _, _ int) float64 { return 0 }
	s.fillK, s.fillV = uniformK, uniformV(kvLens)
	s.rule = s.uniformRule()
	return s
}

func uniformK(b, t, h, d int) float64 { return 4 * noise(b, t, h, d) }

func uniformV(kvLens []int) func(b, t, h, d int) float64 {
	if longest(kvLens) > 1000 {
		return func(_, t, _, _ int) float64 { return float64(t % 2) }
	}
	return func(_, t, h, _ int) float64 { return float64(t + 100*h) }
}

// uniformRule works the answers out for what the spec says now: call it again after changing lengths, window or heads.
func (s *decodeSpec) uniformRule() func(b, i, h int) (float64, float64) {
	kvLens, qLens, window, group := s.kvLens, s.lengths(), s.window, s.hq/s.hkv
	return func(b, i, h int) (float64, float64) {
		return uniformMean(kvLens[b], qLens[b], i, window, h/group, true, longest(kvLens) > 1000)
	}
}

// uniformMean is the mean of t = lo … hi, (lo+hi)/2, and the logarithm of their number.
func uniformMean(s, l, i, window, kvHead int, causal, parity bool) (float64, float64) {
	hi := s - 1
	if causal {
		hi = s - l + i
	}
	lo := 0
	if window >= 0 {
		lo = max(0, s-l+i-window)
	}
	n := hi - lo + 1
	if n <= 0 {
		return 0, math.Inf(-1)
	}
	if parity {
		odd := (hi+1)/2 - lo/2
		return float64(odd) / float64(n), math.Log(float64(n))
	}
	return float64(lo+hi)/2 + float64(100*kvHead), math.Log(float64(n))
}

// uniformPrefill is the same fixture for prefill.
func uniformPrefill(qLens, kvLens []int, page, hq, hkv, d int) prefillSpec {
	s := newPrefill(qLens, kvLens, page, hq, hkv, d)
	s.fillQ = func(_, _, _ int) float64 { return 0 }
	s.fillK, s.fillV = uniformK, uniformV(kvLens)
	s.rule = s.uniformRule()
	return s
}

func (s *prefillSpec) uniformRule() func(b, i, h int) (float64, float64) {
	qLens, kvLens, causal, group := s.qLens, s.kvLens, s.causal, s.hq/s.hkv
	return func(b, i, h int) (float64, float64) {
		return uniformMean(kvLens[b], qLens[b], i, -1, h/group, causal, longest(kvLens) > 1000)
	}
}

// twoKeys is the fixture with chosen logits: D = 64, q = 8·e0, K = L0·e0 and L1·e0, bmm1 = 0.125, V = 1 and 0. The output is the
// softmax's first weight.
func twoKeys(l0, l1 float64) decodeSpec {
	s := newDecode([]int{2}, 1, 16, 1, 1, 64)
	s.bmm1 = 0.125
	s.fillQ = lead(8)
	s.fillK = func(_, t, _, d int) float64 { return lead([]float64{l0, l1}[t])(0, 0, d) }
	s.fillV = func(_, t, _, _ int) float64 { return float64(1 - t) }
	s.rule = func(_, _, _ int) (float64, float64) {
		m := math.Max(l0, l1)
		a, b := math.Exp(l0-m), math.Exp(l1-m)
		return a / (a + b), m + math.Log(a+b)
	}
	return s
}

// lead is a vector with these leading elements and zeros after them.
func lead(x ...float64) func(_, _, d int) float64 {
	return func(_, _, d int) float64 {
		if d < len(x) {
			return x[d]
		}
		return 0
	}
}

// twoKeysPrefill is twoKeys as a prefill of one row.
func twoKeysPrefill(l0, l1 float64, page int) prefillSpec {
	d := twoKeys(l0, l1)
	s := newPrefill([]int{1}, []int{2}, page, 1, 1, 64)
	s.scale, s.fillQ, s.fillK, s.fillV, s.rule = d.bmm1, d.fillQ, d.fillK, d.fillV, d.rule
	return s
}

// sameBits runs several specs that must give the same bits: other layouts, strides or names for one computation.
type sameBits []namedSpec

type namedSpec struct {
	name string
	spec interface{ bits(*session) [][]byte }
}

func (v sameBits) check(ses *session) {
	var first [][]byte
	for i, n := range v {
		ses.reseed() // every variant draws the same numbers
		got := n.spec.bits(ses)
		if got == nil {
			return
		}
		if i == 0 {
			first = got
		}
		for k := range first {
			if string(first[k]) != string(got[k]) {
				ses.failf("%s: output %d differs in bits from that of %s", n.name, k, v[0].name)
			}
		}
	}
}

func (s decodeSpec) bits(ses *session) [][]byte {
	c := s.build(ses)
	if !ses.run(&c.instance) {
		return nil
	}
	out := [][]byte{c.out.bytesAfter()}
	if c.lse != nil {
		out = append(out, c.lse.bytesAfter())
	}
	return out
}

func (s prefillSpec) bits(ses *session) [][]byte {
	c := s.build(ses)
	if !ses.run(&c.instance) {
		return nil
	}
	out := [][]byte{c.out.bytesAfter()}
	if c.lse != nil && !s.stats {
		out = append(out, c.lse.bytesAfter())
	}
	return out
}
