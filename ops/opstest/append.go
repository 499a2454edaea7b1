package opstest

import (
	"bytes"
	"fmt"
	"math"

	"github.com/gaze-ml/gaze/internal/attn"
)

// appendSpec is an append as data: rows of new keys and values and where they go.
type appendSpec struct {
	page, hkv, dk, dv int
	cacheDT, rowDT    attn.DType // rowDT Invalid: as the cache
	form              form
	columns           int // pages of each request

	requests  []int // of each row, with positions
	positions []int // -1: skipped
	starts    []int // or start_positions of each request …
	counts    []int // … and its number of new rows: cum_seq_lens

	kScale, vScale float64 // 0: 1

	rope    attn.RoPEConfig
	factors bool
	qHeads  int // of a query that is turned along; 0: none

	rowGap    int // unused elements after each row of k; v gets twice as many
	firstPage int
	sparse    bool
	fill      func(row, h, d int) float64

	bad *badValue
}

func (s appendSpec) with(change func(*appendSpec)) appendSpec {
	change(&s)
	return s
}

type appendCase struct {
	instance
	spec    *appendSpec
	call    attn.AppendCall
	cache   cache
	rows    [3][]byte // k, v and the query as [T,H,D·] elements
	at      [][2]int  // request and position of each row
	factors []float64
}

func (s appendSpec) check(ses *session) { ses.run(&s.build(ses).instance) }

func (s *appendSpec) build(ses *session) *appendCase {
	c := &appendCase{spec: s, call: attn.NewAppendCall()}
	in, call := &c.instance, &c.call
	in.call = call
	if s.rowDT == attn.Invalid {
		s.rowDT = s.cacheDT
	}
	requests := len(s.starts)
	for t, r := range s.requests {
		c.at = append(c.at, [2]int{r, s.positions[t]})
		requests = max(requests, r+1)
	}
	for b, n := range s.counts {
		for i := range n {
			c.at = append(c.at, [2]int{b, s.starts[b] + i})
		}
	}
	lens := make([]int, requests)
	for b := range lens {
		lens[b] = s.columns * s.page
	}
	c.cache = cache{page: s.page, hkv: s.hkv, dk: s.dk, dv: s.dv, dt: s.cacheDT, lens: lens}
	extra := 2
	if s.sparse {
		extra = 0
	}
	c.cache.number(ses.rng, extra, s.firstPage)
	c.cache.fill(ses.rng, nil, nil, false)
	c.cache.place(in, "kv_cache", &call.KeyCache, &call.ValueCache, s.form, s.sparse)
	for _, o := range in.operands {
		o.output = true
	}
	c.cache.placeTable(in, &call.BlockTables, 0, 3)
	c.rows[0] = c.placeRows(ses, "k", &call.Key, s.hkv, s.dk, s.rowGap)
	c.rows[1] = c.placeRows(ses, "v", &call.Value, s.hkv, s.dv, 2*s.rowGap)
	call.RoPEConfig = s.rope
	if s.factors {
		c.factors = placeMatrix(in, ses.rng, "factors", &call.Factors, attn.F32, 0, func(_, i int) float64 { return 1 + 0.75*float64(i%5) }, call.Rotary(s.dk)/2).values
	}
	if s.qHeads > 0 {
		c.rows[2] = c.placeRows(ses, "query", &call.Query, s.qHeads, s.dk, 3*s.rowGap)
	}
	if s.starts == nil {
		in.ints("positions", &call.Positions, s.positions)
		o := in.ints("requests", &call.Requests, s.requests)
		for t, p := range s.positions {
			if p == -1 {
				o.setInts(t, int(absurdIDs[t%2])) // a skipped row belongs to nobody
			}
		}
	} else {
		in.ints("cum_seq_lens", &call.CumSeqLens, prefix(s.counts))
		in.ints("start_positions", &call.StartPositions, s.starts)
	}
	if s.kScale != 0 {
		call.KScale, call.VScale = s.kScale, s.vScale
	}
	if s.qHeads > 0 {
		if err := call.Infer(); err != nil {
			ses.fail(err)
			return c
		}
		in.output("query_out", &call.QueryOut)
		c.checks = append(c.checks, c.compareQuery)
	}
	call.CheckValues = s.bad != nil
	c.checks = append(c.checks, c.compare)
	if s.bad != nil {
		in.operand(s.bad.arg).setInts(s.bad.index, s.bad.value)
		in.refuse = &s.bad.want
	}
	return c
}

