// What the tensor.Engine needs for Gorgonia's own ops on f32, and copies and fills of any type.
#include "linear.cuh"

namespace gaze {

__device__ __forceinline__ void matmul(const MatMulParams &p) {
  STATIC_SHARED(smem, 4 * 8 * (64 + 64));
  grid_wait();
  grid_launch_next();
  sgemm<16, 16, 4, 4>(
      reinterpret_cast<float *>(smem), (int64_t)blockIdx.y * 64, (int64_t)blockIdx.x * 64, p.k,
      [&](int64_t i, int64_t k) { return i < p.m && k < p.k ? p.a[i * p.a_row + k * p.a_col] : 0.0f; },
      [&](int64_t k, int64_t j) { return j < p.n && k < p.k ? p.b[k * p.b_row + j * p.b_col] : 0.0f; },
      [&](int64_t i, int64_t j, float y) {
        if (i < p.m && j < p.n) p.c[i * p.c_row + j] = y;
      });
}

// Place counts through four dimensions: the offset of element e under some strides.
__device__ __forceinline__ int64_t offset_of(int64_t e, const int64_t (&shape)[4], const int64_t (&stride)[4]) {
  int64_t at = 0;
#pragma unroll
  for (int d = 3; d >= 0; d--) {
    at += e % shape[d] * stride[d];
    e /= shape[d];
  }
  return at;
}

__device__ __forceinline__ float apply(int op, float a, float b) {
  switch (op) {
    case BINARY_ADD: return a + b;
    case BINARY_SUB: return a - b;
    case BINARY_MUL: return a * b;
    default: return a / b;
  }
}

__device__ __forceinline__ void binary(const BinaryParams &p) {
  grid_wait();
  grid_launch_next();
  const int64_t n = p.shape[0] * p.shape[1] * p.shape[2] * p.shape[3], step = (int64_t)gridDim.x * blockDim.x;
  const int64_t first = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
  if (!p.contiguous) {
    for (int64_t e = first; e < n; e += step)
      p.out[offset_of(e, p.shape, p.out_stride)] = apply(p.op, p.a[offset_of(e, p.shape, p.a_stride)], p.b[offset_of(e, p.shape, p.b_stride)]);
    return;
  }
  int64_t done = 0;
  if (aligned16(p.a) && aligned16(p.b) && aligned16(p.out)) {
    done = n / 4 * 4;
    for (int64_t e = first; e < n / 4; e += step) {
      const float4 a = reinterpret_cast<const float4 *>(p.a)[e], b = reinterpret_cast<const float4 *>(p.b)[e];
      reinterpret_cast<float4 *>(p.out)[e] = make_float4(apply(p.op, a.x, b.x), apply(p.op, a.y, b.y), apply(p.op, a.z, b.z), apply(p.op, a.w, b.w));
    }
  }
  for (int64_t e = done + first; e < n; e += step) p.out[e] = apply(p.op, p.a[e], p.b[e]);
}

template <class T>
__device__ __forceinline__ void copy(const CopyParams &p) {
  grid_wait();
  grid_launch_next();
  const int64_t n = p.shape[0] * p.shape[1] * p.shape[2] * p.shape[3], step = (int64_t)gridDim.x * blockDim.x;
  for (int64_t e = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; e < n; e += step)
    static_cast<T *>(p.out)[offset_of(e, p.shape, p.out_stride)] = static_cast<const T *>(p.x)[offset_of(e, p.shape, p.x_stride)];
}

__device__ __forceinline__ void fill(const FillParams &p) {
  grid_wait();
  grid_launch_next();
  const int64_t step = (int64_t)gridDim.x * blockDim.x;
  for (int64_t e = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; e < p.n; e += step) p.out[e] = p.value;
}

}  // namespace gaze

KERNEL(matmul_f32, MatMulParams, 256, 1) { gaze::matmul(p); }
KERNEL(binary_f32, BinaryParams, 256, 1) { gaze::binary(p); }
KERNEL(copy_b1, CopyParams, 256, 1) { gaze::copy<uint8_t>(p); }
KERNEL(copy_b2, CopyParams, 256, 1) { gaze::copy<uint16_t>(p); }
KERNEL(copy_b4, CopyParams, 256, 1) { gaze::copy<uint32_t>(p); }
KERNEL(copy_b8, CopyParams, 256, 1) { gaze::copy<uint64_t>(p); }
KERNEL(fill_b4, FillParams, 256, 1) { gaze::fill(p); }
