package cpu

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gaze-ml/gaze/internal/attn"
)

type prefillCase struct {
	dt, out       attn.DType
	group, kvHead int
	dk, dv        int
	pageSize      int // 0: ragged
	queries, keys []int
	causal        bool
	offsets       bool // requests in reverse order with gaps, packed LSE
	extra         int  // rows behind the last request
}

func (c prefillCase) String() string {
	return fmt.Sprintf("%v-%v/heads=%dx%d/d=%d,%d/page=%d/L=%v/S=%v/causal=%v/offsets=%v/extra=%d",
		c.dt, c.out, c.kvHead, c.group, c.dk, c.dv, c.pageSize, c.queries, c.keys, c.causal, c.offsets, c.extra)
}

func (pc prefillCase) run(t *testing.T, r *rand.Rand, b *Backend) {
	heads := pc.group * pc.kvHead
	batch := len(pc.queries)
	requests := make([]requestData, batch)
	var c attn.PrefillCall
	c.Scale, c.Causal, c.OutDType = 0.8/math.Sqrt(float64(pc.dk)), pc.causal, pc.out
	c1, c2 := c.Scale, 1.0
	if pc.dt == attn.E4M3 {
		c.QScale, c.KScale, c.VScale = of(attn.F32, []float32{0.5}, 1), of(attn.F32, []float32{1.5}, 1), of(attn.F32, []float32{2}, 1)
		c1, c2 = c.Scale*0.5*1.5, 2
	}
	ql, kl := make([]int32, batch), make([]int32, batch)
	tokens, keys := 0, 0
	for i := range requests {
		requests[i] = requestData{block3(r, pc.dt, pc.queries[i], heads, pc.dk),
			block3(r, pc.dt, pc.keys[i], pc.kvHead, pc.dk), block3(r, pc.dt, pc.keys[i], pc.kvHead, pc.dv)}
		ql[i], kl[i] = int32(pc.queries[i]), int32(pc.keys[i])
		c.MaxQLen, c.MaxKVLen = max(c.MaxQLen, pc.queries[i]+1), max(c.MaxKVLen, pc.keys[i])
		tokens, keys = tokens+pc.queries[i], keys+pc.keys[i]
	}
	c.QLens, c.KVLens = ints(ql...), reshape(ints(kl...), batch, 1, 1, 1)

	// Where each request starts, in tokens: packed, or backwards with a gap of one token behind each.
	order := make([]int, batch)
	for i := range order {
		order[i] = i
	}
	gap := 0
	if pc.offsets {
		slices.Reverse(order)
		gap = 1
	}
	startQ, startK := make([]int, batch), make([]int, batch)
	rows, keyRows := 0, 0
	for _, i := range order {
		startQ[i], startK[i] = rows, keyRows
		rows += pc.queries[i] + gap
		keyRows += pc.keys[i] + gap
	}
	rows += pc.extra
	place := func(starts []int, n, heads, d int, part func(i int) [][][]float64) attn.Tensor {
		v := filled(n*heads*d, nan)
		for i := range requests {
			for j, row := range part(i) {
				for h, x := range row {
					copy(v[((starts[i]+j)*heads+h)*d:], narrow(x))
				}
			}
		}
		return of(pc.dt, v, n, heads, d)
	}
	c.Query = place(startQ, rows, heads, pc.dk, func(i int) [][][]float64 { return requests[i].q })
	if pc.pageSize > 0 {
		pool := paged(r, pc.dt, requests, pc.pageSize, pc.kvHead, pc.dk, pc.dv, r.IntN(2) == 0)
		c.Key, c.Value, c.BlockTables = pool.key, pool.value, pool.tables
	} else {
		c.Key = place(startK, keyRows+1, pc.kvHead, pc.dk, func(i int) [][][]float64 { return requests[i].k })
		c.Value = place(startK, keyRows+1, pc.kvHead, pc.dv, func(i int) [][][]float64 { return requests[i].v })
	}
	if !pc.offsets {
		c.Query = wider(c.Query) // offsets count elements of packed rows here
	}
	stats := make([]int, batch) // element offsets into the LSE
	for i := range stats {
		stats[i] = i * c.MaxQLen * heads
	}
	if pc.offsets {
		offsets := func(starts []int, row int) attn.Tensor {
			o := fresh(attn.I64, batch+1)
			for i, s := range starts {
				slice[int64](o.Ptr, batch)[i] = int64(s * row)
			}
			return o
		}
		c.OffsetsQ, c.OffsetsO = offsets(startQ, heads*pc.dk), offsets(startQ, heads*pc.dv)
		if pc.pageSize == 0 {
			c.OffsetsK, c.OffsetsV = offsets(startK, pc.kvHead*pc.dk), offsets(startK, pc.kvHead*pc.dv)
		}
		n := 0
		for i := range stats {
			stats[i], n = n, n+pc.queries[i]*heads
		}
		o := ints(make([]int32, batch)...)
		for i, s := range stats {
			slice[int32](o.Ptr, batch)[i] = int32(s)
		}
		c.OffsetsStats = o
	}
	c.LSE = attn.Of(attn.F32, batch, c.MaxQLen, heads)
	c.LSE2 = c.LSE
	infer(t, &c)
	allocate(&c.Out)
	allocate(&c.LSE)
	allocate(&c.LSE2)
	if !pc.out.Float() {
		store(c.Out.Ptr, pc.out, filled(c.Out.Len(), nan))
	}
	run(t, b, &c)

	out, lse, lse2 := values(&c.Out), values(&c.LSE), values(&c.LSE2)
	addressed := make([]bool, len(lse))
	written := make([]bool, rows)
	for i, q := range requests {
		for row := range q.q {
			written[startQ[i]+row] = true
			for h := range heads {
				want, wantLSE := naive(q.q[row][h], q.k, q.v, h/pc.group, c1, c2, math.Inf(-1), func(j int) bool {
					return !pc.causal || j <= pc.keys[i]-pc.queries[i]+row
				})
				if len(want) == 0 {
					want = make([]float64, pc.dv)
				}
				name := fmt.Sprintf("%v: request %d row %d head %d", pc, i, row, h)
				close32(t, name, out[((startQ[i]+row)*heads+h)*pc.dv:][:pc.dv], narrow(want), tolerance(pc.out))
				at := stats[i] + row*heads + h
				addressed[at] = true
				close32(t, name+" lse", lse[at:at+1], []float32{float32(wantLSE)}, 1e-5)
				close32(t, name+" lse2", lse2[at:at+1], []float32{float32(wantLSE * math.Log2E)}, 1e-5)
			}
		}
	}
	for i, seen := range addressed {
		if !seen && (!math.IsInf(float64(lse[i]), -1) || !math.IsInf(float64(lse2[i]), -1)) {
			t.Fatalf("%v: lse[%d] = %v and %v, want -Inf where no row is", pc, i, lse[i], lse2[i])
		}
	}
	last := 0
	for i := range requests {
		if pc.queries[i] > 0 {
			last = max(last, startQ[i]+pc.queries[i])
		}
	}
	for row, seen := range written {
		if got := out[row*heads*pc.dv]; !seen && row < last && got == got || row >= last && got != 0 {
			t.Fatalf("%v: row %d is %v: gaps stay as they were, rows behind the last request are 0", pc, row, got)
		}
	}
}

