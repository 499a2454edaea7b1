//go:build gpu && linux && amd64 && cgo

package hardware

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/gaze-ml/gaze/cudaops"
	"github.com/gaze-ml/gaze/cudaops/internal/driver"
	"github.com/gaze-ml/gaze/internal/attn"
	"github.com/gaze-ml/gaze/internal/half"
)

// device gives a tensor on the device with this content, or zeros.
func device(t testing.TB, rt *cudaops.Runtime, dt attn.DType, content []byte, shape ...int) attn.Tensor {
	t.Helper()
	x := attn.Of(dt, shape...)
	p, err := rt.Alloc(x.Bytes())
	must(t, err)
	if content != nil {
		must(t, rt.Write(p, content))
	}
	x.Ptr = p
	return x
}

// poison makes every byte of the memory 0xff: NaN in every float type, -1 as an integer. It fills on the device.
func poison(t testing.TB, rt *cudaops.Runtime, xs ...*attn.Tensor) {
	t.Helper()
	must(t, rt.Sync())
	ctx, err := driver.Open(rt.Properties().Ordinal)
	must(t, err)
	for _, x := range xs {
		must(t, ctx.Fill(driver.Of(x.Ptr), 0xff, x.Bytes()))
	}
	must(t, ctx.Sync(), ctx.Close())
}

// poisoned is a tensor on the device of nothing but NaN.
func poisoned(t testing.TB, rt *cudaops.Runtime, dt attn.DType, shape ...int) attn.Tensor {
	t.Helper()
	x := device(t, rt, dt, nil, shape...)
	poison(t, rt, &x)
	return x
}

// free gives memory back before the test ends.
func free(t testing.TB, rt *cudaops.Runtime, xs ...*attn.Tensor) {
	t.Helper()
	for _, x := range xs {
		must(t, rt.Free(x.Ptr))
	}
}

func read(t testing.TB, rt *cudaops.Runtime, x *attn.Tensor) []byte {
	t.Helper()
	b := make([]byte, x.Bytes())
	must(t, rt.Read(b, x.Ptr))
	return b
}

// recorded gives what replays a call; the recording is closed with the test.
func recorded(t testing.TB, rt *cudaops.Runtime, call func() error) func() error {
	t.Helper()
	rec, err := rt.Record(call)
	must(t, err)
	t.Cleanup(func() { must(t, rec.Close()) })
	return rec.Run
}

func int32s(v ...int32) []byte {
	b := make([]byte, 0, 4*len(v))
	for _, x := range v {
		b = binary.LittleEndian.AppendUint32(b, uint32(x))
	}
	return b
}

// packed is int32s of ints.
func packed(v []int) []byte {
	b := make([]byte, 0, 4*len(v))
	for _, x := range v {
		b = binary.LittleEndian.AppendUint32(b, uint32(x))
	}
	return b
}

func float32s(v ...float32) []byte {
	var b []byte
	for _, x := range v {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
	}
	return b
}

// encode gives n numbers in a dtype.
func encode(dt attn.DType, n int, at func(i int) float64) []byte {
	b := make([]byte, 0, n*dt.Size())
	for i := range n {
		switch x := float32(at(i)); dt {
		case attn.F16:
			b = binary.LittleEndian.AppendUint16(b, uint16(half.F16FromFloat32(x)))
		case attn.BF16:
			b = binary.LittleEndian.AppendUint16(b, uint16(half.BF16FromFloat32(x)))
		case attn.E4M3:
			b = append(b, byte(half.E4M3FromFloat32(x)))
		default:
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
		}
	}
	return b
}

// decoded is the number at the start of b.
func decoded(dt attn.DType, b []byte) float64 {
	switch dt {
	case attn.F16:
		return float64(half.F16(binary.LittleEndian.Uint16(b)).Float32())
	case attn.BF16:
		return float64(half.BF16(binary.LittleEndian.Uint16(b)).Float32())
	case attn.E4M3:
		return float64(half.E4M3(b[0]).Float32())
	}
	return float64(math.Float32frombits(binary.LittleEndian.Uint32(b)))
}

// random gives numbers below 1/2 in size.
func random(r *rand.Rand, dt attn.DType, n int) []byte {
	return encode(dt, n, func(int) float64 { return r.Float64() - 0.5 })
}

// supported skips, aloud, what this build has no kernel for.
func supported(t testing.TB, rt *cudaops.Runtime, c attn.Call) {
	t.Helper()
	if why := rt.Backend().Supports(c); why != nil {
		t.Skip(why)
	}
}

// checkMeans holds rows [rows, heads, dim], each element of a row the same, against what they should be, and LSEs where there are any.
func checkMeans(t *testing.T, dt attn.DType, out, lse []byte, rows, heads, dim int, want func(row, head int) (mean float64, keys int)) {
	t.Helper()
	bad := 0
	for i := range rows * heads {
		row := out[i*dim*dt.Size() : (i+1)*dim*dt.Size()]
		mean, keys := want(i/heads, i%heads)
		got, flat := decoded(dt, row), bytes.Equal(row[dt.Size():], row[:len(row)-dt.Size()])
		ok := flat && math.Abs(got-mean) <= (1+mean)/256 // bfloat16's rounding
		if lse != nil && ok {
			got, mean = decoded(attn.F32, lse[4*i:]), math.Log(float64(keys))
			ok = got == mean || math.Abs(got-mean) <= 1e-4
		}
		if !ok {
			if bad++; bad <= 5 {
				t.Errorf("row %d head %d: got %v, want %v of %d keys (all elements the same: %v)", i/heads, i%heads, got, mean, keys, flat)
			}
		}
	}
	if bad > 5 {
		t.Errorf("and %d more of %d", bad-5, rows*heads)
	}
}
