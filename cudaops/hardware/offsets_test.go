//go:build gpu && linux && amd64 && cgo

package hardware

import (
	"bytes"
	"fmt"
	"math"
	"testing"

	"github.com/gaze-ml/gaze/cudaops"
	"github.com/gaze-ml/gaze/internal/attn"
)

// The pools of these tests are NaN but for the few pages that a request names.
const (
	farHQ, farHKV, farPage, farDim = 16, 8, 16, 128 // 2¹⁴ elements a page
	farElements                    = farHKV * farPage * farDim
)

// farRequest is one request over pages of a pool, the last one in part.
type farRequest struct {
	pages []int
	keys  int
}

func (r farRequest) mean(keys, h int) float64 {
	return mean(farPage, keys, h, func(n int) int { return r.pages[n] })
}

// checkFar makes both attention calls over the request, and holds them against its means.
func checkFar(t *testing.T, rt *cudaops.Runtime, k, v attn.Tensor, r farRequest) {
	t.Helper()
	const rows = 3
	dt := k.DType
	table := ints(t, rt, func(i int) int { return r.pages[i] }, 1, len(r.pages))
	lens := ints(t, rt, func(int) int { return r.keys }, 1)
	q := device(t, rt, dt, nil, rows, farHQ, farDim)
	c := attn.NewDecodeCall()
	c.QLenPerReq, c.Query, c.Key, c.Value, c.BlockTables, c.SeqLens, c.OutDType = rows, q, k, v, table, lens, attn.F16
	must(t, c.Infer())
	supported(t, rt, &c)
	c.Out, c.LSE = poisoned(t, rt, attn.F16, rows, farHQ, farDim), poisoned(t, rt, attn.F32, rows, farHQ)
	p := &attn.PrefillCall{Scale: 1, MaxQLen: rows, MaxKVLen: r.keys, Causal: true, Query: q, Key: k, Value: v, BlockTables: table, KVLens: lens,
		QLens: ints(t, rt, func(int) int { return rows }, 1), OutDType: attn.F16, LSE: poisoned(t, rt, attn.F32, 1, rows, farHQ)}
	scales(t, rt, p)
	must(t, p.Infer())
	supported(t, rt, p)
	p.Out = poisoned(t, rt, attn.F16, rows, farHQ, farDim)
	must(t, rt.Backend().Decode(&c), rt.Backend().Prefill(p), rt.Sync())
	for _, got := range [][2]*attn.Tensor{{&c.Out, &c.LSE}, {&p.Out, &p.LSE}} {
		checkMeans(t, attn.F16, read(t, rt, got[0]), read(t, rt, got[1]), rows, farHQ, farDim, func(row, h int) (float64, int) {
			n := r.keys - rows + row + 1
			return r.mean(n, h/(farHQ/farHKV)), n
		})
	}
}

// TestFarPages: pages that begin at elements 2³¹ and 2³², in pools of 16-bit and of e4m3 elements, apart and interleaved.
func TestFarPages(t *testing.T) {
	const pages = 1<<18 + 2
	for _, dt := range []attn.DType{attn.F16, attn.E4M3} {
		t.Run(dt.String(), func(t *testing.T) {
			rt := open(t, 0)
			k, v := poisoned(t, rt, dt, pages, farHKV, farPage, farDim), poisoned(t, rt, dt, pages, farHKV, farPage, farDim)
			r := farRequest{[]int{1 << 18, 1 << 17, 3, 1<<17 + 1}, 3*farPage + 5}
			for _, n := range r.pages {
				writePage(t, rt, &k, &v, n)
			}
			checkFar(t, rt, k, v, r)

			appendFar(t, rt, &k, &v, r.pages[0])
			poison(t, rt, &k)
			free(t, rt, &v)
			stacked := k
			stacked.Shape[0] /= 2
			stacked.Stride[0] *= 2
			values := stacked
			values.Ptr = k.At(k.Stride[0])
			r.pages = []int{1 << 16, 1<<17 - 1, 2, 1<<16 + 1}
			for _, n := range r.pages {
				writePage(t, rt, &stacked, &values, n)
			}
			checkFar(t, rt, stacked, values, r)
			appendFar(t, rt, &stacked, &values, r.pages[0])
		})
	}
}

