package cpu

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/gaze-ml/gaze/internal/attn"
)

// Append puts every row into its slot and touches nothing else, in both forms, and an e4m3 cache gets sat(x/scale).
func TestAppend(t *testing.T) {
	r := rand.New(rand.NewPCG(21, 22))
	b := backend(t, 2)
	const heads, size, dk, dv = 3, 4, 16, 24
	for _, dts := range [][2]attn.DType{{attn.F32, attn.F32}, {attn.BF16, attn.BF16}, {attn.F16, attn.F32}, {attn.E4M3, attn.BF16}, {attn.E4M3, attn.E4M3}} {
		for _, ranges := range []bool{false, true} {
			c := attn.NewAppendCall()
			pages := 6
			c.KeyCache, c.ValueCache = fresh(dts[0], pages, heads, size, dk), fresh(dts[0], pages, heads, size, dv)
			store(c.KeyCache.Ptr, dts[0], filled(c.KeyCache.Len(), 7)) // K in HND order, V in NHD
			c.ValueCache.Stride[1], c.ValueCache.Stride[2] = dv, heads*dv
			store(c.ValueCache.Ptr, dts[0], filled(c.ValueCache.Len(), 7))
			c.BlockTables = reshape(ints(5, 0, 99, 2, -1, 4), 2, 3)
			type place struct{ request, pos int }
			places := []place{{0, 3}, {0, 4}, {0, 5}, {1, 8}, {1, 9}}
			if ranges {
				c.CumSeqLens, c.StartPositions = ints(0, 3, 5), ints(3, 8)
			} else {
				places = []place{{1, 9}, {0, -1}, {0, 0}, {1, 0}, {0, 7}}
				var p, q []int32
				for _, x := range places {
					p, q = append(p, int32(x.pos)), append(q, int32(x.request))
				}
				q[1] = 1000 // nobody asks for the request of a skipped row
				c.Positions, c.Requests = ints(p...), ints(q...)
			}
			n := len(places)
			k, v := of(dts[1], normal(r, n*heads*dk), n, heads, dk), of(dts[1], normal(r, n*heads*dv), n, heads, dv)
			c.Key, c.Value = wider(k), wider(v)
			if dts[0] == attn.E4M3 {
				c.KScale, c.VScale = 0.5, 0.001
			}
			infer(t, &c)
			want := [2][]float32{values(&c.KeyCache), values(&c.ValueCache)}
			for i, p := range places {
				if p.pos < 0 {
					continue
				}
				page := int(slice[int32](c.BlockTables.Ptr, 6)[p.request*3+p.pos/size])
				for h := range heads {
					for side, src := range []attn.Tensor{k, v} {
						d, scale := src.Shape[2], []float32{float32(c.KScale), float32(c.VScale)}[side]
						x := values(&src)[(i*heads+h)*d:][:d]
						for j := range x {
							x[j] /= scale
						}
						rounded := of(dts[0], x, d)
						at := (page*heads+h)*size + p.pos%size
						if side == 1 {
							at = (page*size+p.pos%size)*heads + h
						}
						copy(want[side][at*d:], values(&rounded))
					}
				}
			}
			run(t, b, &c)
			name := fmt.Sprintf("cache=%v k=%v ranges=%v", dts[0], dts[1], ranges)
			close32(t, name+" K", values(&c.KeyCache), want[0], 0)
			close32(t, name+" V", values(&c.ValueCache), want[1], 0)
		}
	}
}
