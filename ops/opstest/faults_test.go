package opstest

import (
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

func (m *meddler) Append(c *attn.AppendCall) error {
	d := *c
	return m.around(&d, func() error { return m.Reference.Append(&d) })
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

func (m *meddler) Softmax(c *attn.SoftmaxCall) error {
	d := *c
	return m.around(&d, func() error { return m.Reference.Softmax(&d) })
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

func (b *careless) RoPE(c *attn.RoPECall) error {
	_ = b.Reference.RoPE(c)
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