// appendFar writes two rows into a far page, and looks that they are there and not where 32 bits would put them.
func appendFar(t *testing.T, rt *cudaops.Runtime, k, v *attn.Tensor, far int) {
	t.Helper()
	c := attn.NewAppendCall()
	content := encode(k.DType, 2*farHKV*farDim, func(i int) float64 { return float64(1 + i/(farHKV*farDim) + i/farDim%farHKV) })
	c.Key = device(t, rt, k.DType, content, 2, farHKV, farDim)
	c.Value, c.KeyCache, c.ValueCache = c.Key, *k, *v
	c.BlockTables, c.Requests = ints(t, rt, func(int) int { return far }, 1, 1), ints(t, rt, func(int) int { return 0 }, 2)
	c.Positions = ints(t, rt, func(i int) int { return []int{15, 0}[i] }, 2)
	must(t, c.Infer(), rt.Backend().Append(&c), rt.Sync())
	size := k.DType.Size()
	for _, cache := range []*attn.Tensor{k, v} {
		page := make([]byte, farElements*size)
		must(t, rt.Read(page, cache.At(far*cache.Stride[0])))
		for row, slot := range []int{15, 0} {
			for h := range farHKV {
				got := page[(h*farPage+slot)*farDim*size:][:farDim*size]
				if want := content[(row*farHKV+h)*farDim*size:][:farDim*size]; !bytes.Equal(got, want) {
					t.Errorf("%v: appended row %d head %d of page %d is elsewhere", k.DType, row, h, far)
				}
			}
		}
		must(t, rt.Read(page, cache.Ptr))
		for _, b := range page {
			if b != 0xff {
				t.Fatalf("%v: page 0 was written instead of %d", k.DType, far)
			}
		}
	}
}

// TestFarKeys: ragged keys and values past element 2³¹, packed, and by element offsets in 64 bits; rows to append as far away.
func TestFarKeys(t *testing.T) {
	const before, keys, rows = 1<<21 - 2, 5, 3
	for _, dt := range []attn.DType{attn.F16, attn.E4M3} {
		t.Run(dt.String(), func(t *testing.T) {
			rt := open(t, 0)
			const tokens = before + keys
			k, v := poisoned(t, rt, dt, tokens, farHKV, farDim), poisoned(t, rt, dt, tokens, farHKV, farDim)
			content := encode(dt, keys*farHKV*farDim, func(i int) float64 { return value(0, i/(farHKV*farDim), i/farDim%farHKV) })
			must(t, rt.Write(k.At(before*k.Stride[0]), make([]byte, len(content))), rt.Write(v.At(before*v.Stride[0]), content))
			for _, offsets := range []bool{false, true} {
				lens := func(n ...int) attn.Tensor { return ints(t, rt, func(i int) int { return n[i] }, 2) }
				c := &attn.PrefillCall{Scale: 1, MaxQLen: rows, MaxKVLen: before, Query: device(t, rt, dt, nil, rows, farHQ, farDim), Key: k, Value: v,
					QLens: lens(0, rows), KVLens: lens(before, keys), OutDType: attn.F16, LSE: poisoned(t, rt, attn.F32, 2, rows, farHQ)}
				if offsets {
					at := int64(before * farHKV * farDim)
					c.OffsetsK = device(t, rt, attn.I64, int32s(0, 0, int32(at&math.MaxUint32), int32(at>>32)), 2)
					c.OffsetsV = c.OffsetsK
				}
				scales(t, rt, c)
				must(t, c.Infer())
				supported(t, rt, c)
				c.Out = poisoned(t, rt, attn.F16, rows, farHQ, farDim)
				must(t, rt.Backend().Prefill(c), rt.Sync())
				lse := read(t, rt, &c.LSE)
				checkMeans(t, attn.F16, read(t, rt, &c.Out), lse[len(lse)/2:], rows, farHQ, farDim, func(_, h int) (float64, int) {
					return mean(farPage, keys, h/(farHQ/farHKV), func(int) int { return 0 }), keys
				})
			}
			c := attn.NewAppendCall() // the last rows alone are somebody's
			c.Key, c.Value = v, v
			c.KeyCache, c.ValueCache = device(t, rt, dt, nil, 1, farHKV, farPage, farDim), device(t, rt, dt, nil, 1, farHKV, farPage, farDim)
			c.BlockTables = ints(t, rt, func(int) int { return 0 }, 1, 1)
			c.Positions = ints(t, rt, func(i int) int { return max(i-before, -1) }, tokens)
			c.Requests = ints(t, rt, func(int) int { return 0 }, tokens)
			must(t, c.Infer(), rt.Backend().Append(&c), rt.Sync())
			got := read(t, rt, &c.KeyCache)
			for i := range keys * farHKV {
				slot, h, n := i/farHKV, i%farHKV, farDim*dt.Size()
				if !bytes.Equal(got[(h*farPage+slot)*n:][:n], content[i*n:][:n]) {
					t.Errorf("row %d head %d is not in its place", before+slot, h)
				}
			}
		})
	}
}

