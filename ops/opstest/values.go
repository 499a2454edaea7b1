package opstest

import (
	"math"
	"math/rand/v2"

	"github.com/gaze-ml/gaze/internal/attn"
)

// rowsOf makes the values of a logical tensor [rows, width]: standard normal numbers, or what a rule says.
func rowsOf(rng *rand.Rand, dt attn.DType, rows, width int, rule func(row, d int) float64) []byte {
	size := dt.Size()
	b := make([]byte, rows*width*size)
	if rule == nil {
		// Rows are windows at random places of one ring of normal numbers: drawing each number would take longer than the backend.
		ring := normals(rng, dt, width)
		for r := range rows {
			at := rng.IntN(ringLen) * size
			copy(b[r*width*size:], ring[at:at+width*size])
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

const ringLen = 8191

func normals(rng *rand.Rand, dt attn.DType, width int) []byte {
	v := make([]float64, ringLen+width)
	for i := range v {
		v[i] = rng.NormFloat64()
	}
	b := make([]byte, len(v)*dt.Size())
	encodeRow(b, dt, v)
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
