package opstest

import (
	"fmt"
	"math"

	"github.com/gaze-ml/gaze/internal/attn"
)

// Accuracy says how near a backend's floats must come to the float64 oracle.
type Accuracy uint8

const (
	// Exact is for backends that compute in f32 throughout: f32 results within 1e-5·(1+max|V|), narrower ones within one rounding
	// step plus 1e-3, nvfp4 codes and scales within one code.
	Exact Accuracy = iota
	// Tensor is for matrix units with 16-bit or 8-bit operands: 16-bit results within 2 rounding steps of the row's largest
	// value, results of e4m3 queries and nvfp4 within the tolerances of FlashInfer's own tests.
	Tensor
)

// nmseLimit bounds Σ(got-want)²/Σwant² over a whole output, which sees a small fault that every element's own bound lets pass.
func nmseLimit(dt attn.DType) float64 {
	switch dt {
	case attn.F32:
		return 1e-10
	case attn.F16:
		return 1e-7
	case attn.BF16:
		return 2e-5
	}
	return 5e-3 // e4m3: a step is an eighth to a sixteenth of the value
}

// tolerance is the bound for one output.
type tolerance struct {
	class Accuracy
	dt    attn.DType // of the output
	scale float64    // max|V|, or what takes its place in another op
	e4m3Q bool       // the query was e4m3
	abs   float64    // added to the bound, for sums whose terms are much larger than their result
}

// bound gives the largest allowed |got - want|; rowMax is the row's largest |want|.
func (t tolerance) bound(want, rowMax float64) float64 {
	f := formats[t.dt]
	switch {
	case t.dt == attn.F32:
		return 1e-5*(1+t.scale) + t.abs
	case t.class == Exact:
		return f.step(want) + 1e-3 + t.abs
	case t.e4m3Q && t.dt == attn.E4M3: // but half a step is nobody's fault
		return max(7e-2+5e-2*math.Abs(want), f.step(want)/2+2*formats[attn.BF16].step(rowMax)) + t.abs
	case t.e4m3Q:
		return 7e-2 + 4e-2*math.Abs(want) + t.abs
	case t.dt == attn.E4M3:
		return f.step(want) + 2*formats[attn.BF16].step(rowMax) + t.abs
	}
	return 2*f.step(rowMax) + t.abs
}

// lseBound is the bound of one log-sum-exp.
func (t tolerance) lseBound(want float64) float64 {
	if t.class == Exact {
		return 1e-5 * (2 + math.Abs(want))
	}
	if t.e4m3Q {
		return 1.2e-2 + 1e-3*math.Abs(want)
	}
	return 3e-3 + 1e-3*math.Abs(want)
}

// diff gathers the comparison of one output.
type diff struct {
	name        string
	worst       float64 // |got - want| / bound
	index       int
	got, want   float64
	bad         int
	first       int // index of the first bad element
	num, den    float64
	compared    int
	positionBad bool
}

// add compares one element; bad says what is wrong with it, if anything.
func (d *diff) add(index int, got, want, bound float64, dt attn.DType) {
	d.compared++
	exact := want
	if f := &formats[dt]; math.Abs(want) > f.max { // overflows or saturates
		want = f.round(want)
	}
	ratio := 0.0
	switch {
	case math.IsNaN(want) != math.IsNaN(got), math.IsInf(want, 0) && got != want, math.IsInf(got, 0) && got != want:
		ratio, d.positionBad = math.Inf(1), true
	case math.IsNaN(want):
	case math.IsInf(want, 0): // rightly so: no error, but part of the output that errors are held against
		if !math.IsInf(exact, 0) {
			d.den += exact * exact
		}
	default:
		e := math.Abs(got - want)
		ratio = e / bound
		if e == 0 {
			ratio = 0
		}
		d.num += e * e
		d.den += want * want
	}
	if ratio > 1 {
		if d.bad == 0 {
			d.first = index
		}
		d.bad++
	}
	if ratio > d.worst || d.compared == 1 {
		d.worst, d.index, d.got, d.want = ratio, index, got, want
	}
}

// nmse is Σ(got-want)²/Σwant².
func (d *diff) nmse() float64 {
	if d.num == 0 {
		return 0
	}
	return d.num / d.den
}

// report gives nil, or what is wrong: how many, the worst element with both values, the whole output's error.
func (d *diff) report(where func(int) string, dt attn.DType) error {
	if d.bad > 0 {
		return fmt.Errorf("%s: %d of %d elements wrong, first %s, worst %s: got %v, want %v (%.3g of the bound); NMSE %.3g",
			d.name, d.bad, d.compared, where(d.first), where(d.index), d.got, d.want, d.worst, d.nmse())
	}
	floor := formats[dt].step(0) / 2 // what rounding to zero may cost
	if limit := nmseLimit(dt); d.num > limit*d.den+float64(d.compared)*max(floor*floor, 1e-13) {
		return fmt.Errorf("%s: NMSE %.3g above %.3g; worst %s: got %v, want %v", d.name, d.nmse(), limit, where(d.index), d.got, d.want)
	}
	return nil
}

// indexOf spells a flat index as [i,j,k].
func indexOf(shape []int) func(int) string {
	return func(n int) string {
		idx := make([]int, len(shape))
		for i := len(shape) - 1; i >= 0; i-- {
			idx[i], n = n%max(shape[i], 1), n/max(shape[i], 1)
		}
		return fmt.Sprint(idx)
	}
}
