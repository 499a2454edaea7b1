package half

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/gaze-ml/gaze/internal/simd"
)

const seed = 1

// layout is what defines a binary float format: the widths of its fields, and what it does beyond its largest value. value and
// encode derive the rest from it in float64, where every value and every half-way point of these formats is exact.
type layout struct {
	name               string
	exponent, mantissa int
	largest            float64 // the largest finite value
	infinite           bool    // has infinities; otherwise encoding saturates
	nan                bool    // has NaNs
}

var (
	f16  = layout{"f16", 5, 10, 65504, true, true}
	bf16 = layout{"bf16", 8, 7, math.MaxFloat32 - (1<<16-1)*0x1p104, true, true}
	e4m3 = layout{"e4m3", 4, 3, 448, false, true}
	e2m1 = layout{"e2m1", 2, 1, 6, false, false}
)

func (l layout) bits() int { return 1 + l.exponent + l.mantissa }

// value returns what code stands for.
func (l layout) value(code int) float64 {
	sign := 1.0
	if code>>(l.exponent+l.mantissa) != 0 {
		sign = -1
	}
	e, m, bias := code>>l.mantissa&(1<<l.exponent-1), code&(1<<l.mantissa-1), 1<<(l.exponent-1)-1
	v := math.Ldexp(float64(m)+math.Ldexp(1, l.mantissa), e-bias-l.mantissa)
	if e == 0 {
		v = math.Ldexp(float64(m), 1-bias-l.mantissa)
	}
	if v > l.largest {
		v = math.NaN()
		if l.infinite && m == 0 {
			v = math.Inf(1)
		}
	}
	return math.Copysign(v, sign)
}

// A format joins a layout with the conversions under test, one by one and in rows.
type format struct {
	layout
	decode    func(code int) float32
	encode    func(f float32) int
	decodeRow func(codes []int) []float32
	encodeRow func(f []float32) []int
}

func rows[T ~uint8 | ~uint16](decode func([]float32, []T), encode func([]T, []float32)) (func([]int) []float32, func([]float32) []int) {
	const guard = 16
	return func(codes []int) []float32 {
			src, dst := make([]T, len(codes)+3), make([]float32, len(codes)+2*guard)
			for i, c := range codes {
				src[3+i] = T(c) // unaligned
			}
			for i := range dst {
				dst[i] = -99
			}
			decode(dst[guard:guard+len(codes)], src[3:])
			for i := range guard {
				if dst[i] != -99 || dst[guard+len(codes)+i] != -99 {
					panic("wrote outside dst")
				}
			}
			return dst[guard:][:len(codes)]
		}, func(f []float32) []int {
			src, dst, codes := make([]float32, len(f)+1), make([]T, len(f)+2*guard), make([]int, len(f))
			copy(src[1:], f)
			for i := range dst {
				dst[i] = 0x55
			}
			encode(dst[guard:guard+len(f)], src[1:])
			for i := range guard {
				if dst[i] != 0x55 || dst[guard+len(f)+i] != 0x55 {
					panic("wrote outside dst")
				}
			}
			for i := range codes {
				codes[i] = int(dst[guard+i])
			}
			return codes
		}
}

func formats() []format {
	f := []format{
		{layout: f16, decode: func(c int) float32 { return F16(c).Float32() }, encode: func(f float32) int { return int(F16FromFloat32(f)) }},
		{layout: bf16, decode: func(c int) float32 { return BF16(c).Float32() }, encode: func(f float32) int { return int(BF16FromFloat32(f)) }},
		{layout: e4m3, decode: func(c int) float32 { return E4M3(c).Float32() }, encode: func(f float32) int { return int(E4M3FromFloat32(f)) }},
		{layout: e2m1, decode: func(c int) float32 { return E2M1(c).Float32() }, encode: func(f float32) int { return int(E2M1FromFloat32(f)) }},
	}
	f[0].decodeRow, f[0].encodeRow = rows(DecodeF16, EncodeF16)
	f[1].decodeRow, f[1].encodeRow = rows(DecodeBF16, EncodeBF16)
	f[2].decodeRow, f[2].encodeRow = rows(DecodeE4M3, EncodeE4M3)
	return f
}

func eachISA(t *testing.T, f func(t *testing.T)) {
	for _, isa := range simd.Available() {
		t.Run("isa="+isa.String(), func(t *testing.T) {
			defer simd.Use(isa)()
			f(t)
		})
	}
}

// same compares values: equal, signs of zero included, or both NaN.
func same(a, b float64) bool {
	return a == b && math.Signbit(a) == math.Signbit(b) || a != a && b != b
}

func TestDecode(t *testing.T) {
	eachISA(t, func(t *testing.T) {
		for _, f := range formats() {
			codes := make([]int, 1<<f.bits())
			for c := range codes {
				codes[c] = c
				if got, want := float64(f.decode(c)), f.value(c); !same(got, want) {
					t.Fatalf("%s: code %#x is %v, want %v", f.name, c, got, want)
				}
			}
			if f.decodeRow == nil {
				continue
			}
			for i, got := range f.decodeRow(codes) {
				if want := f.value(i); !same(float64(got), want) {
					t.Fatalf("%s: in a row: code %#x is %v, want %v", f.name, i, got, want)
				}
			}
		}
	})
}