// Prefill equals the definition over paged and ragged K and V in which all that must not matter is NaN.
func TestPrefillEqualsTheDefinition(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	pairs := [][2]attn.DType{{attn.F32, attn.F32}, {attn.F16, attn.F16}, {attn.BF16, attn.BF16}, {attn.E4M3, attn.E4M3},
		{attn.E4M3, attn.BF16}}
	for _, threads := range []int{1, 3} {
		b := backend(t, threads)
		for n := range rounds(100) {
			p := pairs[n%len(pairs)]
			c := prefillCase{dt: p[0], out: p[1], group: 1 + r.IntN(4), kvHead: 1 + r.IntN(3), dk: 8 * (1 + r.IntN(12)), dv: 8 * (1 + r.IntN(12)),
				pageSize: []int{0, 1, 8, 16, 100}[r.IntN(5)], causal: r.IntN(3) > 0, offsets: r.IntN(2) == 0, extra: r.IntN(2) * 3}
			for range 1 + r.IntN(3) {
				l := []int{0, 1, r.IntN(40), 100 + r.IntN(60)}[r.IntN(4)]
				c.queries = append(c.queries, l)
				c.keys = append(c.keys, []int{0, l, r.IntN(l + 1), l + r.IntN(300)}[r.IntN(4)])
			}
			if n%20 == 0 {
				c.keys[0] = 2500 + r.IntN(100)
			}
			c.run(t, r, b)
		}
	}
}
