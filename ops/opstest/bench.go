package opstest

import (
	"fmt"
	"testing"

	"github.com/gaze-ml/gaze/internal/attn"
)

// performanceCases are the sizes that Bench times: FlashInfer's own benchmark shapes, cut to what a CPU does in a second, and those
// of a small Llama.
func performanceCases() []Case {
	var out []Case
	add := func(op, name string, b body) {
		out = append(out, Case{Name: op + "/" + name, Why: "how fast it is", Op: op, List: Performance, body: b})
	}
	repeat := func(n, x int) []int {
		l := make([]int, n)
		for i := range l {
			l[i] = x
		}
		return l
	}
	for _, c := range []struct{ batch, kv, l, hq, hkv, d, page int }{
		{1, 512, 1, 9, 3, 64, 16}, {1, 8192, 1, 32, 8, 128, 16}, {16, 1024, 1, 64, 8, 128, 16}, {64, 4096, 1, 8, 2, 128, 16}, {4, 4096, 4, 32, 4, 128, 32},
	} {
		for _, t := range [][2]attn.DType{{attn.F32, attn.F32}, {attn.BF16, attn.BF16}, {attn.BF16, attn.E4M3}} {
			s := newDecode(repeat(c.batch, c.kv), c.l, c.page, c.hq, c.hkv, c.d).with(func(s *decodeSpec) { s.q, s.kv, s.noLSE, s.rows = t[0], t[1], true, 64 })
			add("decode", fmt.Sprintf("batch=%d/kv_len=%d/q_len=%d/heads=%d-%d/d=%d/page=%d/q=%v/kv=%v", c.batch, c.kv, c.l, c.hq, c.hkv, c.d, c.page, t[0], t[1]), s)
		}
	}
	for _, c := range []struct{ batch, q, hq, hkv, d, dvo, page int }{{1, 512, 9, 3, 64, 64, 16}, {1, 2048, 8, 2, 128, 128, 16}, {4, 512, 16, 16, 192, 128, 0}} {
		for _, dt := range []attn.DType{attn.F32, attn.BF16} {
			s := newPrefill(repeat(c.batch, c.q), repeat(c.batch, c.q), c.page, c.hq, c.hkv, c.d).with(func(s *prefillSpec) { s.in, s.dvo, s.noLSE, s.rows = dt, c.dvo, true, 64 })
			add("prefill", fmt.Sprintf("batch=%d/q_len=%d/heads=%d-%d/dims=%d-%d/page=%d/q=%v", c.batch, c.q, c.hq, c.hkv, c.d, c.dvo, c.page, dt), s)
		}
	}
	return out
}

// Bench times the performance cases as sub-benchmarks named by key=value parts.
func Bench(b *testing.B, target Target) {
	for _, c := range Cases(Filter{Lists: []List{Performance}}) {
		b.Run(c.Name, func(b *testing.B) { c.Bench(b, target) })
	}
}

// Bench times a performance case, after it has been checked once, and gives what it reports besides the time: the arithmetic and the
// memory traffic by FlashInfer's accounting, in 10⁹ a second. FLOPs count visible keys (the causal form drops the diagonal's half),
// bytes count each query, key, value and output element once.
func (c Case) Bench(b *testing.B, target Target) (gflops, gbytes float64) {
	spec, ok := c.body.(attentionSpec)
	if !ok {
		b.Fatalf("%s is no case of the performance list", c.Name)
	}
	if target.Memory == nil {
		target.Memory = &HostMemory{}
	}
	if r := c.Check(target, DefaultSeed); r.Status != Pass {
		b.Skip(r.String())
	}
	ses := &session{target: target, seed: [2]uint64{DefaultSeed, 0}}
	ses.reseed()
	in, _ := spec.instance(ses)
	if err := ses.addWorkspace(in); err != nil {
		b.Fatal(err)
	}
	for _, o := range in.operands {
		defer o.free(target.Memory)
		if err := o.upload(target.Memory); err != nil {
			b.Fatal(err)
		}
	}
	out := in.operand("out")
	b.ReportAllocs()
	for b.Loop() {
		if err := in.call.Run(target.Backend); err != nil {
			b.Fatal(err)
		}
	}
	if err := out.download(target.Memory); err != nil { // waits for a device
		b.Fatal(err)
	}
	flops, bytes := account(c.body)
	perSecond := float64(b.N) / b.Elapsed().Seconds()
	gflops, gbytes = flops*perSecond/1e9, bytes*perSecond/1e9
	b.ReportMetric(gflops, "GFLOP/s")
	b.ReportMetric(gbytes, "GB/s")
	return gflops, gbytes
}

// account counts a case's work.
func account(b body) (flops, bytes float64) {
	var qLens, kvLens []int
	var hq, hkv, dqk, dvo, q, kv, out int
	causal := true
	switch s := b.(type) {
	case decodeSpec:
		qLens, kvLens, hq, hkv, dqk, dvo, q, kv, out = s.lengths(), s.kvLens, s.hq, s.hkv, s.d, s.d, s.q.Size(), s.kv.Size(), s.q.Size()
	case prefillSpec:
		qLens, kvLens, hq, hkv, dqk, dvo, q, kv, out = s.qLens, s.kvLens, s.hq, s.hkv, s.dqk, s.dvo, s.in.Size(), s.in.Size(), s.in.Size()
		causal = s.causal
	}
	for b, l := range qLens {
		s := kvLens[b]
		pairs := 2 * l * s
		if causal && l > 1 {
			pairs = l * (2*s - l)
		}
		flops += float64(hq * (dqk + dvo) * pairs)
		bytes += float64(l*hq*(dqk*q+dvo*out) + s*hkv*(dqk+dvo)*kv)
	}
	return flops, bytes
}
