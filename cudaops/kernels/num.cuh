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

// exponent is the mask of a 16-bit type's exponent field: all ones there mean infinity or NaN.
template <class T>
struct Exponent;
template <>
struct Exponent<f16> {
  static constexpr uint32_t mask = 0x7c00;
};
template <>
struct Exponent<bf16> {
  static constexpr uint32_t mask = 0x7f80;
};

// nonfinite tells whether either half of a word is an infinity or a NaN.
template <class T>
__device__ __forceinline__ bool nonfinite(uint32_t pair) {
  constexpr uint32_t m = Exponent<T>::mask;
  return (pair & m) == m || (pair >> 16 & m) == m;
}

}  // namespace gaze
