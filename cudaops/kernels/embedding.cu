// Gathers rows: out[t,:] = weight[ids[t],:]. A row whose id is outside [0,V) becomes 0.
#include "kernel.cuh"

namespace gaze {

template <class T, class To, int N>
__device__ __forceinline__ void gather(const EmbeddingParams &p) {
  const int64_t each = p.columns / N;
  const int64_t step = (int64_t)gridDim.x * blockDim.x;
  for (int64_t e = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; e < p.rows * each; e += step) {
    const int64_t row = e / each, i = e % each * N;
    const int id = p.ids[row];
    Vec<To, N> out;
    if (id >= 0 && id < p.vocab) {
      const Vec<T, N> x = *reinterpret_cast<const Vec<T, N> *>(static_cast<const T *>(p.weight) + id * p.weight_row + i);
#pragma unroll
      for (int k = 0; k < N; k++) out.x[k] = from_f32<To>(to_f32(x.x[k]));
    } else {
      if (i == 0) report(p.fault, p.op, FAULT_ID, row, id, p.vocab);
#pragma unroll
      for (int k = 0; k < N; k++) out.x[k] = from_f32<To>(0.0f);
    }
    *reinterpret_cast<Vec<To, N> *>(static_cast<To *>(p.out) + row * p.columns + i) = out;
  }
}

template <class T, class To>
__device__ __forceinline__ void embedding(const EmbeddingParams &p) {
  constexpr int N = 16 / sizeof(T);
  grid_wait();
  grid_launch_next();
  if (aligned16(p.weight) && aligned16(p.out) && p.columns % 8 == 0 && p.weight_row % N == 0) {
    gather<T, To, N>(p);
  } else {
    gather<T, To, 1>(p);
  }
}

}  // namespace gaze

KERNEL(embedding_f32_f32, EmbeddingParams, 256, 1) { gaze::embedding<float, float>(p); }
KERNEL(embedding_f32_f16, EmbeddingParams, 256, 1) { gaze::embedding<float, gaze::f16>(p); }
KERNEL(embedding_f32_bf16, EmbeddingParams, 256, 1) { gaze::embedding<float, gaze::bf16>(p); }
KERNEL(embedding_f16_f32, EmbeddingParams, 256, 1) { gaze::embedding<gaze::f16, float>(p); }
KERNEL(embedding_f16_f16, EmbeddingParams, 256, 1) { gaze::embedding<gaze::f16, gaze::f16>(p); }
KERNEL(embedding_f16_bf16, EmbeddingParams, 256, 1) { gaze::embedding<gaze::f16, gaze::bf16>(p); }
KERNEL(embedding_bf16_f32, EmbeddingParams, 256, 1) { gaze::embedding<gaze::bf16, float>(p); }
KERNEL(embedding_bf16_f16, EmbeddingParams, 256, 1) { gaze::embedding<gaze::bf16, gaze::f16>(p); }
KERNEL(embedding_bf16_bf16, EmbeddingParams, 256, 1) { gaze::embedding<gaze::bf16, gaze::bf16>(p); }
