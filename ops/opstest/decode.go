package opstest

import (
	"fmt"
	"math"

	"github.com/gaze-ml/gaze/internal/attn"
)

// decodeSpec is a decode call as data. Unset rules draw standard normal numbers.
type decodeSpec struct {
	kvLens []int
	qLen   int   // of every request; 0: 1
	qLens  []int // or of each one: cum_seq_lens_q
	maxQ   int   // max_q_len with qLens; 0: the longest

	page, hq, hkv, d int
	q, kv, out       attn.DType // kv, out Invalid: as q
	form             form
	share            int // pages that all requests have in common
	tailInf          bool

	bmm1, bmm2   float64
	deviceScales bool
	window       int
	sinks        []float64
	mask         func(b, i, c int) bool

	fillQ        func(row, h, d int) float64
	fillK, fillV func(b, t, h, d int) float64

	backend   string
	pdl       int8
	oScale    float64
	osfScale  float64
	startRow  int // nvfp4: first row of the scale tensor
	scaleRows int // nvfp4: rows of a given scale tensor, 0: not given
	maxSeqLen int // 0: left 0; -1: the longest
	given     bool
	noLSE     bool
	unsigned  bool // seq_lens as uint32
	checkVals bool

	qGap, qHeadGap int // unused elements after each row and each head of query
	tableGap       int // columns past the table's slice of a wider one
	noExtraColumns bool
	noExtraPages   bool
	firstPage      int  // pages before the used ones
	sparse         bool // the cache is larger than memory
	rows           int  // check about so many (row, head) pairs, 0: all

	rule func(b, i, h int) (out, lse float64) // hand-worked values, the same in every dim; NaN: not said
	bad  *badValue
	set  []badValue // values that nobody looks at
}

// badValue puts a wrong value into an integer operand; the call must be refused.
type badValue struct {
	arg   string
	index int
	value int
	want  refusal
}

func newDecode(kvLens []int, qLen, page, hq, hkv, d int) decodeSpec {
	return decodeSpec{kvLens: kvLens, qLen: qLen, page: page, hq: hq, hkv: hkv, d: d, q: attn.F16,
		bmm1: 1 / math.Sqrt(float64(d)), bmm2: 1, window: -1, oScale: 1, maxSeqLen: -1}
}

// with changes a copy.
func (s decodeSpec) with(change func(*decodeSpec)) decodeSpec {
	change(&s)
	return s
}

func (s *decodeSpec) lengths() []int {
	if s.qLens != nil {
		return s.qLens
	}
	l := make([]int, len(s.kvLens))
	for b := range l {
		l[b] = max(s.qLen, 1)
	}
	return l
}

// decodeCase is what a decode spec becomes: the call, its buffers and the logical problem.
type decodeCase struct {
	instance
	spec    *decodeSpec
	call    attn.DecodeCall
	cache   cache
	queries []byte // [T,Hq,D] elements
	out     *operand
	scales  *operand
	lse     *operand
	lse2    *operand
}

func (s decodeSpec) check(ses *session) { ses.run(&s.build(ses).instance) }

func (s *decodeSpec) build(ses *session) *decodeCase { return s.buildWith(ses, nil, nil, nil) }

// buildWith takes queries, keys and values as packed rows instead of drawing them.
func (s *decodeSpec) buildWith(ses *session, queries []byte, k, v [][]byte) *decodeCase {
	c := &decodeCase{spec: s, call: attn.NewDecodeCall()}
	in, call := &c.instance, &c.call
	in.call, in.workspaceArg = call, &call.Workspace
	if s.kv == attn.Invalid {
		s.kv = s.q
	}
	tokens := 0
	for _, l := range s.lengths() {
		tokens += l
	}
	c.cache = cache{page: s.page, hkv: s.hkv, dk: s.d, dv: s.d, dt: s.kv, lens: s.kvLens, share: s.share, tailInf: s.tailInf}
	extra := 3
	if s.sparse || s.noExtraPages {
		extra = 0
	}
	c.cache.number(ses.rng, extra, s.firstPage)
	if c.cache.k, c.cache.v = k, v; k == nil {
		c.cache.fill(ses.rng, s.fillK, s.fillV, s.form == sharedHND || s.form == sharedNHD)
	}
	c.cache.place(in, "kv_cache", &call.Key, &call.Value, s.form, s.sparse)
	columns := 2
	if s.noExtraColumns {
		columns = 0
	}
	c.cache.placeTable(in, &call.BlockTables, columns, s.tableGap)
	c.placeQuery(ses, tokens, queries)

	lens := in.ints("seq_lens", &call.SeqLens, s.kvLens)
	if s.unsigned {
		lens.desc.DType, call.SeqLens.DType = attn.U32, attn.U32
	}
	if call.MaxSeqLen = s.maxSeqLen; s.maxSeqLen < 0 {
		call.MaxSeqLen = longest(s.kvLens)
	}
	if s.qLens != nil {
		in.ints("cum_seq_lens_q", &call.CumSeqLensQ, prefix(s.qLens))
		if call.MaxQLen = s.maxQ; s.maxQ == 0 {
			call.MaxQLen = max(1, longest(s.qLens))
		}
	} else {
		call.QLenPerReq = s.qLen
	}
	call.BMM1Scale, call.BMM2Scale = s.bmm1, s.bmm2
	if s.deviceScales {
		in.scalar("bmm1_scale", &call.BMM1ScaleTensor, s.bmm1)
		in.scalar("bmm2_scale", &call.BMM2ScaleTensor, s.bmm2)
		call.BMM1Scale, call.BMM2Scale = 11, 13 // not looked at
	}
	call.WindowLeft, call.Backend, call.PDL, call.CheckValues = s.window, s.backend, s.pdl, s.checkVals || s.bad != nil
	call.OScale, call.OSFScale, call.SFStartRow = s.oScale, s.osfScale, s.startRow
	if s.sinks != nil {
		o := in.add("sinks", &call.Sinks, attn.Of(attn.F32, s.hq))
		encodeRow(o.at(0, 4*s.hq), attn.F32, s.sinks)
	}
	if s.mask != nil {
		c.placeMask(in)
	}
	c.placeOutputs(tokens)
	in.spoil(s.bad, s.set)
	return c
}

