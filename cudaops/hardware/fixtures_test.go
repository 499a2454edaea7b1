//go:build gpu && linux && amd64 && cgo

package hardware

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gaze-ml/gaze/cudaops"
	"github.com/gaze-ml/gaze/internal/attn"
)

// shape is an attention call over random numbers, every page in a random place.
type shape struct {
	q, kv, out       attn.DType // U8: nvfp4
	hq, hkv, d, page int        // page 0: ragged, in prefill
	dv               int        // head dim of V; 0: d
	qLens, kvLens    []int
	cum              bool // decode: rows by cum_seq_lens_q
	offsets          bool // prefill: element offsets, those of a packed call
	columns          int  // of the block table; 0: one more than the longest request needs
}

func (s shape) String() string {
	out := s.out.String()
	if s.out == attn.U8 {
		out = "nvfp4"
	}
	name := fmt.Sprintf("%v-%v-%s/heads=%d-%d/d=%d-%d/page=%d", s.q, s.kv, out, s.hq, s.hkv, s.d, s.values(), s.page)
	if s.cum {
		name += "/cum"
	}
	return name
}

func (s shape) values() int { return cmp.Or(s.dv, s.d) }

// small is a decode call of nothing special.
var small = shape{q: attn.BF16, kv: attn.BF16, out: attn.BF16, hq: 8, hkv: 2, d: 64, page: 16, qLens: []int{1, 1, 1}, kvLens: []int{40, 17, 33}}

// shapes are the kinds of decode that have kernels of their own, or ways of their own through one.
func shapes(qLens, kvLens []int) []shape {
	var all []shape
	for _, types := range [][3]attn.DType{{attn.BF16, attn.BF16, attn.BF16}, {attn.F16, attn.F16, attn.F16}, {attn.BF16, attn.E4M3, attn.BF16},
		{attn.F16, attn.E4M3, attn.E4M3}, {attn.E4M3, attn.E4M3, attn.E4M3}, {attn.E4M3, attn.E4M3, attn.BF16}, {attn.E4M3, attn.E4M3, attn.U8}} {
		for _, d := range []int{64, 96, 128, 192, 256} {
			for _, cum := range []bool{false, true} {
				all = append(all, shape{q: types[0], kv: types[1], out: types[2], hq: 8, hkv: 2, d: d, page: 16, qLens: qLens, kvLens: kvLens, cum: cum})
			}
		}
	}
	return all
}

// prefillShapes are those of prefill: by bulk tensor copies, without them, ragged, e4m3.
func prefillShapes(qLens, kvLens []int) []shape {
	var all []shape
	for _, types := range [][2]attn.DType{{attn.BF16, attn.BF16}, {attn.F16, attn.F16}, {attn.E4M3, attn.BF16}, {attn.E4M3, attn.E4M3}} {
		for _, d := range [][2]int{{64, 64}, {96, 96}, {128, 128}, {192, 192}, {256, 256}, {192, 128}} {
			for _, page := range []int{16, 4, 0} {
				all = append(all, shape{q: types[0], kv: types[0], out: types[1], hq: 8, hkv: 2, d: d[0], dv: d[1], page: page, qLens: qLens, kvLens: kvLens})
			}
		}
	}
	return all
}

// paged draws a cache and a block table.
func (s shape) paged(t testing.TB, rt *cudaops.Runtime, r *rand.Rand) (k, v, table attn.Tensor) {
	columns := s.columns
	if columns == 0 {
		columns = (slices.Max(s.kvLens)+s.page-1)/s.page + 1
	}
	pages := len(s.kvLens) * columns
	n := pages * s.hkv * s.page
	k = device(t, rt, s.kv, random(r, s.kv, n*s.d), pages, s.hkv, s.page, s.d)
	v = device(t, rt, s.kv, random(r, s.kv, n*s.values()), pages, s.hkv, s.page, s.values())
	ids := r.Perm(pages)
	return k, v, ints(t, rt, func(i int) int { return ids[i] }, len(s.kvLens), columns)
}

// tokens is T of decode.
func (s shape) tokens() int {
	if !s.cum {
		return len(s.kvLens) * s.qLens[0]
	}
	return prefix(len(s.qLens), func(b int) int { return s.qLens[b] })[len(s.qLens)]
}

