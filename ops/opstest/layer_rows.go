package opstest

import (
	"math"
	"math/rand/v2"

	"github.com/gaze-ml/gaze/internal/attn"
)

// matrix is a float operand of a layer op with its values.
type matrix struct {
	values []float64 // row-major, after rounding to the dtype
	op     *operand
}

// placeMatrix makes an operand of rows with a gap of NaN after each (rows are all dims but the last `inner` ones together).
func placeMatrix(in *instance, rng *rand.Rand, arg string, bind *attn.Tensor, dt attn.DType, gap int, rule func(row, d int) float64, shape ...int) matrix {
	desc := attn.Of(dt, shape...)
	rows, width := 1, 1
	if len(shape) > 0 {
		rows, width = shape[0], desc.Len()/max(1, shape[0])
	}
	if len(shape) == 1 {
		rows, width = 1, shape[0]
	}
	if gap > 0 && len(shape) > 1 {
		desc.Stride[0] += gap
	}
	o := in.add(arg, bind, desc)
	raw := rowsOf(rng, dt, rows, width, rule)
	n := width * dt.Size()
	for r := range rows {
		if len(shape) > 1 {
			copy(o.at(r*desc.Stride[0]*dt.Size(), n), raw[r*n:(r+1)*n])
		} else {
			copy(o.at(0, n), raw)
		}
	}
	m := matrix{values: make([]float64, rows*width), op: o}
	decodeRow(m.values, dt, raw)
	return m
}

// checkLayer compares a whole output; abs gives each element's extra bound, nil: none.
func (s *session) checkLayer(o *operand, want []float64, abs func(i int) float64) {
	got := o.floats()
	d := diff{name: o.arg}
	top := largest(want)
	t := s.tolerance(o.desc.DType, attn.Invalid)
	for i, w := range want {
		t.scale = math.Abs(w)
		if math.IsInf(w, 0) || math.IsNaN(w) {
			t.scale = 0
		}
		if abs != nil {
			t.abs = abs(i)
		}
		d.add(i, got[i], w, t.bound(w, top), t.dt)
	}
	s.fail(d.report(indexOf(o.desc.Shape[:o.desc.Rank]), t.dt))
	s.nmse = math.Max(s.nmse, d.nmse())
}
