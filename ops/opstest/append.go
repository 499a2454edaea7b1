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
	rowGap         int     // unused elements after each row of k; v gets twice as many
	firstPage      int
	sparse         bool
	fill           func(row, h, d int) float64

	bad *badValue
}

func (s appendSpec) with(change func(*appendSpec)) appendSpec {
	change(&s)
	return s
}

type appendCase struct {
	instance
	spec  *appendSpec
	call  attn.AppendCall
	cache cache
	rows  [2][]byte // k and v as [T,Hkv,D·] elements
	at    [][2]int  // request and position of each row
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
	c.rows[0] = c.placeRows(ses, "k", &call.Key, s.dk, s.rowGap)
	c.rows[1] = c.placeRows(ses, "v", &call.Value, s.dv, 2*s.rowGap)
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
	call.CheckValues = s.bad != nil
	c.checks = append(c.checks, c.compare)
	if s.bad != nil {
		in.operand(s.bad.arg).setInts(s.bad.index, s.bad.value)
		in.refuse = &s.bad.want
	}
	return c
}

func (c *appendCase) placeRows(ses *session, arg string, bind *attn.Tensor, d, gap int) []byte {
	s, size := c.spec, c.spec.rowDT.Size()
	var rule func(row, d int) float64
	if s.fill != nil {
		rule = func(row, d int) float64 { return s.fill(row/s.hkv, row%s.hkv, d) }
	}
	rows := rowsOf(ses.rng, s.rowDT, len(c.at)*s.hkv, d, rule)
	desc := attn.Of(s.rowDT, len(c.at), s.hkv, d)
	desc.Stride[0] += gap
	o := c.add(arg, bind, desc)
	n := s.hkv * d * size
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
				for d := range x {
					if err := stored(s.cacheDT, x[d], scale[i], got[d]); err != nil {
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

// stored checks one element of the cache: x itself, its nearest value, or sat(x/scale) in e4m3.
func stored(dt attn.DType, x, scale, got float64) error {
	f := formats[dt]
	want := f.round(x / scale)
	if math.IsNaN(want) && math.IsNaN(got) || want == got {
		return nil
	}
	// An f32 quotient may fall on the other side of a tie.
	if q := float64(float32(x) / float32(scale)); scale != 1 && f.round(q) == got {
		return nil
	}
	return fmt.Errorf("got %v, want %v (%v over the scale %v)", got, want, x, scale)
}
