package opstest

import (
	"fmt"
	"math"

	"github.com/gaze-ml/gaze/internal/attn"
)

// prefillSpec is a prefill call as data. Unset rules draw standard normal numbers.
type prefillSpec struct {
	qLens, kvLens []int
	page          int // 0: ragged keys and values
	hq, hkv       int
	dqk, dvo      int
	in, out       attn.DType // out Invalid: as in
	form          form

	scale      float64
	qs, ks, vs float64 // q_scale, k_scale, v_scale; e4m3 inputs only
	causal     bool
	maxQ       int // max_token_per_sequence, 0: the longest
	maxKV      int // max_sequence_kv, 0: the longest

	fillQ        func(row, h, d int) float64
	fillK, fillV func(b, t, h, d int) float64

	extraRows int        // rows of q and out past the last request
	extraKV   int        // ragged: unused rows after the last key
	offsets   attn.DType // I32 or I64: explicit batch offsets for q, o and, ragged, k and v
	gap       int        // with offsets: unused rows before each request
	total     bool       // offsets as [B+1]
	stats     bool       // batch_offsets_stats: LSE packed by the prefix sum of q's lengths
	qGap      int        // unused elements after each row of q
	kvGap     int        // ragged: unused elements after each row of K; V gets twice as many
	lens4     bool       // lengths as [B,1,1,1]
	tableGap  int

	backend   string
	given     bool
	noLSE     bool
	firstPage int
	sparse    bool
	rows      int
	checkVals bool

	rule func(b, i, h int) (out, lse float64)
	bad  *badValue
	set  []badValue // values that nobody looks at
}

func newPrefill(qLens, kvLens []int, page, hq, hkv, d int) prefillSpec {
	return prefillSpec{qLens: qLens, kvLens: kvLens, page: page, hq: hq, hkv: hkv, dqk: d, dvo: d, in: attn.F16,
		scale: 1 / math.Sqrt(float64(d)), causal: true}
}

func (s prefillSpec) with(change func(*prefillSpec)) prefillSpec {
	change(&s)
	return s
}

// prefillCase is what a prefill spec becomes.
type prefillCase struct {
	instance
	spec      *prefillSpec
	call      attn.PrefillCall
	cache     cache // of ragged keys too: only the logical rows are used then
	qStart    []int // first row of each request in q, in the problem rows are packed
	oStart    []int // the same in out
	tokens    int   // rows of q and out
	queries   []byte
	out       *operand
	lse, lse2 *operand
}

func (s prefillSpec) check(ses *session) { ses.run(&s.build(ses).instance) }

func (s *prefillSpec) build(ses *session) *prefillCase { return s.buildWith(ses, nil, nil, nil) }

// buildWith takes queries, keys and values as packed rows instead of drawing them.
func (s *prefillSpec) buildWith(ses *session, queries []byte, k, v [][]byte) *prefillCase {
	c := &prefillCase{spec: s}
	in, call := &c.instance, &c.call
	in.call, in.workspaceArg = call, &call.Workspace
	c.cache = cache{page: s.page, hkv: s.hkv, dk: s.dqk, dv: s.dvo, dt: s.in, lens: s.kvLens}
	if c.cache.k, c.cache.v = k, v; k == nil {
		c.cache.fill(ses.rng, s.fillK, s.fillV, s.form == sharedHND || s.form == sharedNHD)
	}
	c.placeRows(ses, queries)
	if s.page > 0 {
		extra := 3
		if s.sparse {
			extra = 0
		}
		c.cache.number(ses.rng, extra, s.firstPage)
		c.cache.place(in, "k_cache", &call.Key, &call.Value, s.form, s.sparse)
		c.cache.placeTable(in, &call.BlockTables, 2, s.tableGap)
	} else {
		c.placeRagged()
	}
	c.placeLens("actual_seq_lens_q", &call.QLens, s.qLens)
	c.placeLens("actual_seq_lens_kv", &call.KVLens, s.kvLens)
	call.Scale, call.Causal, call.Backend, call.CheckValues = s.scale, s.causal, s.backend, s.checkVals || s.bad != nil
	if call.MaxQLen = s.maxQ; s.maxQ == 0 {
		call.MaxQLen = longest(s.qLens)
	}
	if call.MaxKVLen = s.maxKV; s.maxKV == 0 {
		call.MaxKVLen = longest(s.kvLens)
	}
	if s.qs != 0 {
		in.scalar("q_scale", &call.QScale, s.qs)
		in.scalar("k_scale", &call.KScale, s.ks)
		in.scalar("v_scale", &call.VScale, s.vs)
	}
	c.placeOutputs()
	in.spoil(s.bad, s.set)
	return c
}

// starts lays requests out one after another, each after a gap where offsets are explicit.
func (s *prefillSpec) starts(lens []int) (start []int, end int) {
	for _, l := range lens {
		if s.offsets != attn.Invalid {
			end += s.gap
		}
		start = append(start, end)
		end += l
	}
	return start, end
}

// placeOffsets gives the element offsets of the requests' first rows.
func (c *prefillCase) placeOffsets(arg string, bind *attn.Tensor, start []int, end, stride int) {
	n := len(start)
	if c.spec.total {
		n++
	}
	o := c.add(arg, bind, attn.Of(c.spec.offsets, n))
	for b := range n {
		if b < len(start) {
			o.setInts(b, start[b]*stride)
		} else {
			o.setInts(b, end*stride)
		}
	}
}

