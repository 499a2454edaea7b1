package cpu

import (
	"math"
	"math/rand/v2"

	"github.com/gaze-ml/gaze/internal/attn"
)

// requestData is one request of a test: its queries [L][Hq][Dqk], keys and values [S][Hkv][D·].
type requestData struct {
	q, k, v [][][]float64
}

// naive is attention by its definition, in float64, for one query row. visible says which keys count.
func naive(q []float64, k, v [][][]float64, head int, c1, c2, sink float64, visible func(j int) bool) (out []float64, lse float64) {
	m, l := sink, 0.0
	if !math.IsInf(sink, -1) {
		l = 1
	}
	for j := range k {
		if visible(j) {
			m = max(m, c1*dot64(q, k[j][head]))
		}
	}
	var d int
	if len(v) > 0 {
		d = len(v[0][head])
	}
	out = make([]float64, d)
	l *= math.Exp(sink - m)
	if math.IsInf(m, -1) {
		return out, m
	}
	for j := range k {
		if !visible(j) {
			continue
		}
		w := math.Exp(c1*dot64(q, k[j][head]) - m)
		l += w
		for i, x := range v[j][head] {
			out[i] += w * x
		}
	}
	for i := range out {
		out[i] *= c2 / l
	}
	return out, m + math.Log(l)
}

func dot64(a, b []float64) (s float64) {
	for i, x := range a {
		s += x * b[i]
	}
	return s
}

// block3 gives n·heads·d random values that dt holds exactly.
func block3(r *rand.Rand, dt attn.DType, n, heads, d int) [][][]float64 {
	out := make([][][]float64, n)
	for i := range out {
		out[i] = make([][]float64, heads)
		for h := range out[i] {
			t := of(dt, normal(r, d), d)
			for _, x := range values(&t) {
				out[i][h] = append(out[i][h], float64(x))
			}
		}
	}
	return out
}

// cache is a paged cache over poison: pages in random order, rows further apart than they need, and nothing but NaN where no
// key of a request lies.
type cache struct {
	key, value, tables attn.Tensor
}

func paged(r *rand.Rand, dt attn.DType, requests []requestData, pageSize, kvHeads, dk, dv int, nhd bool) cache {
	columns, pages := 1, 2
	for _, q := range requests {
		n := (len(q.k) + pageSize - 1) / pageSize
		columns, pages = max(columns, n+1), pages+n
	}
	pool := func(d int) attn.Tensor {
		t := fresh(dt, pages, kvHeads, pageSize, d+8)
		store(t.Ptr, dt, filled(t.Len(), nan))
		if nhd { // the same memory read as [pages, P, Hkv, d+8]
			t.Stride = [attn.MaxRank]int{t.Stride[0], d + 8, kvHeads * (d + 8), 1}
		}
		t.Shape[3] = d
		return t
	}
	c := cache{key: pool(dk), value: pool(dv), tables: fresh(attn.I32, len(requests), columns)}
	entries := slice[int32](c.tables.Ptr, c.tables.Len())
	for i := range entries {
		entries[i] = -1 - int32(i)*1000
	}
	free := r.Perm(pages)
	put := func(t *attn.Tensor, page, slot int, rows [][]float64) {
		for h, x := range rows {
			x32 := make([]float32, len(x))
			for i, v := range x {
				x32[i] = float32(v)
			}
			store(t.At(page*t.Stride[0]+h*t.Stride[1]+slot*t.Stride[2]), dt, x32)
		}
	}
	for b, q := range requests {
		for j := range q.k {
			at := &entries[b*columns+j/pageSize]
			if *at < 0 {
				*at, free = int32(free[0]), free[1:]
			}
			put(&c.key, int(*at), j%pageSize, q.k[j])
			put(&c.value, int(*at), j%pageSize, q.v[j])
		}
	}
	return c
}

// queries packs the rows of all requests.
func queries(dt attn.DType, requests []requestData, heads, d int) attn.Tensor {
	var v []float32
	for _, r := range requests {
		for _, row := range r.q {
			for _, head := range row {
				for _, x := range head {
					v = append(v, float32(x))
				}
			}
		}
	}
	return of(dt, v, len(v)/(heads*d), heads, d)
}

func narrow(v []float64) []float32 {
	out := make([]float32, len(v))
	for i, x := range v {
		out[i] = float32(x)
	}
	return out
}
