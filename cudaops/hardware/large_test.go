//go:build gpu && linux && amd64 && cgo

package hardware

import (
	"bytes"
	"fmt"
	"math"
	"sort"
	"testing"

	"github.com/gaze-ml/gaze/internal/attn"
)

// TestManyRequests: 70,000 requests of a few keys each, in decode and in prefill by every kind of kernel.
func TestManyRequests(t *testing.T) {
	const batch, pages, hq, hkv, d = 70_000, 61, 4, 2, 64
	for _, dt := range []attn.DType{attn.BF16, attn.E4M3} {
		t.Run(fmt.Sprintf("decode/%v", dt), func(t *testing.T) {
			rt := open(t, 0)
			const page, columns = 16, 2
			at := func(b int) func(n int) int { return func(n int) int { return (b + 17*n) % pages } }
			c := attn.NewDecodeCall()
			c.Query, c.OutDType = device(t, rt, dt, nil, batch, hq, d), attn.BF16
			c.Key, c.Value = pool(t, rt, dt, pages, hkv, page, d)
			c.BlockTables = ints(t, rt, func(i int) int { return at(i / columns)(i % columns) }, batch, columns)
			c.SeqLens = ints(t, rt, func(b int) int { return b % 21 }, batch)
			c.LSE = poisoned(t, rt, attn.F32, batch, hq)
			must(t, c.Infer())
			supported(t, rt, &c)
			c.Out = poisoned(t, rt, c.Out.DType, batch, hq, d)
			must(t, rt.Backend().Decode(&c), rt.Sync())
			checkMeans(t, c.Out.DType, read(t, rt, &c.Out), read(t, rt, &c.LSE), batch, hq, d, func(b, h int) (float64, int) {
				return mean(page, b%21, h/(hq/hkv), at(b)), b % 21
			})
		})
		for _, page := range []int{16, 4, 0} { // by bulk tensor copies, without them, ragged
			t.Run(fmt.Sprintf("prefill/%v/page=%d", dt, page), func(t *testing.T) {
				rt := open(t, 0)
				rows, keys := func(b int) int { return b % 3 }, func(b int) int { return b%3 + b%7 }
				firstRow, firstKey := prefix(batch, rows), prefix(batch, keys)
				tokens := firstRow[batch]
				c := &attn.PrefillCall{Scale: 1, MaxQLen: 2, MaxKVLen: 8, Causal: true, OutDType: attn.BF16, Query: device(t, rt, dt, nil, tokens, hq, d),
					QLens: ints(t, rt, rows, batch), KVLens: ints(t, rt, keys, batch), LSE: poisoned(t, rt, attn.F32, batch, 2, hq)}
				at := func(b, j int) (n, slot int) { return (firstKey[b] + j) / 16, (firstKey[b] + j) % 16 }
				if page > 0 {
					columns := max(1, 8/page)
					at = func(b, j int) (n, slot int) { return (b + 17*(j/page)) % pages, j % page }
					c.Key, c.Value = pool(t, rt, dt, pages, hkv, page, d)
					c.BlockTables = ints(t, rt, func(i int) int { return (i/columns + 17*(i%columns)) % pages }, batch, columns)
				} else {
					c.Key = device(t, rt, dt, nil, firstKey[batch], hkv, d)
					c.Value = device(t, rt, dt, encode(dt, firstKey[batch]*hkv*d, func(i int) float64 {
						j := i / (hkv * d)
						return value(j/16, j%16, i/d%hkv)
					}), firstKey[batch], hkv, d)
				}
				scales(t, rt, c)
				must(t, c.Infer())
				supported(t, rt, c)
				c.Out = poisoned(t, rt, c.Out.DType, tokens, hq, d)
				must(t, rt.Backend().Prefill(c), rt.Sync())
				sum := func(b, n, h int) (s float64) {
					for j := range n {
						p, slot := at(b, j)
						s += value(p, slot, h)
					}
					return s
				}
				checkMeans(t, c.Out.DType, read(t, rt, &c.Out), nil, tokens, hq, d, func(row, h int) (float64, int) {
					b := sort.SearchInts(firstRow, row+1) - 1
					n := keys(b) - rows(b) + row - firstRow[b] + 1
					return sum(b, n, h/(hq/hkv)) / float64(n), n
				})
				for i, lse := 0, read(t, rt, &c.LSE); i < batch*2*hq; i++ {
					b, row := i/(2*hq), i/hq%2
					n := keys(b) - rows(b) + row + 1
					if row >= rows(b) {
						n = 0
					}
					if got, want := decoded(attn.F32, lse[4*i:]), math.Log(float64(n)); got != want && !(got > want-1e-4 && got < want+1e-4) {
						t.Fatalf("lse of request %d row %d: %v, want %v", b, row, got, want)
					}
				}
			})
		}
	}
}