// placeRows makes q: the requests' rows, and NaN between and after them.
func (c *prefillCase) placeRows(ses *session, queries []byte) {
	s := c.spec
	var end int
	c.qStart, end = s.starts(s.qLens)
	c.oStart = c.qStart
	c.tokens = end + s.extraRows
	desc := attn.Of(s.in, c.tokens, s.hq, s.dqk)
	desc.Stride[0] += s.qGap
	size, n := s.in.Size(), s.dqk*s.in.Size()
	rows := 0
	for _, l := range s.qLens {
		rows += l
	}
	var rule func(row, d int) float64
	if s.fillQ != nil {
		rule = func(row, d int) float64 { return s.fillQ(row/s.hq, row%s.hq, d) }
	}
	if c.queries = queries; queries == nil {
		c.queries = rowsOf(ses.rng, s.in, rows*s.hq, s.dqk, rule)
	}
	var o *operand
	if s.sparse && s.page == 0 {
		var ranges [][2]int
		for r := range c.tokens {
			ranges = append(ranges, [2]int{r * desc.Stride[0] * size, (r*desc.Stride[0] + s.hq*s.dqk) * size})
		}
		o = newSparseOperand("q", &c.call.Query, desc, ranges)
		c.operands = append(c.operands, o)
	} else {
		o = c.add("q", &c.call.Query, desc)
	}
	row := 0
	for b, l := range s.qLens {
		for i := range l {
			for h := range s.hq {
				at := ((c.qStart[b]+i)*desc.Stride[0] + h*s.dqk) * size
				copy(o.at(at, n), c.queries[(row*s.hq+h)*n:])
			}
			row++
		}
	}
	if s.offsets != attn.Invalid {
		c.placeOffsets("batch_offsets_q", &c.call.OffsetsQ, c.qStart, end, desc.Stride[0])
		c.placeOffsets("batch_offsets_o", &c.call.OffsetsO, c.oStart, end, s.hq*s.dvo)
	}
}

// placeRagged makes packed K and V [Tkv,Hkv,D·] with NaN where no request has rows.
func (c *prefillCase) placeRagged() {
	s := c.spec
	start, end := s.starts(s.kvLens)
	pool := func(arg string, bind, offs *attn.Tensor, offArg string, rows [][]byte, d, gap int) {
		desc := attn.Of(s.in, end+s.extraKV, s.hkv, d)
		desc.Stride[0] += gap
		size := s.in.Size()
		var o *operand
		if s.sparse {
			var ranges [][2]int
			for r := range end + s.extraKV {
				ranges = append(ranges, [2]int{r * desc.Stride[0] * size, (r*desc.Stride[0] + s.hkv*d) * size})
			}
			o = newSparseOperand(arg, bind, desc, ranges)
			c.operands = append(c.operands, o)
		} else {
			o = c.add(arg, bind, desc)
		}
		n := s.hkv * d * size
		for b, l := range s.kvLens {
			for j := range l {
				copy(o.at((start[b]+j)*desc.Stride[0]*size, n), rows[b][j*n:(j+1)*n])
			}
		}
		if s.offsets != attn.Invalid {
			c.placeOffsets(offArg, offs, start, end, desc.Stride[0])
		}
	}
	pool("k_cache", &c.call.Key, &c.call.OffsetsK, "batch_offsets_k", c.cache.k, s.dqk, s.kvGap)
	pool("v_cache", &c.call.Value, &c.call.OffsetsV, "batch_offsets_v", c.cache.v, s.dvo, 2*s.kvGap)
}

func (c *prefillCase) placeLens(arg string, bind *attn.Tensor, lens []int) {
	o := c.ints(arg, bind, lens)
	if c.spec.lens4 {
		o.desc = attn.Of(attn.I32, len(lens), 1, 1, 1)
		*bind = o.desc
	}
}

func (c *prefillCase) placeOutputs() {
	s, call := c.spec, &c.call
	call.OutDType = s.out
	out := s.out
	if out == attn.Invalid {
		out = s.in
	}
	if s.given {
		call.Out = attn.Of(out, c.tokens, s.hq, s.dvo)
	}
	if !s.noLSE {
		call.LSE = attn.Of(attn.F32, len(s.qLens), call.MaxQLen, s.hq)
		call.LSE2 = call.LSE
	}
	if s.stats {
		o := c.add("batch_offsets_stats", &call.OffsetsStats, attn.Of(attn.I32, len(s.qLens)))
		for b, row := range prefix(s.qLens)[:len(s.qLens)] {
			o.setInts(b, row*s.hq)
		}
	}
	if err := call.Infer(); err != nil {
		panic(fmt.Errorf("opstest: Infer refuses a case: %w", err))
	}
	c.out = c.output("out", &call.Out)
	if !s.noLSE {
		c.lse, c.lse2 = c.output("lse", &call.LSE), c.output("lse2", &call.LSE2)
	}
	c.checks = append(c.checks, c.compare)
}

func (c *prefillCase) problem() *problem {
	s := c.spec
	p := &problem{hq: s.hq, hkv: s.hkv, dqk: s.dqk, dvo: s.dvo, c1: s.scale, c2: 1, window: -1, causal: s.causal}
	if s.qs != 0 {
		p.c1 *= float64(float32(s.qs)) * float64(float32(s.ks))
		p.c2 = float64(float32(s.vs))
	}
	row, n := 0, s.dqk*s.in.Size()
	for b, l := range s.qLens {
		r := request{row0: row, l: l, s: s.kvLens[b], k: c.cache.reader(c.cache.k, b, s.dqk), v: c.cache.reader(c.cache.v, b, s.dvo)}
		r.q = func(i, h int, dst []float64) {
			at := ((r.row0+i)*s.hq + h) * n
			decodeRow(dst, s.in, c.queries[at:at+n])
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
