package opstest

import (
	"math"
	"sync"

	"github.com/gaze-ml/gaze/internal/attn"
)

// format is a binary floating-point format. The suite has its own codes, in float64 and by definition rather than by bit
// tricks, so that a fault in a backend's conversions can't hide in the oracle.
type format struct {
	exp, man int     // bits of the exponent and the mantissa
	max      float64 // the largest finite value
	saturate bool    // no infinities: too large becomes max
	nan      uint32
}

var formats = [...]format{
	attn.F32:  {exp: 8, man: 23, max: math.MaxFloat32, nan: 0x7fc00000},
	attn.F16:  {exp: 5, man: 10, max: 65504, nan: 0x7e00},
	attn.BF16: {exp: 8, man: 7, max: 255 * 0x1p120, nan: 0x7fc0},
	attn.E4M3: {exp: 4, man: 3, max: 448, saturate: true, nan: 0x7f},
}

// e2m1 is nvfp4's element: 0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives.
var e2m1 = format{exp: 2, man: 1, max: 6, saturate: true}

func (f format) bias() int { return 1<<(f.exp-1) - 1 }

// step is the distance between neighbours of the format at x.
func (f format) step(x float64) float64 {
	_, e := math.Frexp(x)
	if x == 0 {
		e = math.MinInt32
	}
	return math.Ldexp(1, max(e-1, 1-f.bias())-f.man)
}

// round gives the nearest value of the format, ties to the even code.
func (f format) round(x float64) float64 {
	if x == 0 || math.IsNaN(x) {
		return x
	}
	r := x
	if !math.IsInf(x, 0) {
		s := f.step(x)
		r = math.RoundToEven(x/s) * s
	}
	switch {
	case math.Abs(r) <= f.max:
		return r
	case f.saturate:
		return math.Copysign(f.max, r)
	}
	return math.Inf(int(math.Copysign(1, r)))
}

// encode gives the code of the nearest value.
func (f format) encode(x float64) uint32 {
	sign := uint32(0)
	if math.Signbit(x) {
		sign = 1 << (f.exp + f.man)
	}
	if math.IsNaN(x) {
		return f.nan
	}
	r := math.Abs(f.round(x))
	if math.IsInf(r, 0) {
		return sign | (1<<f.exp-1)<<f.man
	}
	step := f.step(r)
	code := uint32(r / step) // the mantissa, with its hidden bit where normal
	if _, e := math.Frexp(r); r != 0 && e-1 >= 1-f.bias() {
		code += uint32(e-1+f.bias()-1) << f.man
	}
	return sign | code
}

// decode gives the value of a code.
func (f format) decode(c uint32) float64 {
	e, m := int(c>>f.man)&(1<<f.exp-1), float64(c&(1<<f.man-1))
	sign := 1.0
	if c>>(f.exp+f.man)&1 == 1 {
		sign = -1
	}
	switch {
	case f.nan != 0 && f.saturate && c&^(1<<(f.exp+f.man)) == f.nan:
		return math.NaN()
	case f.nan != 0 && !f.saturate && e == 1<<f.exp-1:
		if m != 0 {
			return math.NaN()
		}
		return math.Inf(int(sign))
	case e == 0:
		return sign * math.Ldexp(m, 1-f.bias()-f.man)
	}
	return sign * math.Ldexp(m+math.Ldexp(1, f.man), e-f.bias()-f.man)
}

var decodeTables sync.Map // attn.DType → []float64

// decodeTable lists the values of all codes of a dtype of 8 or 16 bits.
func decodeTable(dt attn.DType) []float64 {
	if t, ok := decodeTables.Load(dt); ok {
		return t.([]float64)
	}
	f := formats[dt]
	t := make([]float64, 1<<(1+f.exp+f.man))
	for c := range t {
		t[c] = f.decode(uint32(c))
	}
	decodeTables.Store(dt, t)
	return t
}

// decodeRow turns packed elements into float64.
func decodeRow(dst []float64, dt attn.DType, src []byte) {
	switch dt.Size() {
	case 4:
		for i := range dst {
			dst[i] = float64(math.Float32frombits(le.Uint32(src[4*i:])))
		}
	case 2:
		t := decodeTable(dt)
		for i := range dst {
			dst[i] = t[le.Uint16(src[2*i:])]
		}
	case 1:
		t := decodeTable(dt)
		for i := range dst {
			dst[i] = t[src[i]]
		}
	}
}

// encodeRow rounds float64 values into packed elements.
func encodeRow(dst []byte, dt attn.DType, src []float64) {
	f := formats[dt]
	for i, x := range src {
		switch c := f.encode(x); dt.Size() {
		case 4:
			le.PutUint32(dst[4*i:], c)
		case 2:
			le.PutUint16(dst[2*i:], uint16(c))
		case 1:
			dst[i] = byte(c)
		}
	}
}
