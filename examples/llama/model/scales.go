package model

import (
	"fmt"
	"math"

	"gorgonia.org/tensor"

	"github.com/gaze-ml/gaze/ops"
)

// kvScale is what a layer's keys and values are divided by before they are stored in 8 bits.
type kvScale struct{ k, v float64 }

const largestE4M3 = 448

// cacheScales gives the scales of every layer's float8_e4m3 cache, from the weights alone: powers of two by which no key or value that the
// layer can ever make exceeds the format's largest number. A normalised row has Σ(h/g)² = H, so |w·h| ≤ √H·‖w∘g‖, g being the
// norm's weights; RoPE makes an element of a key of two. Usual values lie some 2^5 below the bound and the format keeps its three bits
// down to 2^-15 of it, so the room above them costs nothing.
func (w *weights) cacheScales() ([]kvScale, error) {
	out := make([]kvScale, w.h.Layers)
	for i := range out {
		at := func(name string) *tensor.Dense { return w.tensors[fmt.Sprintf("blk.%d.%s", i, name)] }
		gain, err := ops.Float32s(at("attn_norm.weight"))
		if err != nil {
			return nil, err
		}
		k, err := w.largest(at("attn_k.weight"), at("attn_k.bias"), gain)
		if err != nil {
			return nil, err
		}
		v, err := w.largest(at("attn_v.weight"), at("attn_v.bias"), gain)
		if err != nil {
			return nil, err
		}
		out[i] = kvScale{scaleOf(math.Sqrt2 * k), scaleOf(v)}
	}
	return out, nil
}

// scaleOf is the power of two that brings a bound below the format's largest number; 1 where there is no finite bound.
func scaleOf(bound float64) float64 {
	if bound == 0 || math.IsInf(bound, 0) || math.IsNaN(bound) {
		return 1
	}
	return math.Exp2(math.Ceil(math.Log2(bound / largestE4M3)))
}

// largest bounds the elements of m·h + bias over all normalised rows h.
func (w *weights) largest(m, bias *tensor.Dense, gain []float32) (float64, error) {
	rows := m.Shape()[0]
	ids := make([]int32, rows)
	for i := range ids {
		ids[i] = int32(i)
	}
	x := make([]float32, rows*len(gain)) // gathering all rows converts them
	out := tensor.New(tensor.WithShape(rows, len(gain)), tensor.WithBacking(x))
	if err := ops.Embed(tensor.New(tensor.WithShape(rows), tensor.WithBacking(ids)), m, out); err != nil {
		return 0, err
	}
	var b []float32
	if bias != nil {
		var err error
		if b, err = ops.Float32s(bias); err != nil {
			return 0, err
		}
	}
	bound := 0.0
	for o := range rows {
		sum := 0.0
		for i, g := range gain {
			e := float64(x[o*len(gain)+i]) * float64(g)
			sum += e * e
		}
		y := math.Sqrt(sum * float64(len(gain)))
		if b != nil {
			y += math.Abs(float64(b[o]))
		}
		bound = math.Max(bound, y)
	}
	return bound, nil
}