// describe is the decode call without memory.
func (s shape) describe(t testing.TB) *attn.DecodeCall {
	t.Helper()
	c := attn.NewDecodeCall()
	c.BMM1Scale, c.OutDType = 0.125, s.out
	if s.cum {
		c.CumSeqLensQ, c.MaxQLen = attn.Of(attn.I32, len(s.qLens)+1), slices.Max(s.qLens)
	} else {
		c.QLenPerReq = s.qLens[0]
	}
	if s.out == attn.U8 {
		c.OSFScale = 300
	}
	c.Query = attn.Of(s.q, s.tokens(), s.hq, s.d)
	c.Key = attn.Of(s.kv, 1, s.hkv, s.page, s.d)
	c.Value, c.BlockTables, c.SeqLens = c.Key, attn.Of(attn.I32, len(s.kvLens), 1), attn.Of(attn.I32, len(s.kvLens))
	must(t, c.Infer())
	return &c
}

func (s shape) decode(t testing.TB, rt *cudaops.Runtime) *attn.DecodeCall {
	t.Helper()
	c := s.describe(t)
	supported(t, rt, c)
	r := rand.New(rand.NewPCG(1, uint64(s.d)))
	if s.cum {
		sums := prefix(len(s.qLens), func(b int) int { return s.qLens[b] })
		c.CumSeqLensQ = device(t, rt, attn.I32, packed(sums), len(sums))
	}
	c.Query = device(t, rt, s.q, random(r, s.q, c.Query.Len()), c.Query.Shape[:3]...)
	c.Key, c.Value, c.BlockTables = s.paged(t, rt, r)
	c.SeqLens = device(t, rt, attn.I32, packed(s.kvLens), len(s.kvLens))
	c.Out, c.LSE = poisoned(t, rt, c.Out.DType, c.Out.Shape[:3]...), poisoned(t, rt, attn.F32, s.tokens(), s.hq)
	if c.OutScale.Valid() {
		c.OutScale = poisoned(t, rt, attn.E4M3, c.OutScale.Shape[:2]...)
	}
	must(t, c.Infer())
	return c
}

func (s shape) prefill(t testing.TB, rt *cudaops.Runtime) *attn.PrefillCall {
	t.Helper()
	r := rand.New(rand.NewPCG(2, uint64(s.d)))
	batch := len(s.qLens)
	rows, keys := prefix(batch, func(b int) int { return s.qLens[b] }), prefix(batch, func(b int) int { return s.kvLens[b] })
	tokens := rows[batch]
	c := &attn.PrefillCall{Scale: 0.125, MaxQLen: slices.Max(s.qLens), MaxKVLen: slices.Max(s.kvLens), Causal: true, OutDType: s.out,
		Query: device(t, rt, s.q, random(r, s.q, tokens*s.hq*s.d), tokens, s.hq, s.d),
		QLens: ints(t, rt, func(b int) int { return s.qLens[b] }, batch), KVLens: ints(t, rt, func(b int) int { return s.kvLens[b] }, batch)}
	if s.page > 0 {
		c.Key, c.Value, c.BlockTables = s.paged(t, rt, r)
	} else {
		n := keys[batch] * s.hkv
		c.Key = device(t, rt, s.kv, random(r, s.kv, n*s.d), keys[batch], s.hkv, s.d)
		c.Value = device(t, rt, s.kv, random(r, s.kv, n*s.values()), keys[batch], s.hkv, s.values())
	}
	if s.offsets {
		at := func(sums []int, width int) attn.Tensor {
			return ints(t, rt, func(b int) int { return sums[b] * width }, batch)
		}
		c.OffsetsQ, c.OffsetsO, c.OffsetsStats = at(rows, s.hq*s.d), at(rows, s.hq*s.values()), at(rows, s.hq)
		if s.page == 0 {
			c.OffsetsK, c.OffsetsV = at(keys, s.hkv*s.d), at(keys, s.hkv*s.values())
		}
	}
	scales(t, rt, c)
	must(t, c.Infer())
	supported(t, rt, c)
	c.Out, c.LSE = poisoned(t, rt, c.Out.DType, tokens, s.hq, s.values()), poisoned(t, rt, attn.F32, batch, c.MaxQLen, s.hq)
	return c
}

// results are all that a call has written, one tensor after the other.
func results(t testing.TB, rt *cudaops.Runtime, xs ...*attn.Tensor) (all []byte) {
	t.Helper()
	for _, x := range xs {
		if x.Valid() {
			all = append(all, read(t, rt, x)...)
		}
	}
	return all
}