// TestFarRows: queries and outputs of more than 2³¹ elements.
func TestFarRows(t *testing.T) {
	const before, last, heads, hkv, keys = 1 << 18, 3, 64, 8, 5 // 2¹³ elements a row
	rt := open(t, 0)
	const tokens = before + last
	k, v := pool(t, rt, attn.BF16, 2, hkv, farPage, farDim)
	q, out := device(t, rt, attn.BF16, nil, tokens, heads, farDim), poisoned(t, rt, attn.BF16, tokens, heads, farDim)
	check := func(name string) {
		t.Run(name, func(t *testing.T) {
			tail := attn.Of(attn.BF16, last, heads, farDim)
			tail.Ptr = out.At(before * out.Stride[0])
			checkMeans(t, attn.BF16, read(t, rt, &tail), nil, last, heads, farDim, func(_, h int) (float64, int) {
				return mean(farPage, keys, h/(heads/hkv), func(int) int { return 1 }), keys
			})
			row := make([]byte, 2*heads*farDim)
			for i := 0; i < before; i += before/61 + 1 { // rows without keys
				must(t, rt.Read(row, out.At(i*out.Stride[0])))
				if !bytes.Equal(row, make([]byte, len(row))) {
					t.Fatalf("row %d of no keys is not 0", i)
				}
			}
		})
	}
	p := &attn.PrefillCall{Scale: 1, MaxQLen: before, MaxKVLen: keys, Query: q, Key: k, Value: v, Out: out, BlockTables: ints(t, rt, func(i int) int { return i }, 2, 1),
		QLens: ints(t, rt, func(b int) int { return []int{before, last}[b] }, 2), KVLens: ints(t, rt, func(b int) int { return b * keys }, 2)}
	must(t, p.Infer(), rt.Backend().Prefill(p), rt.Sync())
	check("prefill")
	poison(t, rt, &out)
	c := attn.NewDecodeCall()
	c.Query, c.Key, c.Value, c.Out = q, k, v, out
	c.BlockTables = ints(t, rt, func(int) int { return 1 }, tokens, 1)
	c.SeqLens = ints(t, rt, func(b int) int { return b / before * keys }, tokens)
	must(t, c.Infer(), rt.Backend().Decode(&c), rt.Sync())
	check(fmt.Sprintf("decode/batch=%d", tokens))
}
