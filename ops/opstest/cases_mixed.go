package opstest

import (
	"bytes"
	"math"
	"math/rand/v2"
	"sync"

	"github.com/gaze-ml/gaze/internal/attn"
)

// mixedCases are several calls one after another or at once: what one leaves behind must not reach the next.
func mixedCases() []Case {
	decode := func(batch, s, l int) decodeSpec {
		lens := make([]int, batch)
		for b := range lens {
			lens[b] = s - b%7
		}
		return newDecode(lens, l, 16, 4, 2, 64)
	}
	prefill := newPrefill([]int{17, 40}, []int{33, 70}, 16, 4, 2, 64)
	sinks := decode(3, 60, 2).with(func(s *decodeSpec) { s.sinks = []float64{1, 2, 3, 4} })
	noLSE := func(s decodeSpec) decodeSpec { s.noLSE = true; return s }
	return []Case{
		{Name: "decode/sequence/scales", Op: "decode", List: Corner,
			Why:  "one shape with two scales, windows, masks, one after another: nothing is kept from the call before",
			body: sequence{decode(3, 40, 2), decode(3, 40, 2).with(func(s *decodeSpec) { s.bmm1 *= 2 }), decode(3, 40, 2).with(func(s *decodeSpec) { s.window = 7 }), sinks, decode(3, 40, 2)}},
		{Name: "decode/sequence/workspace", Op: "decode", List: Corner,
			Why:  "one workspace, full of other calls' leavings or of ones, for calls of all kinds and batch sizes",
			body: reused{decode(1, 8192, 1), prefill, decode(64, 50, 1), noLSE(decode(64, 50, 1)), decode(3, 3000, 4), sinks, decode(1, 8192, 1)}},
		{Name: "decode/workspace_size", Op: "decode", List: Corner,
			Why: "a workspace of WorkspaceSize is enough, one byte less is an ErrArgument that names it", body: exactWorkspace(decode(1, 8192, 1))},
		{Name: "decode/repeat", Op: "decode", List: Corner, Why: "the same call gives the same bits",
			body: sameBits{{"first", decode(5, 300, 2)}, {"second", decode(5, 300, 2)}, {"third", decode(5, 300, 2)}}},
		{Name: "decode/scalars_without_effect", Op: "decode", List: Corner, Why: "enable_pdl, o_scale, check_values and backend names change no bit",
			body: sameBits{{"plain", decode(3, 40, 1)}, {"pdl", decode(3, 40, 1).with(func(s *decodeSpec) { s.pdl = 1 })},
				{"no pdl", decode(3, 40, 1).with(func(s *decodeSpec) { s.pdl = -1 })}, {"checked", decode(3, 40, 1).with(func(s *decodeSpec) { s.checkVals = true })},
				{"xqa", decode(3, 40, 1).with(func(s *decodeSpec) { s.backend = "xqa" })}, {"given", decode(3, 40, 1).with(func(s *decodeSpec) { s.given = true })}}},
		{Name: "decode/o_scale", Op: "decode", List: Corner, Why: "o_scale is bookkeeping: it changes no bit of an e4m3 output",
			body: sameBits{{"1", e4m3Out(decode(3, 40, 1), 1)}, {"4", e4m3Out(decode(3, 40, 1), 4)}}},
		{Name: "merge_lse/split_decode", Op: "merge_lse", List: Corner,
			Why: "attention over keys 0 to 15 and over 16 to 36, merged by their LSEs, is attention over all: 18.0 (mixed bases give 18.54)", body: splitMerge{}},
		{Name: "decode/concurrent", Op: "decode", List: Corner, Why: "calls from several goroutines don't disturb each other",
			body: concurrent{decode(3, 40, 2), decode(1, 900, 1), prefill, sinks, decode(20, 33, 1), prefill}},
	}
}

func e4m3Out(s decodeSpec, oScale float64) decodeSpec {
	s.q, s.kv, s.out, s.oScale = attn.BF16, attn.E4M3, attn.E4M3, oScale
	return s
}

// sequence runs calls one after another.
type sequence []decodeSpec

func (q sequence) check(ses *session) {
	for _, s := range q {
		ses.reseed()
		s.check(ses)
	}
}

// attentionSpec is what decodeSpec and prefillSpec have in common.
type attentionSpec interface {
	instance(*session) (*instance, *operand)
}

func (s decodeSpec) instance(ses *session) (*instance, *operand) {
	c := s.build(ses)
	return &c.instance, c.out
}

func (s prefillSpec) instance(ses *session) (*instance, *operand) {
	c := s.build(ses)
	return &c.instance, c.out
}

// reused runs calls twice, each time with one workspace for all: first full of ones, then as the round before left it. The bits
// must be those of a fresh workspace.
type reused []attentionSpec

