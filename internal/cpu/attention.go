package cpu

import (
	"math"
	"sort"
	"sync/atomic"

	"github.com/gaze-ml/gaze/internal/attn"
	"github.com/gaze-ml/gaze/internal/simd"
)

// attention is both attention ops in one form: decode and prefill fill it in, and from there on they are the same loop.
//
// The query rows of a request that share a KV head, L_b tokens by G heads, are cut into tiles; a tile walks over the keys it
// sees in blocks and keeps a running softmax (Milakov and Gimelshein, 2018; Dao et al., "FlashAttention", 2022). Where keys are
// many and rows few, a tile is split along the keys as well and the last worker to finish merges the parts. Where the cuts lie
// depends on the request alone, never on the batch or the number of threads.
type attention struct {
	query, key, value attn.Tensor
	tables            attn.Tensor // absent: ragged K and V
	sinks, mask       attn.Tensor
	out, outScale     attn.Tensor
	lse, lse2         attn.Tensor

	kvHeads, group, dqk, dvo int
	c1, c2                   float32 // factors of q·k and of p·v
	turn, factor             float32 // c1 in two: what scores are multiplied with at once, and a positive rest
	causal                   bool
	window                   int // -1: none
	encode                   float32
	scaleRow                 int // nvfp4: row of token 0 in outScale

	requests []request
	tiles    []tile
	items    int
	cost     int       // multiply-adds of the whole call, roughly
	partials []float32 // of split tiles
	arrived  []int32   // parts that are done, by tile and KV head
}

// request is one request of a call. q, out and lse are the element offsets of its first row in these tensors, k and v those of
// key 0 where they are ragged.
type request struct {
	q, out, lse, k, v int
	queries, keys     int // L_b, S_b
}

// tile is some tokens of one request, for every head.
type tile struct {
	request       int
	first, tokens int
	from, to      int // keys that any of its rows sees
	splitLen      int
	splits        int
	item          int // its first item; an item is one KV head and one split
	partial       int // where its parts lie
}

const (
	tileRows  = 128 // rows of a tile: with their outputs they fit in a core's second cache
	minSplit  = 256 // keys; below, the merge costs more than it brings
	settleLen = 256 // keys after which a long sum starts anew, see flash.settle
)

// splitLen is the number of keys that one item takes for a request with that many rows: as much as makes writing and reading
// partial results a sixteenth of reading the keys, or less.
func splitLen(rows int) int {
	return (max(16*rows, minSplit) + minSplit - 1) / minSplit * minSplit
}

// sees gives the keys from ≤ j < to that query i of r sees, where there is a mask before it is looked at.
func (a *attention) sees(r *request, i int) (from, to int) {
	pos := r.keys - r.queries + i
	to = r.keys
	if a.causal && !a.masked() {
		to = max(0, pos+1)
	}
	if a.window >= 0 {
		from = min(max(0, pos-min(a.window, r.keys)), to)
	}
	return from, to
}

func (a *attention) masked() bool { return a.mask.Valid() }

// seen is the range of keys that any query of r from first on, tokens of them, sees.
func (a *attention) seen(r *request, first, tokens int) (from, to int) {
	from, _ = a.sees(r, first)
	_, to = a.sees(r, first+tokens-1)
	return min(from, to), to
}

// allowed looks up the mask: may query i of request b see key j?
func (a *attention) allowed(b int, r *request, i, j int) bool {
	c := j - (r.keys - r.queries) // draft token c; the keys before the drafts are open to all
	if c < 0 {
		return true
	}
	word := *(*uint16)(a.mask.At((b*r.queries+i)*a.mask.Shape[2] + c/16))
	return word>>(c%16)&1 != 0
}

// seesAny tells whether query i of request b sees a key at all.
func (a *attention) seesAny(b int, r *request, i int) bool {
	from, to := a.sees(r, i)
	if !a.masked() {
		return from < to
	}
	for j := from; j < to; j++ {
		if a.allowed(b, r, i, j) {
			return true
		}
	}
	return false
}

