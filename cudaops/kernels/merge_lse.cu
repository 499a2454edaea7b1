// Joins attention over two disjoint sets of keys: lse = ln(exp(a) + exp(b)), out = outA·exp(a-lse) + outB·exp(b-lse). A warp a head.
#include "kernel.cuh"

namespace gaze {

template <class T>
__device__ __forceinline__ void merge_lse(const MergeLSEParams &p) {
  grid_wait();
  grid_launch_next();
  const int lane = threadIdx.x % 32;
  const int64_t step = (int64_t)gridDim.x * (blockDim.x / 32);
  for (int64_t item = (int64_t)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32; item < p.tokens * p.heads; item += step) {
    const int64_t t = item / p.heads;
    const int h = (int)(item % p.heads);
    const float a = p.lse_a[t * p.lse_a_token + h], b = p.lse_b[t * p.lse_b_token + h];
    const float top = fmaxf(a, b), low = fminf(a, b);
    // Of infinities, only -inf is a state: no keys. A NaN on either side makes all NaN.
    float lse = top, wa = 0, wb = 0;
    if (a != a || b != b) {
      lse = wa = wb = a + b;
    } else if (top != -GAZE_INF) {
      lse = top + log1pf(expf(low - top));
      wa = expf(a - lse);
      wb = expf(b - lse);
    }
    const T *x = static_cast<const T *>(p.out_a) + t * p.a_token + h * p.a_head;
    const T *y = static_cast<const T *>(p.out_b) + t * p.b_token + h * p.b_head;
    T *out = static_cast<T *>(p.out) + item * p.head_dim;
    for (int d = lane; d < p.head_dim; d += 32) {
      const float u = wa == 0 ? 0.0f : to_f32(x[d]) * wa, v = wb == 0 ? 0.0f : to_f32(y[d]) * wb;
      out[d] = from_f32<T>(u + v);
    }
    if (p.lse != nullptr && lane == 0) p.lse[item] = lse;
  }
}

}  // namespace gaze

KERNEL(merge_lse_f32, MergeLSEParams, 256, 1) { gaze::merge_lse<float>(p); }
KERNEL(merge_lse_f16, MergeLSEParams, 256, 1) { gaze::merge_lse<gaze::f16>(p); }
KERNEL(merge_lse_bf16, MergeLSEParams, 256, 1) { gaze::merge_lse<gaze::bf16>(p); }