func (r reused) check(ses *session) {
	fresh := make([][]byte, len(r))
	size := 0
	for i, s := range r {
		ses.reseed()
		in, out := s.instance(ses)
		if !ses.run(in) {
			return
		}
		fresh[i] = bytes.Clone(out.bytesAfter())
		n, err := ses.target.Backend.WorkspaceSize(in.call)
		ses.fail(err)
		size = max(size, n)
	}
	if size == 0 {
		return // a backend without scratch: the results above are all there is
	}
	var desc attn.Tensor
	shared := newOperand("workspace", &desc, attn.Of(attn.U8, size))
	for round := range 4 {
		for i, s := range r {
			ses.reseed()
			in, out := s.instance(ses)
			w := newOperand("workspace", in.workspaceArg, attn.Of(attn.U8, size))
			w.output = true
			if round > 0 { // what the call before left
				copy(w.at(0, size), shared.at(0, size))
			}
			in.operands = append(in.operands, w)
			if !ses.run(in) {
				return
			}
			copy(shared.at(0, size), w.got(0, size))
			if !bytes.Equal(out.bytesAfter(), fresh[i]) {
				ses.failf("round %d: call %d differs from its result with a fresh workspace", round, i)
				return
			}
		}
	}
}

// exactWorkspace gives what the call wants, and one byte less.
type exactWorkspace decodeSpec

func (s exactWorkspace) check(ses *session) {
	spec := decodeSpec(s)
	for less := range 2 {
		ses.reseed()
		c := spec.build(ses)
		if ses.target.Backend.Supports(&c.call) != nil {
			return
		}
		n, err := ses.target.Backend.WorkspaceSize(&c.call)
		ses.fail(err)
		if n == 0 {
			return
		}
		c.add("workspace", &c.call.Workspace, attn.Of(attn.U8, n-less)).output = true
		if less == 1 {
			c.refuse = &refusal{kind: attn.ErrArgument, args: []string{"workspace_buffer"}, request: -1}
		}
		ses.run(&c.instance)
	}
}

// splitMerge attends to two parts of a request's pages and merges them, by the backend's own ops.
type splitMerge struct{}

func (splitMerge) check(ses *session) {
	var parts [2]*decodeCase
	for i, span := range [][2]int{{0, 16}, {16, 37}} {
		s := uniform([]int{span[1] - span[0]}, 1, 16, 4, 2, 64).with(func(s *decodeSpec) {
			s.fillV = func(_, t, h, _ int) float64 { return float64(span[0] + t + 100*h) }
			s.rule = nil
		})
		parts[i] = s.build(ses)
		if !ses.run(&parts[i].instance) {
			return
		}
	}
	call := &attn.MergeLSECall{}
	in := &instance{call: call}
	for _, o := range []struct {
		arg  string
		bind *attn.Tensor
		from *operand
	}{{"out_a", &call.OutA, parts[0].out}, {"lse_a", &call.LSEA, parts[0].lse}, {"out_b", &call.OutB, parts[1].out}, {"lse_b", &call.LSEB, parts[1].lse}} {
		x := in.add(o.arg, o.bind, attn.Of(o.from.desc.DType, o.from.desc.Shape[:o.from.desc.Rank]...))
		copy(x.at(0, x.desc.Bytes()), o.from.bytesAfter())
	}
	if err := call.Infer(); err != nil {
		ses.fail(err)
		return
	}
	out, lse := in.output("out", &call.Out), in.output("lse", &call.LSE)
	in.checks = append(in.checks, func(ses *session) {
		want := make([]float64, 4*64)
		for i := range want {
			want[i] = 18 + 100*float64(i/128)
		}
		ses.checkLayer(out, want, nil)
		ses.checkLayer(lse, []float64{math.Log(37), math.Log(37), math.Log(37), math.Log(37)}, nil)
	})
	ses.run(in)
}

// concurrent makes its calls at once, several times each.
type concurrent []attentionSpec

func (c concurrent) check(ses *session) {
	var wg sync.WaitGroup
	var mu sync.Mutex
	for i, s := range c {
		wg.Go(func() {
			own := &session{target: ses.target, seed: [2]uint64{ses.seed[0], ses.seed[1] + uint64(i)}}
			defer func() {
				if p := recover(); p != nil {
					own.failf("panic: %v", p)
				}
				mu.Lock()
				defer mu.Unlock()
				for _, f := range own.fails {
					ses.failf("call %d: %s", i, f)
				}
				ses.unsupported = append(ses.unsupported, own.unsupported...)
			}()
			for range 3 {
				own.rng = rand.New(rand.NewPCG(own.seed[0], own.seed[1]))
				in, _ := s.instance(own)
				if !own.run(in) {
					return
				}
			}
		})
	}
	wg.Wait()
}
