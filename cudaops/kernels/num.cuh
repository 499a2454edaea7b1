// The element types: f32, f16, bf16 and e4m3, and how they become f32 and 16-bit pairs.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <stdint.h>

namespace gaze {

typedef __half f16;
typedef __nv_bfloat16 bf16;
struct e4m3 {
  uint8_t bits;
};

__device__ __forceinline__ float to_f32(float x) { return x; }
__device__ __forceinline__ float to_f32(f16 x) { return __half2float(x); }
__device__ __forceinline__ float to_f32(bf16 x) { return __bfloat162float(x); }
__device__ __forceinline__ float to_f32(e4m3 x) {
  return __half2float(__half(__nv_cvt_fp8_to_halfraw(x.bits, __NV_E4M3)));
}

template <class T>
__device__ __forceinline__ T from_f32(float x);
template <>
__device__ __forceinline__ float from_f32<float>(float x) {
  return x;
}
template <>
__device__ __forceinline__ f16 from_f32<f16>(float x) {
  return __float2half_rn(x);
}
template <>
__device__ __forceinline__ bf16 from_f32<bf16>(float x) {
  return __float2bfloat16_rn(x);
}
template <>
__device__ __forceinline__ e4m3 from_f32<e4m3>(float x) {
  return e4m3{__nv_cvt_float_to_fp8(x, __NV_SATFINITE, __NV_E4M3)};
}

// pack gives two neighbours in one word, the first in the low half.
template <class T>
__device__ __forceinline__ uint32_t pack(float lo, float hi);
template <>
__device__ __forceinline__ uint32_t pack<f16>(float lo, float hi) {
  __half2 h = __floats2half2_rn(lo, hi);
  return *reinterpret_cast<uint32_t *>(&h);
}
template <>
__device__ __forceinline__ uint32_t pack<bf16>(float lo, float hi) {
  __nv_bfloat162 h = __floats2bfloat162_rn(lo, hi);
  return *reinterpret_cast<uint32_t *>(&h);
}

template <class T>
__device__ __forceinline__ float2 unpack(uint32_t x);
template <>
__device__ __forceinline__ float2 unpack<f16>(uint32_t x) {
  return __half22float2(*reinterpret_cast<__half2 *>(&x));
}
template <>
__device__ __forceinline__ float2 unpack<bf16>(uint32_t x) {
  return __bfloat1622float2(*reinterpret_cast<__nv_bfloat162 *>(&x));
}

// widen_e4m3_by_bits gives the two e4m3 of a word's low half as a pair of f16, exactly: the bits shifted into place are 2⁻⁸ times the
// value, denormals too, and 480, which 0x7f becomes, is made a NaN.
__device__ __forceinline__ uint32_t widen_e4m3_by_bits(uint32_t x) {
  const uint32_t apart = (x & 0xff) << 8 | (x & 0xff00) << 16, magnitude = (apart & 0x7f007f00) >> 1;
  const uint32_t nan = (magnitude + 0x00800080) & 0x40004000, scale = 0x5c005c00;  // 256
  const __half2 y = __hmul2(*reinterpret_cast<const __half2 *>(&magnitude), *reinterpret_cast<const __half2 *>(&scale));
  return *reinterpret_cast<const uint32_t *>(&y) | nan >> 1 | (apart & 0x80008000);
}

// narrow_e4m3 rounds two neighbours to e4m3, the first in the low byte: to nearest even, beyond ±448 that, NaN stays NaN.
__device__ __forceinline__ uint16_t narrow_e4m3(float lo, float hi) {
  return __nv_cvt_float2_to_fp8x2(make_float2(lo, hi), __NV_SATFINITE, __NV_E4M3);
}

// narrow_e2m1 rounds to e2m1, ±{0, 0.5, 1, 1.5, 2, 3, 4, 6} in four bits: to nearest even, beyond ±6 that, NaN to +6.
__device__ __forceinline__ uint32_t narrow_e2m1(float x) {
  const float a = fabsf(x);
  const uint32_t code = (a > 0.25f) + (a >= 0.75f) + (a > 1.25f) + (a >= 1.75f) + (a > 2.5f) + (a >= 3.5f) + (a > 5.0f);
  return x != x ? 7 : code | (__float_as_uint(x) >> 28 & 8);
}

// kExponentOne is the lowest bit of a 16-bit type's exponent field.
template <class T>
constexpr uint32_t kExponentOne = 0;
template <>
constexpr uint32_t kExponentOne<f16> = 0x0400;
template <>
constexpr uint32_t kExponentOne<bf16> = 0x0080;

// nonfinite tells whether any half of these words is an infinity or a NaN: all ones in the exponent, which one more carries into the sign.
template <class T, class... Words>
__device__ __forceinline__ bool nonfinite(Words... words) {
  return ((((words & 0x7fff7fffu) + kExponentOne<T> * 0x10001u) | ...) & 0x80008000u) != 0;
}

// The scale of scores is a positive factor of the products, and what else there is to it is done to q: a negative scale turns its signs, so
// that the largest score has the largest exponent; 0 makes it 0·q, beside a factor of 1, since a hidden key's -inf times 0 would be NaN.
__device__ __forceinline__ float factor_of(float scale) { return scale == 0 ? 1.0f : fabsf(scale); }

// kLift<T> lifts exponents of weights that become T: f16 ends at 2⁻²⁴, and many keys that weigh less than that beside the largest one add up.
template <class T>
constexpr float kLift = 0;
template <>
constexpr float kLift<f16> = 15;

// turned is what becomes of two 16-bit neighbours of q.
template <class T>
__device__ __forceinline__ uint32_t turned(uint32_t pair, float scale) {
  if (scale != 0) return scale < 0 ? pair ^ 0x80008000u : pair;
  return (nonfinite<T>(pair & 0xffffu) ? 0x7fffu : 0) | (nonfinite<T>(pair & 0xffff0000u) ? 0x7fff0000u : 0);
}
template <class T>
__device__ __forceinline__ uint4 turned(uint4 x, float scale) {
  return make_uint4(turned<T>(x.x, scale), turned<T>(x.y, scale), turned<T>(x.z, scale), turned<T>(x.w, scale));
}

}  // namespace gaze
