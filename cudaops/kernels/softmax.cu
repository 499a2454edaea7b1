// Probabilities of each row of logits. A block a row; the row is read twice, for the sum and for the quotients.
#include "kernel.cuh"

namespace gaze {

// Exps is a sum of exponentials, relative to the largest of their logits: s = Σ exp2((x - m)·scale). NaN and +inf make s NaN.
struct Exps {
  float m, s;

  // base is what logits are taken relative to: m, or 0 while there is nothing but -inf.
  __device__ __forceinline__ float base() const { return m == -GAZE_INF ? 0.0f : m; }

  __device__ __forceinline__ void add(float other_m, float other_s, float scale) {
    const float old = m;
    m = fmaxf(m, other_m);
    s = s * exp2_approx((old - base()) * scale) + other_s * exp2_approx((other_m - base()) * scale);
  }
};

template <class T, int N>
__device__ __forceinline__ Exps sum_of(const T *row, int64_t n, float scale) {
  Exps sum = {-GAZE_INF, 0};
  for (int64_t i = (int64_t)threadIdx.x * N; i < n; i += (int64_t)blockDim.x * N) {
    const Vec<T, N> v = *reinterpret_cast<const Vec<T, N> *>(row + i);
    Exps part = {-GAZE_INF, 0};
#pragma unroll
    for (int k = 0; k < N; k++) part.m = fmaxf(part.m, to_f32(v.x[k]));
#pragma unroll
    for (int k = 0; k < N; k++) part.s += exp2_approx((to_f32(v.x[k]) - part.base()) * scale);
    sum.add(part.m, part.s, scale);
  }
  return sum;
}

template <class T, int N>
__device__ __forceinline__ void divide(float *out, const T *row, int64_t n, Exps sum, float scale) {
  const float one = sum.s > 0 ? 1 / sum.s : sum.s;  // a row without a token is 0, NaN stays
  for (int64_t i = (int64_t)threadIdx.x * N; i < n; i += (int64_t)blockDim.x * N) {
    const Vec<T, N> v = *reinterpret_cast<const Vec<T, N> *>(row + i);
    Vec<float, N> p;
#pragma unroll
    for (int k = 0; k < N; k++) p.x[k] = exp2_approx((to_f32(v.x[k]) - sum.base()) * scale) * one;
    *reinterpret_cast<Vec<float, N> *>(out + i) = p;
  }
}

template <class T>
__device__ __forceinline__ void softmax(const SoftmaxParams &p) {
  constexpr int N = 16 / sizeof(T);
  STATIC_SHARED(smem, 32 * sizeof(Exps));
  Exps *partial = reinterpret_cast<Exps *>(smem);
  grid_wait();
  grid_launch_next();
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
  for (int64_t r = blockIdx.x; r < p.rows; r += gridDim.x) {
    const T *row = static_cast<const T *>(p.logits) + r * p.logits_row;
    float *out = p.out + r * p.columns;
    const bool wide = aligned16(row) && aligned16(out) && p.columns % N == 0;
    Exps sum = wide ? sum_of<T, N>(row, p.columns, p.scale) : sum_of<T, 1>(row, p.columns, p.scale);
#pragma unroll
    for (int d = 16; d > 0; d /= 2) sum.add(__shfl_xor_sync(~0u, sum.m, d), __shfl_xor_sync(~0u, sum.s, d), p.scale);
    __syncthreads();
    if (lane == 0) partial[warp] = sum;
    __syncthreads();
    sum = partial[0];
    for (int w = 1; w < warps; w++) sum.add(partial[w].m, partial[w].s, p.scale);
    if (wide) {
      divide<T, N>(out, row, p.columns, sum, p.scale);
    } else {
      divide<T, 1>(out, row, p.columns, sum, p.scale);
    }
  }
}

}  // namespace gaze

KERNEL(softmax_f32, SoftmaxParams, 1024, 1) { gaze::softmax<float>(p); }
KERNEL(softmax_f16, SoftmaxParams, 1024, 1) { gaze::softmax<gaze::f16>(p); }
KERNEL(softmax_bf16, SoftmaxParams, 1024, 1) { gaze::softmax<gaze::bf16>(p); }