// scale makes c1 a factor above 0, which the differences of scores are multiplied with, and a turn of the scores themselves: the product
// of a large score and c1 is rounded by more than an exponent may be off. A c1 of 0, NaN or Inf is all turn.
func (a *attention) scale() {
	switch c := float64(a.c1); {
	case c == 0 || math.IsNaN(c) || math.IsInf(c, 0):
		a.turn, a.factor = a.c1, 1
	case c < 0:
		a.turn, a.factor = -1, -a.c1
	default:
		a.turn, a.factor = 1, a.c1
	}
}

// plan cuts the requests into tiles and items.
func (a *attention) plan() {
	a.tiles, a.items, a.cost = a.tiles[:0], 0, 0
	partial, merges := 0, 0
	for b := range a.requests {
		r := &a.requests[b]
		if r.queries == 0 {
			continue
		}
		n := (r.queries*a.group + tileRows - 1) / tileRows
		n = min(n, r.queries)
		length := splitLen(r.queries * a.group)
		for i := n - 1; i >= 0; i-- { // under a causal mask the last tiles are the longest: they start first
			first, end := share(r.queries, n, i)
			t := tile{request: b, first: first, tokens: end - first, splitLen: length, splits: 1, item: a.items, partial: partial}
			t.from, t.to = a.seen(r, first, t.tokens)
			if t.from < t.to {
				t.splits = (t.to-1)/length - t.from/length + 1
			}
			rows := t.tokens * a.group
			if t.splits > 1 {
				partial += t.splits * a.kvHeads * rows * (a.dvo + 2)
			}
			a.items += a.kvHeads * t.splits
			a.cost += a.kvHeads * (t.to - t.from + 1) * max(rows, 4) * (a.dqk + a.dvo)
			a.tiles = append(a.tiles, t)
			merges += a.kvHeads
		}
	}
	a.partials = resize(a.partials, partial)
	a.arrived = resize(a.arrived, merges)
	clear(a.arrived)
}

// forget drops the call's pointers.
func (a *attention) forget() {
	*a = attention{requests: a.requests, tiles: a.tiles, partials: a.partials, arrived: a.arrived}
}

// run does one item: one tile, one KV head, one split.
func (a *attention) run(s *scratch, item int) {
	s.reset()
	n := sort.Search(len(a.tiles), func(i int) bool { return a.tiles[i].item > item }) - 1
	t := &a.tiles[n]
	r := &a.requests[t.request]
	head, split := (item-t.item)/t.splits, (item-t.item)%t.splits
	var f flash
	f.init(s, a, t)
	f.loadQueries(a, r, t, head)
	from, to := t.from, t.to
	if t.splits > 1 {
		start := (t.from/t.splitLen + split) * t.splitLen
		from, to = max(from, start), min(to, start+t.splitLen)
	}
	f.walk(s, a, r, t, head, from, to)
	if t.splits == 1 {
		f.emit(a, r, t, head)
		return
	}
	size := f.rows * (a.dvo + 2)
	parts := a.partials[t.partial+head*t.splits*size:][:t.splits*size]
	part := parts[split*size:][:size]
	copy(part, f.m)
	copy(part[f.rows:], f.l)
	copy(part[2*f.rows:], f.o)
	if int(atomic.AddInt32(&a.arrived[n*a.kvHeads+head], 1)) == t.splits {
		f.merge(parts, t.splits)
		f.emit(a, r, t, head)
	}
}

// merge joins the parts: brought to one maximum, they are added two by two, so that the sum of many is as exact as that of few.
func (f *flash) merge(parts []float32, splits int) {
	size := len(parts) / splits
	for i := range f.rows {
		m := float32(math.Inf(-1))
		for s := range splits {
			m = max(m, parts[s*size+i])
		}
		f.m[i] = m
		for s := range splits {
			part := parts[s*size:][:size]
			var w float32 // 0 for a part that saw no key
			if !math.IsInf(float64(part[i]), -1) {
				w = f.shrink(part[i], m)
			}
			part[f.rows+i] *= w
			simd.Scale(w, part[2*f.rows+i*f.dvo:][:f.dvo])
		}
	}
	for step := 1; step < splits; step *= 2 {
		for s := 0; s+step < splits; s += 2 * step {
			simd.Axpy(1, parts[(s+step)*size+f.rows:][:size-f.rows], parts[s*size+f.rows:])
		}
	}
	copy(f.l, parts[f.rows:])
	copy(f.o, parts[2*f.rows:size])
}

func exp(x float32) float32 { return float32(math.Exp(float64(x))) }
