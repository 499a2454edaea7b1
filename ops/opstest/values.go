package opstest

import (
	"math"
	"math/rand/v2"
	"sync"

	"github.com/gaze-ml/gaze/internal/attn"
)

// rowsOf makes the values of a logical tensor [rows, width]: standard normal numbers, or what a rule says.
func rowsOf(rng *rand.Rand, dt attn.DType, rows, width int, rule func(row, d int) float64) []byte {
	size := dt.Size()
	b := make([]byte, rows*width*size)
	if rule == nil {
		// Rows are windows at random places of one ring of normal numbers: drawing each number would take longer than the backend.
		ring := ringOf(dt)
		n := len(ring) / 2 / size
		for r := range rows {
			for d := 0; d < width; d += n { // a row longer than the ring takes several windows
				at := rng.IntN(n) * size
				copy(b[(r*width+d)*size:(r*width+min(d+n, width))*size], ring[at:])
			}
		}
		return b
	}
	row := make([]float64, width)
	for r := range rows {
		for d := range row {
			row[d] = rule(r, d)
		}
		encodeRow(b[r*width*size:(r+1)*width*size], dt, row)
	}
	return b
}

var rings sync.Map // attn.DType → []byte

// ringOf is 8191 standard normal numbers, twice over.
func ringOf(dt attn.DType) []byte {
	if r, ok := rings.Load(dt); ok {
		return r.([]byte)
	}
	rng := rand.New(rand.NewPCG(1, uint64(dt)))
	v := make([]float64, 8191)
	for i := range v {
		v[i] = rng.NormFloat64()
	}
	b := make([]byte, len(v)*dt.Size(), 2*len(v)*dt.Size())
	encodeRow(b, dt, v)
	b = append(b, b...)
	rings.Store(dt, b)
	return b
}

// noise is a cheap rule for numbers in (-1, 1) that differ everywhere.
func noise(a, b, c, d int) float64 {
	h := uint64(a)*0x9e3779b97f4a7c15 ^ uint64(b)*0xc2b2ae3d27d4eb4f ^ uint64(c)*0x165667b19e3779f9 ^ uint64(d)*0x27d4eb2f165667c5
	h ^= h >> 31
	h *= 0xbf58476d1ce4e5b9
	h ^= h >> 29
	return math.Ldexp(float64(int64(h)), -63)
}
