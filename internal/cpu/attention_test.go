package cpu

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/gaze-ml/gaze/internal/attn"
)

// tolerance is one rounding step of dt and what float32 sums may be off.
func tolerance(dt attn.DType) float64 {
	switch dt {
	case attn.F32:
		return 1e-5
	case attn.F16:
		return 1e-3 + 1.0/(1<<11)
	case attn.BF16:
		return 1e-3 + 1.0/(1<<8)
	}
	return 1e-3 + 1.0/(1<<4)
}

type decodeCase struct {
	q, kv, out     attn.DType
	group, kvHeads int
	d, pageSize    int
	queries, keys  []int // of each request
	window         int
	sinks, masked  bool
	ragged, nhd    bool
}

func (c decodeCase) String() string {
	return fmt.Sprintf("q=%v/kv=%v/out=%v/heads=%dx%d/d=%d/page=%d/L=%v/S=%v/window=%d/sinks=%v/mask=%v/ragged=%v/nhd=%v",
		c.q, c.kv, c.out, c.kvHeads, c.group, c.d, c.pageSize, c.queries, c.keys, c.window, c.sinks, c.masked, c.ragged, c.nhd)
}

func (dc decodeCase) run(t *testing.T, r *rand.Rand, b *Backend) {
	heads := dc.group * dc.kvHeads
	c := attn.NewDecodeCall()
	c.BMM1Scale, c.BMM2Scale = 0.9/math.Sqrt(float64(dc.d)), 1.25
	c.WindowLeft, c.OutDType = dc.window, dc.out
	requests := make([]requestData, len(dc.queries))
	lens := make([]int32, len(requests))
	cum := make([]int32, 1, len(requests)+1)
	for i := range requests {
		requests[i] = requestData{block3(r, dc.q, dc.queries[i], heads, dc.d),
			block3(r, dc.kv, dc.keys[i], dc.kvHeads, dc.d), block3(r, dc.kv, dc.keys[i], dc.kvHeads, dc.d)}
		lens[i] = int32(dc.keys[i])
		cum = append(cum, cum[i]+int32(dc.queries[i]))
		c.MaxQLen = max(c.MaxQLen, dc.queries[i])
	}
	pool := paged(r, dc.kv, requests, dc.pageSize, dc.kvHeads, dc.d, dc.d, dc.nhd)
	c.Query, c.Key, c.Value, c.BlockTables, c.SeqLens = wider(queries(dc.q, requests, heads, dc.d)), pool.key, pool.value, pool.tables, ints(lens...)
	l := dc.queries[0]
	if dc.ragged {
		c.CumSeqLensQ = ints(cum...)
	} else {
		c.MaxQLen, c.QLenPerReq = 0, l
	}
	sinks := filled(heads, float32(math.Inf(-1)))
	if dc.sinks {
		sinks = normal(r, heads)
		sinks[0] = float32(math.Inf(-1))
		c.Sinks = of(attn.F32, sinks, heads)
	}
	var mask []uint16
	words := 2 * ((l + 31) / 32)
	if dc.masked {
		c.Mask = fresh(attn.U16, len(requests), l, words)
		mask = slice[uint16](c.Mask.Ptr, c.Mask.Len())
		for i := range mask {
			mask[i] = uint16(r.Uint32())
		}
		clear(mask[:words]) // the first row sees no draft
	}
	c.LSE, c.LSE2 = attn.Of(attn.F32, int(cum[len(cum)-1]), heads), attn.Of(attn.F32, int(cum[len(cum)-1]), heads)
	infer(t, &c)
	allocate(&c.Out)
	allocate(&c.LSE)
	allocate(&c.LSE2)
	run(t, b, &c)
	out, lse, lse2 := values(&c.Out), values(&c.LSE), values(&c.LSE2)
	at := 0
	for i, q := range requests {
		for row := range q.q {
			for h := range heads {
				pos := dc.keys[i] - dc.queries[i] + row
				want, wantLSE := naive(q.q[row][h], q.k, q.v, h/dc.group, c.BMM1Scale, c.BMM2Scale, float64(sinks[h]), func(j int) bool {
					draft := j - (dc.keys[i] - l)
					switch {
					case dc.window >= 0 && j < pos-dc.window:
						return false
					case dc.masked && l > 1:
						return draft < 0 || mask[(i*l+row)*words+draft/16]>>(draft%16)&1 == 1
					}
					return j <= pos
				})
				if len(want) == 0 {
					want = make([]float64, dc.d)
				}
				name := fmt.Sprintf("%v: request %d row %d head %d", dc, i, row, h)
				close32(t, name, out[at*dc.d:][:dc.d], narrow(want), tolerance(dc.out))
				close32(t, name+" lse", lse[at:at+1], []float32{float32(wantLSE)}, 1e-5)
				close32(t, name+" lse2", lse2[at:at+1], []float32{float32(wantLSE * math.Log2E)}, 1e-5)
				at++
			}
		}
	}
}

