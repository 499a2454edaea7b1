// Rotary embedding of rows by one warp. Angles are counted in turns in float64, since position · frequency loses too much in f32.
#pragma once
#include "kernel.cuh"

namespace gaze {

// Rotation holds the cosines and sines of a row's pairs, pair lane + 32·j in element j.
struct Rotation {
  static constexpr int kEach = 8;  // up to 512 rotary elements
  float cos[kEach], sin[kEach];
  int pairs;

  __device__ __forceinline__ void at(int position, const double *turns, const float *factors, int rotary) {
    pairs = rotary / 2;
#pragma unroll
    for (int j = 0; j < kEach; j++) {
      const int i = threadIdx.x % 32 + 32 * j;
      if (i >= pairs) break;
      double x = turns[i];
      if (factors != nullptr) x /= (double)factors[i];
      x *= position;
      x -= floor(x);
      sincospif(2.0f * (float)x, &sin[j], &cos[j]);
    }
  }
};

// heads_each is how many heads of a token a warp does: the more the better, since they share its sines, as long as every warp of the
// grid has some.
__device__ __forceinline__ int heads_each(int64_t tokens, int heads) {
  const int64_t warps = (int64_t)gridDim.x * (blockDim.x / 32);
  return (int)min(max(tokens * heads / warps, (int64_t)1), (int64_t)8);
}

// Plain and Scaled say how a value is stored.
template <class To>
struct Plain {
  __device__ __forceinline__ To operator()(float x) const { return from_f32<To>(x); }
};
struct Scaled {
  float scale;
  __device__ __forceinline__ e4m3 operator()(float x) const { return from_f32<e4m3>(x / scale); }
};

// copy_row stores elements [from, n) of a row, by one warp.
template <class T, class To, class Store>
__device__ __forceinline__ void copy_row(To *out, const T *x, int from, int n, Store store) {
  const int lane = threadIdx.x % 32;
  constexpr int kWide = 4;
  if (((from | n) & (kWide - 1)) == 0 && (reinterpret_cast<uintptr_t>(x) & (kWide * sizeof(T) - 1)) == 0 &&
      (reinterpret_cast<uintptr_t>(out) & (kWide * sizeof(To) - 1)) == 0) {
    for (int i = from + lane * kWide; i < n; i += 32 * kWide) {
      const Vec<T, kWide> a = *reinterpret_cast<const Vec<T, kWide> *>(x + i);
      Vec<To, kWide> b;
#pragma unroll
      for (int k = 0; k < kWide; k++) b.x[k] = store(to_f32(a.x[k]));
      *reinterpret_cast<Vec<To, kWide> *>(out + i) = b;
    }
  } else {
    for (int i = from + lane; i < n; i += 32) out[i] = store(to_f32(x[i]));
  }
}

// zero_row is what becomes of a row whose values may not be followed.
template <class To>
__device__ __forceinline__ void zero_row(To *out, int n) {
  for (int i = threadIdx.x % 32; i < n; i += 32) out[i] = from_f32<To>(0.0f);
}

// rotate_row stores a row with its first 2·pairs elements turned. out may be x.
template <class T, class To, class Store>
__device__ __forceinline__ void rotate_row(To *out, const T *x, int n, const Rotation &r, bool adjacent, Store store) {
#pragma unroll
  for (int j = 0; j < Rotation::kEach; j++) {
    const int i = threadIdx.x % 32 + 32 * j;
    if (i >= r.pairs) break;
    const int a = adjacent ? 2 * i : i, b = adjacent ? 2 * i + 1 : i + r.pairs;
    const float u = to_f32(x[a]), v = to_f32(x[b]);
    out[a] = store(u * r.cos[j] - v * r.sin[j]);
    out[b] = store(u * r.sin[j] + v * r.cos[j]);
  }
  copy_row(out, x, 2 * r.pairs, n, store);
}

}  // namespace gaze
