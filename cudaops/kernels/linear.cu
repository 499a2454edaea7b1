#include "linear.cuh"

namespace gaze {

template <class T>
__device__ __forceinline__ void gemm(const LinearParams &p) {
  STATIC_SHARED(smem, Gemm<T>::kBytes);
  grid_wait();
  grid_launch_next();
  Gemm<T>::run(p, smem);
}

__device__ __forceinline__ void gemm_single(const LinearParams &p) {
  STATIC_SHARED(smem, 4 * 8 * (64 + 128));
  grid_wait();
  grid_launch_next();
  const float *x = static_cast<const float *>(p.x), *w = static_cast<const float *>(p.weight);
  sgemm<8, 16, 8, 8>(
      reinterpret_cast<float *>(smem), (int64_t)blockIdx.y * 64, (int64_t)blockIdx.x * 128, p.in,
      [&](int64_t r, int64_t k) { return r < p.rows && k < p.in ? x[r * p.x_row + k] : 0.0f; },
      [&](int64_t k, int64_t o) { return o < p.out_dim && k < p.in ? w[o * p.weight_row + k] : 0.0f; },
      [&](int64_t r, int64_t o, float y) {
        if (r < p.rows && o < p.out_dim) static_cast<float *>(p.out)[r * p.out_dim + o] = y + bias_of<float>(p, (int)o);
      });
}

}  // namespace gaze

KERNEL(gemv_f32, LinearParams, 256, 1) { gaze::gemv<float>(p); }
KERNEL(gemv_f16, LinearParams, 256, 1) { gaze::gemv<gaze::f16>(p); }
KERNEL(gemv_bf16, LinearParams, 256, 1) { gaze::gemv<gaze::bf16>(p); }
KERNEL(gemm_f32, LinearParams, 128, 1) { gaze::gemm_single(p); }
KERNEL(gemm_f16, LinearParams, 128, 1) { gaze::gemm<gaze::f16>(p); }
KERNEL(gemm_bf16, LinearParams, 128, 1) { gaze::gemm<gaze::bf16>(p); }