// Decode equals the definition for every feature at once, over caches in which all that must not matter is NaN.
func TestDecodeEqualsTheDefinition(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	type triple [3]attn.DType
	triples := []triple{{attn.F32, attn.F32, attn.F32}, {attn.F16, attn.F16, attn.F16}, {attn.BF16, attn.BF16, attn.BF16},
		{attn.F16, attn.E4M3, attn.F16}, {attn.BF16, attn.E4M3, attn.E4M3}, {attn.E4M3, attn.E4M3, attn.E4M3}, {attn.E4M3, attn.E4M3, attn.F16}}
	for _, threads := range []int{1, 3} {
		b := backend(t, threads)
		for n := range rounds(120) {
			tr := triples[n%len(triples)]
			c := decodeCase{q: tr[0], kv: tr[1], out: tr[2], group: 1 + r.IntN(5), kvHeads: 1 + r.IntN(3), d: 8 * (1 + r.IntN(10)),
				pageSize: []int{1, 4, 7, 16, 64}[r.IntN(5)], window: -1, sinks: r.IntN(2) == 0, nhd: r.IntN(2) == 0, ragged: r.IntN(3) == 0}
			if r.IntN(2) == 0 {
				c.window = []int{0, 1, 5, 30, 300}[r.IntN(5)]
			}
			batch, l := 1+r.IntN(3), 1+r.IntN(4)
			if n%17 == 0 {
				l = 33 + r.IntN(8)
			}
			c.masked = !c.ragged && r.IntN(2) == 0
			for range batch {
				if c.ragged {
					c.queries = append(c.queries, r.IntN(4))
				} else {
					c.queries = append(c.queries, l)
				}
				c.keys = append(c.keys, []int{0, r.IntN(5), r.IntN(50), 250 + r.IntN(20), r.IntN(1200)}[r.IntN(5)])
			}
			if c.ragged {
				c.queries[0] = 2
			}
			c.run(t, r, b)
		}
	}
}

// NaN and Inf in K or V reach the rows that see the key and no other, whether a causal edge, a window or a mask hides it.
func TestNaNReachesOnlyRowsThatSeeIt(t *testing.T) {
	b := backend(t, 2)
	const queries, keys, d = 4, 300, 16
	for name, c := range map[string]struct {
		window int
		mask   []uint16 // of each row
		at     int      // the bad key
		sees   [queries]bool
	}{
		"causal": {window: -1, at: keys - 2, sees: [queries]bool{false, false, true, true}},
		"window": {window: 20, at: keys - queries - 19, sees: [queries]bool{true, true, false, false}},
		"mask":   {window: -1, mask: []uint16{0b0001, 0b0010, 0b0110, 0b1011}, at: keys - queries + 1, sees: [queries]bool{false, true, true, true}},
	} {
		for _, side := range []string{"K", "V"} {
			for _, poison := range []float32{nan, float32(math.Inf(1))} {
				r := rand.New(rand.NewPCG(33, 34))
				call := shape{1, keys, queries, 2, 1, d, 16}.decode(r, attn.F32, attn.F32)
				call.WindowLeft = c.window
				if c.mask != nil {
					call.Mask = fresh(attn.U16, 1, queries, 2)
					for i, m := range c.mask {
						slice[uint16](call.Mask.Ptr, 2*queries)[2*i] = m
					}
				}
				run(t, b, call)
				clean := values(&call.Out)
				tensor := &call.Key
				if side == "V" {
					tensor = &call.Value
				}
				page := int(slice[int32](call.BlockTables.Ptr, call.BlockTables.Len())[c.at/16])
				store(tensor.At((page*16+c.at%16)*d), attn.F32, filled(d, poison))
				run(t, b, call)
				for i, v := range values(&call.Out) {
					if row := i / (2 * d); c.sees[row] && v == clean[i] || !c.sees[row] && v != clean[i] {
						t.Fatalf("%s, %v in %s: row %d is %v, was %v without", name, poison, side, row, v, clean[i])
					}
				}
			}
		}
	}
}

// A row without a key is 0, and its LSE is the sink where that is finite.
func TestRowsWithoutKeys(t *testing.T) {
	inf := float32(math.Inf(1))
	c := shape{1, 16, 1, 5, 1, 8, 16}.decode(rand.New(rand.NewPCG(35, 36)), attn.F32, attn.F32)
	c.SeqLens, c.BlockTables = ints(0), reshape(ints(-1), 1, 1)
	c.BMM2ScaleTensor = of(attn.F32, []float32{nan}, 1)
	c.Sinks, c.LSE = of(attn.F32, []float32{-3, 2, -inf, inf, nan}, 5), fresh(attn.F32, 1, 5)
	run(t, backend(t, 1), c)
	close32(t, "out", values(&c.Out), make([]float32, 5*8), 0)
	close32(t, "lse", values(&c.LSE), []float32{-3, 2, -inf, -inf, -inf}, 0)
}
