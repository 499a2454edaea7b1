package opstest

import (
	"math"
	"math/rand/v2"

	"github.com/gaze-ml/gaze/internal/attn"
)

// form is how a paged cache lies in memory.
type form uint8

const (
	pairHND    form = iota // two [N,Hkv,P,D]
	pairNHD                // two [N,P,Hkv,D]
	stackedHND             // [N,2,Hkv,P,D]
	stackedNHD             // [N,2,P,Hkv,D]
	sharedHND              // [N,1,Hkv,P,D], K and V the same memory
	sharedNHD              // [N,1,P,Hkv,D]
	padded                 // two HND pools: K's page stride twice the packed one, V's rows and heads apart by other gaps
)

func (f form) String() string {
	return [...]string{"pair_hnd", "pair_nhd", "stacked_hnd", "stacked_nhd", "shared_hnd", "shared_nhd", "padded"}[f]
}

// cache is the logical content of a paged cache and how its pages are named.
type cache struct {
	page, hkv, dk, dv int
	dt                attn.DType
	lens              []int    // S_b
	k, v              [][]byte // per request [S_b,Hkv,D·] elements
	share             int      // leading pages that all requests have in common, those of request 0
	pages             int      // in the pool
	table             [][]int  // pages of each request, ceil(S_b/P) of them
	tailInf           bool     // the slots after a request's last key hold +Inf instead of NaN
}

func pagesFor(s, page int) int { return (s + page - 1) / page }

// number gives every page of every request a random place in the pool; extra pages stay unused. firstPage > 0 moves the pool's
// used part there, for offsets that need many bits.
func (c *cache) number(rng *rand.Rand, extra, firstPage int) {
	used := 0
	for b, s := range c.lens {
		n := pagesFor(s, c.page)
		if b > 0 {
			n = max(0, n-c.share)
		}
		used += n
	}
	ids := rng.Perm(used + extra)
	c.pages = firstPage + used + extra
	c.table = make([][]int, len(c.lens))
	for b, s := range c.lens {
		for n := range pagesFor(s, c.page) {
			if b > 0 && n < c.share {
				c.table[b] = append(c.table[b], c.table[0][n])
				continue
			}
			c.table[b] = append(c.table[b], firstPage+ids[0])
			ids = ids[1:]
		}
	}
}

// views gives the HND-order descriptors of K and V in one of the forms, how many buffers they need, and where V begins.
func (c *cache) views(f form) (k, v, whole attn.Tensor, vStart int) {
	n, h, p := c.pages, c.hkv, c.page
	nhd := func(t attn.Tensor) attn.Tensor {
		t.Shape[1], t.Shape[2] = t.Shape[2], t.Shape[1]
		t.Stride[1], t.Stride[2] = t.Stride[2], t.Stride[1]
		return t
	}
	k, v = attn.Of(c.dt, n, h, p, c.dk), attn.Of(c.dt, n, h, p, c.dv)
	switch f {
	case pairNHD:
		k, v = nhd(attn.Of(c.dt, n, p, h, c.dk)), nhd(attn.Of(c.dt, n, p, h, c.dv))
	case stackedHND:
		whole = attn.Of(c.dt, n, 2, h, p, c.dk)
	case stackedNHD:
		k, whole = nhd(attn.Of(c.dt, n, p, h, c.dk)), attn.Of(c.dt, n, 2, p, h, c.dk)
	case sharedHND:
		whole = attn.Of(c.dt, n, 1, h, p, c.dk)
	case sharedNHD:
		k, whole = nhd(attn.Of(c.dt, n, p, h, c.dk)), attn.Of(c.dt, n, 1, p, h, c.dk)
	case padded:
		k.Stride[0] *= 2
		v.Stride = [attn.MaxRank]int{h*p*(c.dv+8) + 3*8*h, p*(c.dv+8) + 3*8, c.dv + 8, 1}
	}
	if whole.Valid() {
		k.Stride[0], v = whole.Stride[0], k
		v.Stride[0] = k.Stride[0]
		if whole.Shape[1] == 2 {
			vStart = whole.Stride[1]
		}
	}
	return k, v, whole, vStart
}