// TestManyTokens: four million query tokens in decode and in prefill, of many requests and of one.
func TestManyTokens(t *testing.T) {
	const pages, page, d, l = 61, 16, 64, 4
	t.Run("decode", func(t *testing.T) {
		rt := open(t, 0)
		const batch = 1<<20 + 17
		c := attn.NewDecodeCall()
		c.QLenPerReq = l
		c.Query, c.Out = device(t, rt, attn.F16, nil, batch*l, 1, d), poisoned(t, rt, attn.F16, batch*l, 1, d)
		c.Key, c.Value = pool(t, rt, attn.F16, pages, 1, page, d)
		c.BlockTables = ints(t, rt, func(b int) int { return b % pages }, batch, 1)
		c.SeqLens = ints(t, rt, func(b int) int { return b % 17 }, batch)
		c.LSE = poisoned(t, rt, attn.F32, batch*l, 1)
		must(t, c.Infer(), rt.Backend().Decode(&c), rt.Sync())
		checkMeans(t, attn.F16, read(t, rt, &c.Out), read(t, rt, &c.LSE), batch*l, 1, d, func(row, _ int) (float64, int) {
			b := row / l
			n := max(0, b%17-l+row%l+1)
			return mean(page, n, 0, func(int) int { return b % pages }), n
		})
	})
	t.Run("prefill", func(t *testing.T) {
		rt := open(t, 0)
		const batch, l, s, columns = 65_537, 64, 80, 5
		c := &attn.PrefillCall{Scale: 1, MaxQLen: l, MaxKVLen: s, Causal: true, Query: device(t, rt, attn.F16, nil, batch*l, 1, d),
			Out: poisoned(t, rt, attn.F16, batch*l, 1, d), LSE: poisoned(t, rt, attn.F32, batch, l, 1), QLens: ints(t, rt, func(int) int { return l }, batch),
			KVLens: ints(t, rt, func(int) int { return s }, batch), BlockTables: ints(t, rt, func(i int) int { return (i/columns + 7*(i%columns)) % pages }, batch, columns)}
		c.Key, c.Value = pool(t, rt, attn.F16, pages, 1, page, d)
		must(t, c.Infer(), rt.Backend().Prefill(c), rt.Sync())
		means := map[[2]int]float64{}
		for b := range pages {
			for i := range l {
				means[[2]int{b, i}] = mean(page, s-l+i+1, 0, func(n int) int { return (b + 7*n) % pages })
			}
		}
		checkMeans(t, attn.F16, read(t, rt, &c.Out), read(t, rt, &c.LSE), batch*l, 1, d, func(row, _ int) (float64, int) {
			return means[[2]int{row / l % pages, row % l}], s - l + row%l + 1
		})
	})
	t.Run("prefill/one request", func(t *testing.T) {
		rt := open(t, 0)
		const rows, s = 1<<22 + 5, 16
		c := &attn.PrefillCall{Scale: 1, MaxQLen: rows, MaxKVLen: s, Query: device(t, rt, attn.F16, nil, rows, 1, d), Out: poisoned(t, rt, attn.F16, rows, 1, d),
			QLens: ints(t, rt, func(int) int { return rows }, 1), KVLens: ints(t, rt, func(int) int { return s }, 1), LSE: poisoned(t, rt, attn.F32, 1, rows, 1),
			BlockTables: ints(t, rt, func(int) int { return 5 }, 1, 1)}
		c.Key, c.Value = pool(t, rt, attn.F16, pages, 1, page, d)
		must(t, c.Infer(), rt.Backend().Prefill(c), rt.Sync())
		all := mean(page, s, 0, func(int) int { return 5 })
		checkMeans(t, attn.F16, read(t, rt, &c.Out), read(t, rt, &c.LSE), rows, 1, d, func(int, int) (float64, int) { return all, s })
	})
}

// TestManyAppends: four million rows, gathered from a table and written to a cache, by positions and by ranges, to f16 and e4m3.
func TestManyAppends(t *testing.T) {
	const page, d, table, l = 16, 64, 13, 64
	const batch, columns = 65_537, l / page
	const rows = batch * l
	rt := open(t, 0)
	small := func(i int) float64 { return float64(i/d) + float64(i%d)/64 } // of the table: its row and the place in it
	gather := &attn.EmbeddingCall{IDs: ints(t, rt, func(i int) int { return i % table }, rows), Out: poisoned(t, rt, attn.F16, rows, d),
		Weight: device(t, rt, attn.F16, encode(attn.F16, table*d, small), table, d)}
	must(t, gather.Infer(), rt.Backend().Embedding(gather))
	gathered := attn.Of(attn.F16, rows, 1, d)
	gathered.Ptr = gather.Out.Ptr
	for _, dt := range []attn.DType{attn.F16, attn.E4M3} {
		var want [table][]byte
		for r := range want {
			want[r] = encode(dt, d, func(i int) float64 { return small(r*d + i) })
		}
		for _, ranges := range []bool{false, true} {
			c := attn.NewAppendCall()
			c.Key, c.Value = gathered, gathered
			c.KeyCache, c.ValueCache = poisoned(t, rt, dt, batch*columns, 1, page, d), poisoned(t, rt, dt, batch*columns, 1, page, d)
			last := batch*columns - 1 // pages from the last to the first
			c.BlockTables = ints(t, rt, func(i int) int { return last - i }, batch, columns)
			if ranges {
				c.CumSeqLens, c.StartPositions = ints(t, rt, func(b int) int { return b * l }, batch+1), ints(t, rt, func(int) int { return 0 }, batch)
			} else {
				c.Positions, c.Requests = ints(t, rt, func(i int) int { return i % l }, rows), ints(t, rt, func(i int) int { return i / l }, rows)
			}
			must(t, c.Infer(), rt.Backend().Append(&c), rt.Sync())
			n := d * dt.Size()
			for _, cache := range []*attn.Tensor{&c.KeyCache, &c.ValueCache} {
				got := read(t, rt, cache)
				for i := range rows {
					at := (last-i/page)*page + i%page
					if !bytes.Equal(got[at*n:(at+1)*n], want[i%table]) {
						t.Fatalf("%v, by ranges %v: row %d is not in its place", dt, ranges, i)
					}
				}
			}
			free(t, rt, &c.KeyCache, &c.ValueCache)
		}
	}
}
