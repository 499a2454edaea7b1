package cpu

import (
	"math"

	"github.com/gaze-ml/gaze/internal/attn"
	"github.com/gaze-ml/gaze/internal/half"
	"github.com/gaze-ml/gaze/internal/simd"
)

// emit writes a finished tile's rows: out = c2·o/l and LSE = m + ln l, with the sink as one more key without a value. Where all scores are
// -Inf that is NaN, unless a finite sink takes all the weight; a row without a key is 0.
func (f *flash) emit(a *attention, r *request, t *tile, head int) {
	heads := a.kvHeads * a.group
	for i := range t.tokens {
		token := t.first + i
		for g := range a.group {
			row, h := i*a.group+g, head*a.group+g
			o := f.o[row*f.dvo:][:f.dvo]
			m, l := float64(f.m[row])*float64(f.factor), float64(f.l[row])
			sink := math.Inf(-1)
			if a.sinks.Valid() {
				sink = float64(*(*float32)(a.sinks.At(h)))
			}
			var lse float64
			if math.IsInf(m, -1) && !a.seesAny(t.request, r, token) {
				clear(o)
				lse = sink
				if math.IsNaN(sink) || math.IsInf(sink, 1) {
					lse = math.Inf(-1)
				}
			} else {
				top := max(m, sink)
				w := math.Exp(m - top)
				l = l*w + math.Exp(sink-top)
				simd.Scale(float32(float64(a.c2)*w/l), o)
				lse = top + math.Log(l)
			}
			a.writeRow(r, token, h, heads, o)
			at := r.lse + token*heads + h
			if a.lse.Valid() {
				*(*float32)(a.lse.At(at)) = float32(lse)
			}
			if a.lse2.Valid() {
				*(*float32)(a.lse2.At(at)) = float32(lse * math.Log2E)
			}
		}
	}
}

// writeRow rounds one row of the output to its dtype.
func (a *attention) writeRow(r *request, token, h, heads int, o []float32) {
	at := r.out + (token*heads+h)*a.dvo
	if a.out.DType == attn.U8 {
		a.writeNVFP4(at, h, o)
		return
	}
	store(a.out.At(at), a.out.DType, o)
}

// writeNVFP4 quantises one row in blocks of 16: scale = e4m3(o_sf_scale·max|x|/6), code = e2m1(x·o_sf_scale/scale), a block of
// zeros has scale 0. at is the row's offset in elements.
func (a *attention) writeNVFP4(at, h int, o []float32) {
	codes := slice[uint8](a.out.At(at/2), len(o)/2)
	columns := a.outScale.Shape[1]
	scales := slice[uint8](a.outScale.Ptr, a.outScale.Len())
	row := a.scaleRow + at/(a.kvHeads*a.group*a.dvo)
	for b := 0; b < len(o); b += 16 {
		x := o[b : b+16]
		var top float32
		for _, v := range x {
			top = max(top, float32(math.Abs(float64(v)))) // NaN stays
		}
		sf := half.E4M3FromFloat32(a.encode * top / half.MaxE2M1)
		scales[swizzle(row, (h*a.dvo+b)/16, columns)] = uint8(sf)
		s := sf.Float32()
		for i := 0; i < 16; i += 2 {
			codes[(b+i)/2] = code(x[i]*a.encode, s) | code(x[i+1]*a.encode, s)<<4
		}
	}
}

func code(x, scale float32) uint8 {
	if scale == 0 {
		return 0
	}
	return uint8(half.E2M1FromFloat32(x / scale))
}

// swizzle is the byte of the scale of (row, column) in the 128×4 layout that NVIDIA's block-scaled matrix instructions read:
// tiles of 128 rows by 4 columns, in them rows r, r+32, r+64, r+96 side by side.
func swizzle(row, column, columns int) int {
	return (row/128*(columns/4)+column/4)*512 + row%32*16 + row%128/32*4 + column%4
}
