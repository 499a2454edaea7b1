// Copies to another dtype, rounded to nearest even; e4m3 saturates at ±448.
#include "kernel.cuh"

namespace gaze {

template <class T, class To>
__device__ __forceinline__ void cast(const CastParams &p) {
  constexpr int N = 16 / sizeof(T);
  grid_wait();
  grid_launch_next();
  const T *x = static_cast<const T *>(p.x);
  To *out = static_cast<To *>(p.out);
  const int64_t first = (int64_t)blockIdx.x * blockDim.x + threadIdx.x, step = (int64_t)gridDim.x * blockDim.x;
  const int64_t vectors = aligned16(x) && aligned16(out) ? p.n / N : 0;
  for (int64_t i = first; i < vectors; i += step) {
    const Vec<T, N> a = reinterpret_cast<const Vec<T, N> *>(x)[i];
    Vec<To, N> b;
#pragma unroll
    for (int k = 0; k < N; k++) b.x[k] = from_f32<To>(to_f32(a.x[k]));
    reinterpret_cast<Vec<To, N> *>(out)[i] = b;
  }
  for (int64_t i = vectors * N + first; i < p.n; i += step) out[i] = from_f32<To>(to_f32(x[i]));
}

}  // namespace gaze

KERNEL(cast_f32_f32, CastParams, 256, 1) { gaze::cast<float, float>(p); }
KERNEL(cast_f32_f16, CastParams, 256, 1) { gaze::cast<float, gaze::f16>(p); }
KERNEL(cast_f32_bf16, CastParams, 256, 1) { gaze::cast<float, gaze::bf16>(p); }
KERNEL(cast_f32_e4m3, CastParams, 256, 1) { gaze::cast<float, gaze::e4m3>(p); }
KERNEL(cast_f16_f32, CastParams, 256, 1) { gaze::cast<gaze::f16, float>(p); }
KERNEL(cast_f16_f16, CastParams, 256, 1) { gaze::cast<gaze::f16, gaze::f16>(p); }
KERNEL(cast_f16_bf16, CastParams, 256, 1) { gaze::cast<gaze::f16, gaze::bf16>(p); }
KERNEL(cast_f16_e4m3, CastParams, 256, 1) { gaze::cast<gaze::f16, gaze::e4m3>(p); }
KERNEL(cast_bf16_f32, CastParams, 256, 1) { gaze::cast<gaze::bf16, float>(p); }
KERNEL(cast_bf16_f16, CastParams, 256, 1) { gaze::cast<gaze::bf16, gaze::f16>(p); }
KERNEL(cast_bf16_bf16, CastParams, 256, 1) { gaze::cast<gaze::bf16, gaze::bf16>(p); }
KERNEL(cast_bf16_e4m3, CastParams, 256, 1) { gaze::cast<gaze::bf16, gaze::e4m3>(p); }
KERNEL(cast_e4m3_f32, CastParams, 256, 1) { gaze::cast<gaze::e4m3, float>(p); }
KERNEL(cast_e4m3_f16, CastParams, 256, 1) { gaze::cast<gaze::e4m3, gaze::f16>(p); }
KERNEL(cast_e4m3_bf16, CastParams, 256, 1) { gaze::cast<gaze::e4m3, gaze::bf16>(p); }
KERNEL(cast_e4m3_e4m3, CastParams, 256, 1) { gaze::cast<gaze::e4m3, gaze::e4m3>(p); }
