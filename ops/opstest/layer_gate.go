package opstest

import (
	"math"

	"github.com/gaze-ml/gaze/internal/attn"
)

// siluSpec is the gated activation as data.
type siluSpec struct {
	tokens, width int
	dt            attn.DType
	gap           int
	fillGate      func(row, d int) float64
}

func (s siluSpec) check(ses *session) {
	call := &attn.SiLUMulCall{}
	in := &instance{call: call}
	gate := placeMatrix(in, ses.rng, "gate", &call.Gate, s.dt, s.gap, s.fillGate, s.tokens, s.width)
	up := placeMatrix(in, ses.rng, "up", &call.Up, s.dt, 2*s.gap, nil, s.tokens, s.width)
	if err := call.Infer(); err != nil {
		ses.fail(err)
		return
	}
	out := in.output("out", &call.Out)
	in.checks = append(in.checks, func(ses *session) {
		want := make([]float64, len(gate.values))
		for i, g := range gate.values {
			want[i] = siluMul(g, up.values[i])
		}
		ses.checkLayer(out, want, nil)
	})
	ses.run(in)
}

// siluMul is gate/(1+exp(-gate))·up.
func siluMul(gate, up float64) float64 { return gate / (1 + math.Exp(-gate)) * up }

// mergeSpec joins two halves of an attention as data.
type mergeSpec struct {
	tokens, heads, d int
	dt               attn.DType
	gap              int
	lseA, lseB       func(row, h int) float64
}

func (s mergeSpec) check(ses *session) {
	call := &attn.MergeLSECall{}
	in := &instance{call: call}
	a := placeMatrix(in, ses.rng, "out_a", &call.OutA, s.dt, s.gap, nil, s.tokens, s.heads, s.d)
	b := placeMatrix(in, ses.rng, "out_b", &call.OutB, s.dt, 2*s.gap, nil, s.tokens, s.heads, s.d)
	la := placeMatrix(in, ses.rng, "lse_a", &call.LSEA, attn.F32, s.gap, s.lseA, s.tokens, s.heads)
	lb := placeMatrix(in, ses.rng, "lse_b", &call.LSEB, attn.F32, 0, s.lseB, s.tokens, s.heads)
	if err := call.Infer(); err != nil {
		ses.fail(err)
		return
	}
	out, lse := in.output("out", &call.Out), in.output("lse", &call.LSE)
	in.checks = append(in.checks, func(ses *session) {
		want, wantLSE := make([]float64, len(a.values)), make([]float64, len(la.values))
		for n := range wantLSE {
			at := n * s.d
			wantLSE[n] = mergeLSE(want[at:at+s.d], a.values[at:at+s.d], b.values[at:at+s.d], la.values[n], lb.values[n])
		}
		ses.checkLayer(out, want, nil)
		ses.checkLayer(lse, wantLSE, nil)
	})
	ses.run(in)
}

// mergeLSE joins two states of attention over disjoint keys: each side weighs as much as its share of the exponentials.
func mergeLSE(dst, a, b []float64, la, lb float64) float64 {
	m := math.Max(la, lb)
	if math.IsInf(m, -1) {
		clear(dst)
		return m
	}
	wa, wb := math.Exp(la-m), math.Exp(lb-m)
	for d := range dst {
		dst[d] = (wa*a[d] + wb*b[d]) / (wa + wb)
	}
	return m + math.Log(wa+wb)
}