func (c *appendCase) placeRows(ses *session, arg string, bind *attn.Tensor, heads, d, gap int) []byte {
	s, size := c.spec, c.spec.rowDT.Size()
	var rule func(row, d int) float64
	if s.fill != nil {
		rule = func(row, d int) float64 { return s.fill(row/heads, row%heads, d) }
	}
	rows := rowsOf(ses.rng, s.rowDT, len(c.at)*heads, d, rule)
	desc := attn.Of(s.rowDT, len(c.at), heads, d)
	desc.Stride[0] += gap
	o := c.add(arg, bind, desc)
	n := heads * d * size
	for t := range c.at {
		copy(o.at(t*desc.Stride[0]*size, n), rows[t*n:])
	}
	return rows
}

// compare makes the cache that should come out and holds every byte against it.
func (c *appendCase) compare(ses *session) {
	s := c.spec
	k, v, whole, vStart := c.cache.views(s.form)
	kOp, vOp := c.operands[0], c.operands[0]
	if !whole.Valid() {
		vOp, vStart = c.operands[1], 0
	}
	scale := [2]float64{c.call.KScale, c.call.VScale}
	for i, side := range []struct {
		name  string
		o     *operand
		t     *attn.Tensor
		start int
		d     int
	}{{"K", kOp, &k, 0, s.dk}, {"V", vOp, &v, vStart, s.dv}} {
		n, size := side.d*s.rowDT.Size(), s.cacheDT.Size()
		x, got := make([]float64, side.d), make([]float64, side.d)
		for t, at := range c.at {
			if at[1] < 0 {
				continue
			}
			for h := range s.hkv {
				decodeRow(x, s.rowDT, c.rows[i][(t*s.hkv+h)*n:])
				to := (side.start + c.cache.table[at[0]][at[1]/s.page]*side.t.Stride[0] + h*side.t.Stride[1] + at[1]%s.page*side.t.Stride[2]) * size
				raw := side.o.got(to, side.d*size)
				decodeRow(got, s.cacheDT, raw)
				slack := make([]float64, side.d)
				if i == 0 {
					x, slack = c.turned(x, at[1])
				}
				for d := range x {
					if err := stored(s.cacheDT, x[d], scale[i], slack[d], got[d]); err != nil {
						ses.failf("kv_cache %s: row %d (request %d, position %d) head %d dim %d: %v", side.name, t, at[0], at[1], h, d, err)
						return
					}
				}
				copy(side.o.at(to, side.d*size), raw) // expected from here on
			}
		}
	}
	for _, o := range []*operand{kOp, vOp} {
		for _, seg := range o.segments {
			if !bytes.Equal(seg.before, seg.after) {
				ses.fail(o.intact(true))
				return
			}
		}
	}
}

// turned gives a head as RoPE leaves it, and how far off f32 sines and products may be before the one rounding.
func (c *appendCase) turned(x []float64, pos int) (y, slack []float64) {
	y, slack = make([]float64, len(x)), make([]float64, len(x))
	cfg := &c.call.RoPEConfig
	if !c.call.RoPE() || pos < 0 {
		return x, slack
	}
	rope(y, x, cfg, c.factors, pos)
	eachPair(cfg, len(x), func(_, a, b int) {
		slack[a] = 2e-6 * (math.Abs(x[a]) + math.Abs(x[b]))
		slack[b] = slack[a]
	})
	return y, slack
}

// compareQuery holds the turned query against what it should be.
func (c *appendCase) compareQuery(ses *session) {
	s, dt, d := c.spec, c.spec.rowDT, c.spec.dk
	got, x := c.operand("query_out").floats(), make([]float64, d)
	for n := range len(c.at) * s.qHeads {
		decodeRow(x, dt, c.rows[2][n*d*dt.Size():])
		t := n / s.qHeads
		y, slack := c.turned(x, c.at[t][1])
		for i := range y {
			if err := stored(dt, y[i], 1, slack[i], got[n*d+i]); err != nil {
				ses.failf("query_out: row %d (position %d) head %d dim %d: %v", t, c.at[t][1], n%s.qHeads, i, err)
				return
			}
		}
	}
}

// stored checks one element: the nearest value of its dtype to x within the slack, or sat(x/scale) in e4m3.
func stored(dt attn.DType, x, scale, slack, got float64) error {
	f := formats[dt]
	want := f.round(x / scale)
	if math.IsNaN(want) && math.IsNaN(got) || f.round((x-slack)/scale) <= got && got <= f.round((x+slack)/scale) {
		return nil
	}
	// An f32 quotient may fall on the other side of a tie.
	if q := float64(float32(x) / float32(scale)); scale != 1 && f.round(q) == got {
		return nil
	}
	return fmt.Errorf("got %v, want %v (%v over the scale %v)", got, want, x, scale)
}
