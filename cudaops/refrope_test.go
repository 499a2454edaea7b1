//go:build gpu && linux && amd64 && cgo

package cudaops

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/gaze-ml/gaze/cudaops/internal/driver"
	"github.com/gaze-ml/gaze/cudaops/internal/fakecuda"
	"github.com/gaze-ml/gaze/internal/attn"
	"github.com/gaze-ml/gaze/internal/half"
)

// The bodies of the kernels that turn rows, on the recording driver.

func refAppend(k *kernel, v view, l *fakecuda.Launch) error {
	p := fakecuda.As[appendParams](l)
	n, h, b := int(p.Tokens), int(p.KVHeads), int(p.Batch)
	c := attn.AppendCall{KScale: float64(p.KScale), VScale: float64(p.VScale)}
	c.Key = v.strided(p.K, k.A, []int{n, h, int(p.KDim)}, p.KRowToken, p.KRowHead, 1)
	c.Value = v.strided(p.V, k.A, []int{n, h, int(p.VDim)}, p.VRowToken, p.VRowHead, 1)
	c.KeyCache = v.strided(p.KCache, k.B, []int{int(p.Pages), h, int(p.PageSize), int(p.KDim)}, p.KPage, p.KHead, p.KToken, 1)
	c.ValueCache = v.strided(p.VCache, k.B, []int{int(p.Pages), h, int(p.PageSize), int(p.VDim)}, p.VPage, p.VHead, p.VToken, 1)
	c.BlockTables = v.strided(p.BlockTables, attn.I32, []int{b, int(p.MaxPages)}, p.TableRow, 1)
	c.Positions, c.Requests = v.packed(p.Positions, attn.I32, n), v.packed(p.Requests, attn.I32, n)
	c.CumSeqLens, c.StartPositions = v.packed(p.CumSeqLens, attn.I32, b+1), v.packed(p.StartPositions, attn.I32, b)
	if p.Rotary == 0 {
		if p.Q != 0 {
			return fmt.Errorf("q %#x in a call without RoPE", p.Q)
		}
		return run(&c)
	}
	at := make([]int32, n)
	if p.Positions != 0 {
		copy(at, fakecuda.On[int32](v.m, uint64(p.Positions), n))
	} else {
		cum, start := fakecuda.On[int32](v.m, uint64(p.CumSeqLens), b+1), fakecuda.On[int32](v.m, uint64(p.StartPositions), b)
		for i := range b {
			for t := cum[i]; t < cum[i+1]; t++ {
				at[t] = start[i] + t - cum[i]
			}
		}
	}
	turn := v.turner(p.Turns[:p.Rotary/2], p.Factors, p.Adjacent)
	c.Key, c.Value = turn.all(&c.Key, at, attn.F32), turn.all(&c.Value, nil, attn.F32) // rounded once, by the cache
	if p.Q != 0 {
		q := v.strided(p.Q, k.A, []int{n, int(p.QHeads), int(p.KDim)}, p.QToken, p.QHead, 1)
		turned := turn.all(&q, at, k.A)
		copy(v.m.Bytes(uint64(p.QOut), turned.Bytes()), driver.Host(turned.Ptr, turned.Bytes()))
	}
	return run(&c)
}

// turner is RoPE by the frequencies in a struct.
type turner struct {
	turns    []float64
	factors  []float32
	adjacent bool
}

func (v view) turner(turns []float64, factors driver.Addr, adjacent int32) turner {
	t := turner{turns: turns, adjacent: adjacent == 1}
	if factors != 0 {
		t.factors = fakecuda.On[float32](v.m, uint64(factors), len(turns))
	}
	return t
}

// all gives x, [T,H,D], turned by the position of each row, packed in host memory. Rows at -1, or all without positions, are copied.
func (t turner) all(x *attn.Tensor, at []int32, dt attn.DType) attn.Tensor {
	out := attn.Of(dt, x.Shape[0], x.Shape[1], x.Shape[2])
	if out.Len() == 0 {
		return out
	}
	out.Ptr = driver.Memory(make([]byte, out.Bytes()))
	row := make([]float64, x.Shape[2])
	for n := range x.Shape[0] * x.Shape[1] {
		token, head := n/x.Shape[1], n%x.Shape[1]
		for i := range row {
			row[i] = get(x, token*x.Stride[0]+head*x.Stride[1]+i)
		}
		for i, turns := range t.turns {
			a, b := i, i+len(t.turns)
			if t.adjacent {
				a, b = 2*i, 2*i+1
			}
			if t.factors != nil {
				turns /= float64(t.factors[i])
			}
			if at != nil && at[token] >= 0 {
				sin, cos := math.Sincos(2 * math.Pi * turns * float64(at[token]))
				row[a], row[b] = row[a]*cos-row[b]*sin, row[a]*sin+row[b]*cos
			}
		}
		for i := range row {
			set(&out, n*len(row)+i, row[i])
		}
	}
	return out
}

// refRoPE computes, for the call's frequencies are in the struct.
func refRoPE(k *kernel, v view, l *fakecuda.Launch) error {
	p := fakecuda.As[ropeParams](l)
	n, h, d := int(p.Tokens), int(p.Heads), int(p.HeadDim)
	at := fakecuda.On[int32](v.m, uint64(p.Positions), n)
	for t, pos := range at {
		if pos < -1 {
			report(v, p.Fault, fault{faultPosition, p.Op, int64(t), int64(pos), math.MaxInt32})
			return nil
		}
	}
	x := v.strided(p.X, k.A, []int{n, h, d}, p.XToken, p.XHead, 1)
	out := v.turner(p.Turns[:p.Rotary/2], p.Factors, p.Adjacent).all(&x, at, k.A)
	copy(v.m.Bytes(uint64(p.Out), out.Bytes()), driver.Host(out.Ptr, out.Bytes()))
	return nil
}

func get(t *attn.Tensor, offset int) float64 {
	b := driver.Host(t.At(offset), t.DType.Size())
	switch t.DType {
	case attn.F16:
		return float64(half.F16(binary.LittleEndian.Uint16(b)).Float32())
	case attn.BF16:
		return float64(half.BF16(binary.LittleEndian.Uint16(b)).Float32())
	}
	return float64(math.Float32frombits(binary.LittleEndian.Uint32(b)))
}

func set(t *attn.Tensor, offset int, x float64) {
	b := driver.Host(t.At(offset), t.DType.Size())
	switch t.DType {
	case attn.F16:
		binary.LittleEndian.PutUint16(b, uint16(half.F16FromFloat32(float32(x))))
	case attn.BF16:
		binary.LittleEndian.PutUint16(b, uint16(half.BF16FromFloat32(float32(x))))
	default:
		binary.LittleEndian.PutUint32(b, math.Float32bits(float32(x)))
	}
}