// boundaries lists float32s with the code each must get: every value, every half-way point between neighbours, the float32s on
// both sides of it, and what lies beyond the largest value; with both signs.
func (l layout) boundaries() (in []float32, codes []int) {
	negative := 1 << (l.bits() - 1)
	add := func(f float64, code int) {
		for _, sign := range []float64{1, -1} {
			in, codes = append(in, float32(sign*f)), append(codes, code)
			code |= negative
		}
	}
	down := func(f float64) float64 { return float64(math.Nextafter32(float32(f), 0)) }
	up := func(f float64) float64 { return float64(math.Nextafter32(float32(f), float32(math.Inf(1)))) }
	top := 0
	for c := 0; l.value(c) <= l.largest && c < negative; c++ {
		v := l.value(c)
		add(v, c)
		top = c
		if c == 0 {
			continue
		}
		half := (l.value(c-1) + v) / 2
		add(half, c&^1)
		add(down(half), c-1)
		add(up(half), c)
	}
	beyond := top // the code of what is too large
	if l.infinite {
		beyond++
	}
	step := l.value(top) - l.value(top-1)
	half := l.largest + step/2
	add(down(half), top)
	if half <= math.MaxFloat32 {
		add(half, beyond) // a tie between an odd and an even code, or saturation
		add(up(half), beyond)
	}
	add(l.largest+step, beyond)
	add(math.MaxFloat32, beyond)
	add(math.Inf(1), beyond)
	add(math.SmallestNonzeroFloat32, 0)
	return in, codes
}

func TestEncodeRoundsToNearestEven(t *testing.T) {
	eachISA(t, func(t *testing.T) {
		for _, f := range formats() {
			in, want := f.boundaries()
			if len(in) < 5<<(f.bits()-2) {
				t.Fatalf("%s: only %d cases", f.name, len(in))
			}
			for i, x := range in {
				if got := f.encode(x); got != want[i] {
					t.Fatalf("%s: %v gets code %#x, want %#x", f.name, x, got, want[i])
				}
			}
			if f.encodeRow == nil {
				continue
			}
			for i, got := range f.encodeRow(in) {
				if got != want[i] {
					t.Fatalf("%s: in a row: %v gets code %#x, want %#x", f.name, in[i], got, want[i])
				}
			}
		}
	})
}

func TestEncodeNaN(t *testing.T) {
	nans := []float32{}
	for _, b := range []uint32{0x7f800001, 0x7f80ffff, 0x7fbfffff, 0x7fc00000, 0x7fffffff, 0xff800001, 0xffc00000, 0xffffffff} {
		nans = append(nans, math.Float32frombits(b))
	}
	row := append(append([]float32{}, nans...), nans...)
	eachISA(t, func(t *testing.T) {
		for _, f := range formats() {
			for _, x := range nans {
				switch got := f.encode(x); {
				case f.nan && !math.IsNaN(f.value(got)):
					t.Errorf("%s: NaN %#x becomes %v", f.name, math.Float32bits(x), f.value(got))
				case !f.nan && f.value(got) != f.largest:
					t.Errorf("%s: NaN becomes %v, want %v", f.name, f.value(got), f.largest)
				}
			}
			if f.encodeRow == nil {
				continue
			}
			for i, got := range f.encodeRow(row) {
				if !math.IsNaN(f.value(got)) {
					t.Errorf("%s: in a row: NaN %#x becomes %v", f.name, math.Float32bits(row[i]), f.value(got))
				}
			}
		}
	})
}

// Rows of every length, of any float32s, give the codes that single conversions give.
func TestRowsMatchSingleConversions(t *testing.T) {
	t.Logf("seed %d", seed)
	eachISA(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(seed, 0))
		for _, f := range formats() {
			if f.encodeRow == nil {
				continue
			}
			for n := range 80 {
				in, codes := make([]float32, n), make([]int, n)
				for i := range in {
					in[i] = math.Float32frombits(r.Uint32())
					if r.IntN(2) == 0 {
						in[i] = float32(r.NormFloat64()) * float32(math.Exp2(float64(r.IntN(24)-12)))
					}
					codes[i] = r.IntN(1 << f.bits())
				}
				for i, got := range f.encodeRow(in) {
					if want := f.encode(in[i]); got != want && in[i] == in[i] {
						t.Fatalf("%s: %v of %d: %v gets code %#x, want %#x", f.name, i, n, in[i], got, want)
					}
				}
				for i, got := range f.decodeRow(codes) {
					if want := f.decode(codes[i]); !same(float64(got), float64(want)) {
						t.Fatalf("%s: %v of %d: code %#x is %v, want %v", f.name, i, n, codes[i], got, want)
					}
				}
			}
		}
	})
}

func bench[T ~uint8 | ~uint16](b *testing.B, name string, decode func([]float32, []T), encode func([]T, []float32)) {
	const n = 128
	src, dst := make([]T, n), make([]float32, n)
	for i := range dst {
		dst[i] = float32(i) - 60.3
	}
	encode(src, dst)
	for _, isa := range simd.Available() {
		defer simd.Use(isa)()
		for dir, f := range map[string]func(){"decode": func() { decode(dst, src) }, "encode": func() { encode(src, dst) }} {
			b.Run(fmt.Sprintf("dtype=%s/op=%s/n=%d/isa=%v", name, dir, n, isa), func(b *testing.B) {
				b.SetBytes(n * int64(4+unsafe.Sizeof(src[0])))
				for b.Loop() {
					f()
				}
			})
		}
	}
}

func BenchmarkRows(b *testing.B) {
	bench(b, "f16", DecodeF16, EncodeF16)
	bench(b, "bf16", DecodeBF16, EncodeBF16)
	bench(b, "e4m3", DecodeE4M3, EncodeE4M3)
}
