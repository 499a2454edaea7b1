// The gated activation of Llama's MLP: out = gate / (1 + exp(-gate)) · up.
#include "kernel.cuh"

namespace gaze {

template <class T, int N>
__device__ __forceinline__ void silu_rows(const SiLUMulParams &p) {
  const int64_t each = p.columns / N;
  const int64_t step = (int64_t)gridDim.x * blockDim.x;
  for (int64_t e = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; e < p.rows * each; e += step) {
    const int64_t row = e / each, i = e % each * N;
    const Vec<T, N> g = *reinterpret_cast<const Vec<T, N> *>(static_cast<const T *>(p.gate) + row * p.gate_row + i);
    const Vec<T, N> u = *reinterpret_cast<const Vec<T, N> *>(static_cast<const T *>(p.up) + row * p.up_row + i);
    Vec<T, N> out;
#pragma unroll
    for (int k = 0; k < N; k++) {
      const float x = to_f32(g.x[k]);
      out.x[k] = from_f32<T>(x / (1.0f + expf(-x)) * to_f32(u.x[k]));
    }
    *reinterpret_cast<Vec<T, N> *>(static_cast<T *>(p.out) + row * p.columns + i) = out;
  }
}

template <class T>
__device__ __forceinline__ void silu_mul(const SiLUMulParams &p) {
  constexpr int N = 16 / sizeof(T);
  grid_wait();
  grid_launch_next();
  if (aligned16(p.gate) && aligned16(p.up) && aligned16(p.out) && p.columns % N == 0 && p.gate_row % N == 0 && p.up_row % N == 0) {
    silu_rows<T, N>(p);
  } else {
    silu_rows<T, 1>(p);
  }
}

}  // namespace gaze

KERNEL(silu_mul_f32, SiLUMulParams, 256, 1) { gaze::silu_mul<float>(p); }
KERNEL(silu_mul_f16, SiLUMulParams, 256, 1) { gaze::silu_mul<gaze::f16>(p); }
KERNEL(silu_mul_bf16, SiLUMulParams, 256, 1) { gaze::silu_mul<gaze::bf16>(p); }