// place makes the operands of the cache and writes the logical rows to where the table says, the rest stays poison. With
// sparse only the used pages exist.
func (c *cache) place(in *instance, arg string, key, value *attn.Tensor, f form, sparse bool) {
	k, v, whole, vStart := c.views(f)
	pool := func(name string, bind *attn.Tensor, desc attn.Tensor) *operand {
		if !sparse {
			return in.add(name, bind, desc)
		}
		var ranges [][2]int
		pageBytes := (extent(&desc) - (desc.Shape[0]-1)*desc.Stride[0]) * c.dt.Size()
		for _, row := range c.table {
			for _, id := range row {
				at := id * desc.Stride[0] * c.dt.Size()
				ranges = append(ranges, [2]int{at, at + pageBytes})
			}
		}
		o := newSparseOperand(name, bind, desc, ranges)
		in.operands = append(in.operands, o)
		return o
	}
	if whole.Valid() {
		o := pool(arg, key, whole)
		*key = k
		o.view(value, v, vStart)
		c.write(o, &k, 0, c.k, c.dk)
		c.write(o, &v, vStart, c.v, c.dv)
		return
	}
	c.write(pool(arg+" K", key, k), &k, 0, c.k, c.dk)
	c.write(pool(arg+" V", value, v), &v, 0, c.v, c.dv)
}

// write copies the logical rows of one of K and V into the pool.
func (c *cache) write(o *operand, t *attn.Tensor, start int, rows [][]byte, d int) {
	size := c.dt.Size()
	inf := make([]byte, d*size)
	for i := range inf {
		inf[i] = byte(formats[c.dt].encode(math.Inf(1)) >> (8 * (i % size)))
	}
	for b, s := range c.lens {
		for j := range pagesFor(s, c.page) * c.page {
			for h := range c.hkv {
				at := start + c.table[b][j/c.page]*t.Stride[0] + h*t.Stride[1] + j%c.page*t.Stride[2]
				if j >= s {
					if c.tailInf {
						copy(o.at(at*size, d*size), inf)
					}
					continue
				}
				from := (j*c.hkv + h) * d * size
				copy(o.at(at*size, d*size), rows[b][from:from+d*size])
			}
		}
	}
}

// placeTable makes the block table: extra columns that nobody may read hold absurd ids, and the row stride is wider still.
func (c *cache) placeTable(in *instance, bind *attn.Tensor, extra, pad int) *operand {
	cols := extra
	for _, row := range c.table {
		cols = max(cols, len(row)+extra)
	}
	desc := attn.Of(attn.I32, len(c.table), cols)
	desc.Stride[0] += pad
	o := in.add("block_tables", bind, desc)
	for b, row := range c.table {
		for n := range cols + pad {
			id := int(absurdIDs[n%2])
			if n < len(row) {
				id = row[n]
			}
			if n < cols || b+1 < len(c.table) {
				o.setInts(b*desc.Stride[0]+n, id)
			}
		}
	}
	return o
}

// reader gives the oracle the logical rows of request b.
func (c *cache) reader(rows [][]byte, b, d int) func(j, h int, dst []float64) {
	size := c.dt.Size()
	return func(j, h int, dst []float64) {
		from := (j*c.hkv + h) * d * size
		decodeRow(dst, c.dt, rows[b][from:from+d*size])
	}
}

// fill draws K and V, or takes them from rules over (request, position, KV head, dim).
func (c *cache) fill(rng *rand.Rand, k, v func(b, t, h, d int) float64, shared bool) {
	for b, s := range c.lens {
		from := b
		rule := func(f func(b, t, h, d int) float64) func(row, d int) float64 {
			if f == nil {
				return nil
			}
			return func(row, d int) float64 { return f(from, row/c.hkv, row%c.hkv, d) }
		}
		kb := rowsOf(rng, c.dt, s*c.hkv, c.dk, rule(k))
		vb := kb
		if !shared {
			vb = rowsOf(rng, c.dt, s*c.hkv, c.dv, rule(v))
		}
		if b > 0 && c.share > 0 { // the common pages hold request 0's rows
			n := min(c.share*c.page, s, c.lens[0]) * c.hkv * c.dt.Size()
			copy(kb[:n*c.dk], c.k[0])
			copy(vb[:n*c.dv], c.v[0])
		}
		c.k, c.v = append(c.k, kb), append(c.v, vb)
	}
}