// spoil puts in the value for which the call must be refused, if any, and those that change nothing.
func (in *instance) spoil(bad *badValue, set []badValue) {
	for _, v := range set {
		in.operand(v.arg).setInts(v.index, v.value)
	}
	if bad != nil {
		in.operand(bad.arg).setInts(bad.index, bad.value)
		in.refuse = &bad.want
	}
}

func (c *decodeCase) placeQuery(ses *session, tokens int, queries []byte) {
	s := c.spec
	desc := attn.Of(s.q, tokens, s.hq, s.d)
	desc.Stride[1] = s.d + s.qHeadGap
	desc.Stride[0] = s.hq*desc.Stride[1] + s.qGap
	o := c.add("query", &c.call.Query, desc)
	var rule func(row, d int) float64
	if s.fillQ != nil {
		rule = func(row, d int) float64 { return s.fillQ(row/s.hq, row%s.hq, d) }
	}
	if c.queries = queries; queries == nil {
		c.queries = rowsOf(ses.rng, s.q, tokens*s.hq, s.d, rule)
	}
	n := s.d * s.q.Size()
	for r := range tokens * s.hq {
		at := (r/s.hq*desc.Stride[0] + r%s.hq*desc.Stride[1]) * s.q.Size()
		copy(o.at(at, n), c.queries[r*n:(r+1)*n])
	}
}

// placeMask packs the rule's bits: per row ceil(L/32) little-endian 32-bit words as pairs of uint16, the low half first.
func (c *decodeCase) placeMask(in *instance) {
	l, b := max(c.spec.qLen, 1), len(c.spec.kvLens)
	halves := 2 * ((l + 31) / 32)
	o := in.add("mask", &c.call.Mask, attn.Of(attn.U16, b, l, halves))
	for r := range b * l {
		for w := range halves {
			bits := 0
			for x := range 16 {
				if col := 16*w + x; col < l && c.spec.mask(r/l, r%l, col) {
					bits |= 1 << x
				}
			}
			o.setInts(r*halves+w, bits)
		}
	}
}

func (c *decodeCase) placeOutputs(tokens int) {
	s, call := c.spec, &c.call
	call.OutDType = s.out
	out := s.out
	if out == attn.Invalid {
		out = s.q
	}
	nvfp4 := out == attn.U8
	columns := (s.hq*s.d/16 + 3) / 4 * 4
	if s.given {
		call.Out = attn.Of(out, tokens, s.hq, s.d)
		if nvfp4 {
			call.Out = attn.Of(attn.U8, tokens, s.hq, s.d/2)
		}
	}
	if s.scaleRows > 0 {
		call.OutScale = attn.Of(attn.E4M3, s.scaleRows, columns)
	}
	if !s.noLSE {
		call.LSE, call.LSE2 = attn.Of(attn.F32, tokens, s.hq), attn.Of(attn.F32, tokens, s.hq)
	}
	if err := call.Infer(); err != nil {
		panic(fmt.Errorf("opstest: Infer refuses a case: %w", err))
	}
	c.out = c.output("out", &call.Out)
	if nvfp4 {
		c.scales = c.output("out scale", &call.OutScale)
		c.checks = append(c.checks, c.checkNVFP4)
	} else {
		c.checks = append(c.checks, c.checkFloats)
	}
	if !s.noLSE {
		c.lse, c.lse2 = c.output("lse", &call.LSE), c.output("lse2", &call.LSE2)
	}
}

// problem is the case without memory: from the logical rows, not through the buffers.
func (c *decodeCase) problem() *problem {
	s := c.spec
	p := &problem{hq: s.hq, hkv: s.hkv, dqk: s.d, dvo: s.d, c1: s.bmm1, c2: s.bmm2, window: s.window, causal: true, sinks: s.sinks}
	if s.deviceScales { // an f32 on the device
		p.c1, p.c2 = float64(float32(s.bmm1)), float64(float32(s.bmm2))
	}
	row := 0
	for b, l := range s.lengths() {
		r := request{row0: row, l: l, s: s.kvLens[b], k: c.cache.reader(c.cache.k, b, s.d), v: c.cache.reader(c.cache.v, b, s.d)}
		n := s.d * s.q.Size()
		r.q = func(i, h int, dst []float64) {
			at := ((r.row0+i)*s.hq + h) * n
			decodeRow(dst, s.q, c.queries[at:at+n])
		}
		if s.mask != nil && s.qLen > 1 {
			r.mask = func(i, col int) bool { return s.mask(b, i, col) }
		}
		p.reqs = append(p.reqs, r)
		row += l
	}
	if pairs := row * s.hq; s.rows > 0 && s.rows < pairs {
		every := pairs / s.rows
		p.only = func(row, h int) bool { n := row*s.hq + h; return n%every == 0 || n == pairs-1 }
	}
	return p
}

func longest(lens []int) int {
	n := 0
	for _, l := range lens {
		n = max(n, l)
	}
	return n
}

// prefix is the exclusive prefix sum with the total at the end.
func prefix(lens []int) []int {
	out := make([]int, len(lens)+1)
	for i, l := range lens {
		out[i+1] = out[i] + l
	}
	return out
}
