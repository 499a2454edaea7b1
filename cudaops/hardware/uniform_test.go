//go:build gpu && linux && amd64 && cgo

package hardware

import (
	"testing"

	"github.com/gaze-ml/gaze/cudaops"
	"github.com/gaze-ml/gaze/internal/attn"
)

// value is what every element of V holds at slot s of page n for KV head h; with queries of 0, outputs are means of it.
func value(n, s, h int) float64 { return float64((3*n + s + 2*h) % 16) }

// mean is that of the first keys of a request.
func mean(page, keys, h int, pages func(n int) int) float64 {
	sum := 0.
	for j := range keys {
		sum += value(pages(j/page), j%page, h)
	}
	return sum / float64(max(keys, 1))
}

// writePage puts page n of K (0) and V into pools [N,Hkv,P,D] in HND order, of any page stride.
func writePage(t testing.TB, rt *cudaops.Runtime, k, v *attn.Tensor, n int) {
	t.Helper()
	hkv, page, d := k.Shape[1], k.Shape[2], k.Shape[3]
	each := hkv * page * d
	must(t, rt.Write(k.At(n*k.Stride[0]), make([]byte, each*k.DType.Size())),
		rt.Write(v.At(n*v.Stride[0]), encode(v.DType, each, func(i int) float64 { return value(n, i/d%page, i/(d*page)) })))
}

// pool gives K and V of some pages, all written.
func pool(t testing.TB, rt *cudaops.Runtime, dt attn.DType, pages, hkv, page, d int) (k, v attn.Tensor) {
	t.Helper()
	k, v = device(t, rt, dt, nil, pages, hkv, page, d), device(t, rt, dt, nil, pages, hkv, page, d)
	for n := range pages {
		writePage(t, rt, &k, &v, n)
	}
	return k, v
}

// ints is a tensor of so many int32 by a rule.
func ints(t testing.TB, rt *cudaops.Runtime, rule func(i int) int, shape ...int) attn.Tensor {
	t.Helper()
	x := attn.Of(attn.I32, shape...)
	v := make([]int, x.Len())
	for i := range v {
		v[i] = rule(i)
	}
	return device(t, rt, attn.I32, packed(v), shape...)
}

// prefix is the sums of a rule before each of n.
func prefix(n int, rule func(i int) int) []int {
	sums := make([]int, n+1)
	for i := range n {
		sums[i+1] = sums[i] + rule(i)
	}
	return sums
}

// scales gives an e4m3 prefill its three scales of 1.
func scales(t testing.TB, rt *cudaops.Runtime, c *attn.PrefillCall) {
	t.Helper()
	if c.Query.DType == attn.E4M3 {
		c.QScale = device(t, rt, attn.F32, float32s(1), 1)
		c.KScale, c.VScale = c.QScale, c.QScale
	}
}
