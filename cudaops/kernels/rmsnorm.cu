// Root-mean-square normalisation with the residual add before it: r = x + residual, out = r / sqrt(mean(r²) + eps) · weight, sum = r. A
// block does a row at a time and reads it twice; the second time it comes from the cache.
#include "kernel.cuh"

namespace gaze {

template <int N, class T>
__device__ __forceinline__ void load_sum(float (&r)[N], const T *x, const T *residual, int64_t i) {
  const Vec<T, N> a = *reinterpret_cast<const Vec<T, N> *>(x + i);
#pragma unroll
  for (int k = 0; k < N; k++) r[k] = to_f32(a.x[k]);
  if (residual != nullptr) {
    const Vec<T, N> b = *reinterpret_cast<const Vec<T, N> *>(residual + i);
#pragma unroll
    for (int k = 0; k < N; k++) r[k] += to_f32(b.x[k]);
  }
}

// store writes a vector at once; the compiler would split a plain assignment that another branch makes by elements.
template <class T, int N>
__device__ __forceinline__ void store(void *to, int64_t at, const Vec<T, N> &x) {
  T *out = static_cast<T *>(to) + at;
  if constexpr (sizeof(x) == 16) {
    __stcg(reinterpret_cast<uint4 *>(out), *reinterpret_cast<const uint4 *>(&x));
  } else {
    *reinterpret_cast<Vec<T, N> *>(out) = x;
  }
}

template <class T, int N>
__device__ __forceinline__ void norm_rows(const RMSNormParams &p, float *partial) {
  const int warps = blockDim.x / 32, columns = p.columns;
  for (int64_t row = blockIdx.x; row < p.rows; row += gridDim.x) {
    const T *x = static_cast<const T *>(p.x) + row * p.x_row;
    const T *residual = p.residual != nullptr ? static_cast<const T *>(p.residual) + row * p.residual_row : nullptr;
    float square = 0;
    for (int i = threadIdx.x * N; i < columns; i += blockDim.x * N) {
      float r[N];
      load_sum<N>(r, x, residual, i);
#pragma unroll
      for (int k = 0; k < N; k++) square += r[k] * r[k];
    }
    square = warp_sum(square);
    __syncthreads();
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = square;
    __syncthreads();
    float total = 0;
    for (int w = 0; w < warps; w++) total += partial[w];
    const float scale = 1.0f / sqrtf(total / (float)columns + p.eps);
    for (int i = threadIdx.x * N; i < columns; i += blockDim.x * N) {
      float r[N];
      load_sum<N>(r, x, residual, i);
      Vec<float, N> w;
      if (p.weight_f32) {
        w = *reinterpret_cast<const Vec<float, N> *>(static_cast<const float *>(p.weight) + i);
      } else {
        const Vec<T, N> x = *reinterpret_cast<const Vec<T, N> *>(static_cast<const T *>(p.weight) + i);
#pragma unroll
        for (int k = 0; k < N; k++) w.x[k] = to_f32(x.x[k]);
      }
      Vec<T, N> out, sum;
#pragma unroll
      for (int k = 0; k < N; k++) {
        sum.x[k] = from_f32<T>(r[k]);
        out.x[k] = from_f32<T>(r[k] * scale * w.x[k]);
      }
      if (p.sum != nullptr) store(p.sum, row * columns + i, sum);
      store(p.out, row * columns + i, out);
    }
  }
}

template <class T>
__device__ __forceinline__ void rmsnorm(const RMSNormParams &p) {
  constexpr int N = 16 / sizeof(T);
  STATIC_SHARED(smem, 128);
  grid_wait();
  grid_launch_next();
  const bool wide = aligned16(p.x) && aligned16(p.residual) && aligned16(p.weight) && aligned16(p.out) && aligned16(p.sum) &&
                    p.columns % N == 0 && p.x_row % N == 0 && p.residual_row % N == 0;
  if (wide) {
    norm_rows<T, N>(p, reinterpret_cast<float *>(smem));
  } else {
    norm_rows<T, 1>(p, reinterpret_cast<float *>(smem));
  }
}

}  // namespace gaze

KERNEL(rmsnorm_f32, RMSNormParams, 256, 1) { gaze::rmsnorm<float>(p); }
KERNEL(rmsnorm_f16, RMSNormParams, 256, 1) { gaze::rmsnorm<gaze::f16>(p); }
KERNEL(rmsnorm_bf16, RMSNormParams, 256, 1) { gaze::rmsnorm<gaze::bf16>(p); }
