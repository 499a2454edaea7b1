// Index of the largest element of each row, the first among equals; NaN counts as less than everything, a row of NaN gives 0. A block a
// row.
#include "kernel.cuh"

namespace gaze {

struct Best {
  float x;
  int i;  // -1: none yet

  __device__ __forceinline__ void offer(float y, int j) {
    if (y != y || j < 0) return;
    if (i < 0 || y > x || (y == x && j < i)) x = y, i = j;
  }
};

template <class T, int N>
__device__ __forceinline__ Best scan(const T *row, int64_t n) {
  Best best = {0, -1};
  for (int64_t i = (int64_t)threadIdx.x * N; i < n; i += (int64_t)blockDim.x * N) {
    const Vec<T, N> v = *reinterpret_cast<const Vec<T, N> *>(row + i);
#pragma unroll
    for (int k = 0; k < N; k++) best.offer(to_f32(v.x[k]), (int)i + k);
  }
  return best;
}

template <class T>
__device__ __forceinline__ void argmax(const ArgmaxParams &p) {
  constexpr int N = 16 / sizeof(T);
  STATIC_SHARED(smem, 32 * sizeof(Best));
  Best *partial = reinterpret_cast<Best *>(smem);
  grid_wait();
  grid_launch_next();
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
  for (int64_t r = blockIdx.x; r < p.rows; r += gridDim.x) {
    const T *row = static_cast<const T *>(p.x) + r * p.x_row;
    Best best = aligned16(row) && p.columns % N == 0 ? scan<T, N>(row, p.columns) : scan<T, 1>(row, p.columns);
#pragma unroll
    for (int d = 16; d > 0; d /= 2) {
      const float x = __shfl_xor_sync(~0u, best.x, d);
      const int i = __shfl_xor_sync(~0u, best.i, d);
      best.offer(x, i);
    }
    __syncthreads();
    if (lane == 0) partial[warp] = best;
    __syncthreads();
    if (threadIdx.x == 0) {
      for (int w = 1; w < warps; w++) best.offer(partial[w].x, partial[w].i);
      p.out[r] = max(best.i, 0);
    }
  }
}

}  // namespace gaze

KERNEL(argmax_f32, ArgmaxParams, 1024, 1) { gaze::argmax<float>(p); }
KERNEL(argmax_f16, ArgmaxParams, 1024, 1) { gaze::argmax<gaze::f16>(p); }
KERNEL(argmax_bf16, ArgmaxParams, 1024, 1) { gaze::argmax<gaze::bf16>(p); }
