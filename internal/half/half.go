// Package half holds the short floating-point formats of attention tensors and their conversions from and to float32: IEEE
// binary16 ([F16]), bfloat16 ([BF16]), the 8-bit float8_e4m3fn ([E4M3]) and the 4-bit e2m1 ([E2M1]).
//
// All conversions from float32 round to nearest, ties to even. The functions over slices run in AVX-512 or AVX2 where
// [simd.Active] says so; every version gives the same bits, but for the payload of a NaN.
package half

import (
	"math"

	"github.com/x448/float16"
)

// F16 is IEEE 754 binary16: 5 exponent and 10 mantissa bits. Its Float32 method and [float16.Fromfloat32] convert.
type F16 = float16.Float16

// F16FromFloat32 converts f. Values beyond ±65504 by at least half a step become ±Inf.
func F16FromFloat32(f float32) F16 { return float16.Fromfloat32(f) }

// BF16 is bfloat16: the upper half of a float32.
type BF16 uint16

// BF16FromFloat32 converts f. NaN stays NaN (made quiet, so that cutting its payload cannot make it an infinity).
func BF16FromFloat32(f float32) BF16 {
	b := math.Float32bits(f)
	if f != f {
		return BF16(b>>16 | 0x40)
	}
	return BF16((b + 0x7fff + b>>16&1) >> 16)
}

// Float32 returns the value of b, exactly.
func (b BF16) Float32() float32 { return math.Float32frombits(uint32(b) << 16) }

// E4M3 is float8_e4m3fn of the OCP 8-bit floating point specification: 4 exponent bits of bias 7 and 3 mantissa bits, no infinities,
// NaN at 0x7f and 0xff, largest value 448, smallest 2⁻⁹.
type E4M3 uint8

// MaxE4M3 is the largest finite E4M3.
const MaxE4M3 = 448

// E4M3FromFloat32 converts f, saturating: what lies beyond ±448, infinities too, becomes ±448. NaN stays NaN.
func E4M3FromFloat32(f float32) E4M3 {
	const (
		rebias    = (127 - 7) << 23 // float32 to e4m3 exponents
		subnormal = 1.0 / (1 << 6)  // below it the step is 2⁻⁹
		magic     = 1 << (23 - 9)   // a float32 whose unit in the last place is 2⁻⁹: adding it rounds to that step
	)
	sign := E4M3(math.Float32bits(f) >> 24 & 0x80)
	a := float32(math.Abs(float64(f)))
	switch {
	case f != f:
		return sign | 0x7f
	case a >= MaxE4M3:
		return sign | 0x7e
	case a < subnormal:
		return sign | E4M3(math.Float32bits(a+magic)-math.Float32bits(magic))
	}
	b := math.Float32bits(a) - rebias
	return sign | E4M3((b+0x7ffff+b>>20&1)>>20)
}

// Float32 returns the value of e, exactly.
func (e E4M3) Float32() float32 { return e4m3Values[e] }

var e4m3Values = func() (values [256]float32) {
	for code := range values {
		mantissa, exponent := code&7, code>>3&15
		v := float32(math.NaN())
		switch {
		case code&0x7f == 0x7f:
		case exponent == 0:
			v = float32(math.Ldexp(float64(mantissa), -9))
		default:
			v = float32(math.Ldexp(float64(8+mantissa), exponent-10))
		}
		if code >= 0x80 {
			v = -v
		}
		values[code] = v
	}
	return values
}()

// E2M1 is the 4-bit float of the OCP microscaling specification, in the low half of a byte: a sign, 2 exponent bits of bias 1 and 1
// mantissa bit; ±{0, 0.5, 1, 1.5, 2, 3, 4, 6}, nothing else.
type E2M1 uint8

// MaxE2M1 is the largest E2M1.
const MaxE2M1 = 6

// E2M1FromFloat32 converts f, saturating at ±6. The format has no NaN; like the CUDA conversion, NaN gives +6.
func E2M1FromFloat32(f float32) E2M1 {
	sign := E2M1(math.Float32bits(f) >> 28 & 8)
	switch a := math.Abs(float64(f)); { // the bounds are half-way values; each belongs to its neighbour of even code
	case f != f:
		return 7
	case a <= 0.25:
		return sign
	case a < 0.75:
		return sign | 1
	case a <= 1.25:
		return sign | 2
	case a < 1.75:
		return sign | 3
	case a <= 2.5:
		return sign | 4
	case a < 3.5:
		return sign | 5
	case a <= 5:
		return sign | 6
	}
	return sign | 7
}

// Float32 returns the value of the low four bits of e, exactly.
func (e E2M1) Float32() float32 { return e2m1Values[e&15] }

var e2m1Values = [16]float32{0, 0.5, 1, 1.5, 2, 3, 4, 6, float32(math.Copysign(0, -1)), -0.5, -1, -1.5, -2, -3, -4, -6}
