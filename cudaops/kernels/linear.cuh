// out = x·wᵀ + bias with f32 sums: the plain kernels, for machines without cuBLASLt.
#pragma once
#include "kernel.cuh"

namespace gaze {

template <class T>
__device__ __forceinline__ float bias_of(const LinearParams &p, int o) {
  if (p.bias == nullptr) return 0;
  return p.bias_f32 ? static_cast<const float *>(p.bias)[o] : to_f32(static_cast<const T *>(p.bias)[o]);
}

// few_rows does up to Rows rows of x against one row of weights, by one warp: bound by reading the weights once.
template <class T, int Rows, int N>
__device__ __forceinline__ void few_rows(const LinearParams &p, int row0, int rows, int o) {
  constexpr int kUnroll = N == 1 ? 1 : Rows == 1 ? 4 : 2;
  const int lane = threadIdx.x % 32;
  const T *w = static_cast<const T *>(p.weight) + (int64_t)o * p.weight_row;
  const T *x = static_cast<const T *>(p.x) + (int64_t)row0 * p.x_row;
  float sum[Rows];
#pragma unroll
  for (int r = 0; r < Rows; r++) sum[r] = 0;
  for (int i0 = lane * N; i0 < p.in; i0 += 32 * N * kUnroll) {
    Vec<T, N> v[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; u++)
      if (i0 + u * 32 * N < p.in) v[u] = *reinterpret_cast<const Vec<T, N> *>(w + i0 + u * 32 * N);
#pragma unroll
    for (int u = 0; u < kUnroll; u++) {
      if (i0 + u * 32 * N >= p.in) break;
#pragma unroll
      for (int r = 0; r < Rows; r++) {
        if (r >= rows) break;
        const Vec<T, N> y = *reinterpret_cast<const Vec<T, N> *>(x + r * p.x_row + i0 + u * 32 * N);
#pragma unroll
        for (int k = 0; k < N; k++) sum[r] = fmaf(to_f32(v[u].x[k]), to_f32(y.x[k]), sum[r]);
      }
    }
  }
  const float bias = bias_of<T>(p, o);
#pragma unroll
  for (int r = 0; r < Rows; r++) {
    const float s = warp_sum(sum[r]);
    if (r < rows && lane == 0) static_cast<T *>(p.out)[(int64_t)(row0 + r) * p.out_dim + o] = from_f32<T>(s + bias);
  }
}

template <class T>
__device__ __forceinline__ void gemv(const LinearParams &p) {
  constexpr int N = 16 / sizeof(T);
  grid_wait();
  grid_launch_next();
  const int o = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
  if (o >= p.out_dim) return;
  const bool wide = aligned16(p.x) && aligned16(p.weight) && p.in % N == 0 && p.x_row % N == 0 && p.weight_row % N == 0;
  if (!wide) {
    for (int r = 0; r < p.rows; r += 4) few_rows<T, 4, 1>(p, r, (int)p.rows - r, o);
  } else if (p.rows == 1) {
    few_rows<T, 1, N>(p, 0, 1, o);
  } else {
    for (int r = 0; r < p.rows; r += 4) few_rows<T, 4, N>(p, r, (int)p.rows - r, o);
  }
}

// gemm_half does a tile of 64 rows of x and 128 of the weights by four warps of 32×64, in steps of 32 along In, three steps ahead.
template <class T>
struct Gemm {
  static constexpr int kM = 64, kN = 128, kK = 32, kStages = 3, kThreads = 128;
  static constexpr int kRow = 2 * kK;  // bytes; four 16-byte pieces, permuted so that eight rows of one piece lie in different banks
  static constexpr int kStage = (kM + kN) * kRow;
  static constexpr int kBytes = kStages * kStage;

  static __device__ __forceinline__ uint32_t at(int r, int c) { return r * kRow + (c ^ (r >> 1 & 3)) * 16; }

  // load copies rows [row0, row0+Rows) × [k0, k0+32) of a matrix, 0 outside.
  template <int Rows>
  static __device__ __forceinline__ void load(uint8_t *dst, const T *x, int64_t stride, int64_t row0, int64_t rows, int k0, int in, bool wide) {
#pragma unroll
    for (int i = 0; i < Rows * 4 / kThreads; i++) {
      const int e = i * kThreads + threadIdx.x, r = e / 4, c = e % 4, k = k0 + c * 8;
      const bool live = row0 + r < rows && k < in;
      const T *src = live ? x + (row0 + r) * stride + k : x;
      uint8_t *to = dst + at(r, c);
      if (wide) {
        cp_async16(shared_address(to), src, live ? 16 : 0);
      } else {
        for (int y = 0; y < 8; y++) reinterpret_cast<uint16_t *>(to)[y] = live && k + y < in ? reinterpret_cast<const uint16_t *>(src)[y] : 0;
      }
    }
  }

  static __device__ __forceinline__ void run(const LinearParams &p, uint8_t *smem) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4, m0 = warp / 2 * 32, n0 = warp % 2 * 64;
    const int64_t row0 = (int64_t)blockIdx.y * kM, col0 = (int64_t)blockIdx.x * kN;
    const T *x = static_cast<const T *>(p.x), *w = static_cast<const T *>(p.weight);
    const bool wide = aligned16(x) && aligned16(w) && p.in % 8 == 0 && p.x_row % 8 == 0 && p.weight_row % 8 == 0;
    const int steps = (p.in + kK - 1) / kK;
    auto fill = [&](int step) {
      uint8_t *dst = smem + step % kStages * kStage;
      if (step < steps) {
        load<kM>(dst, x, p.x_row, row0, p.rows, step * kK, p.in, wide);
        load<kN>(dst + kM * kRow, w, p.weight_row, col0, p.out_dim, step * kK, p.in, wide);
      }
      cp_commit();
    };
    float acc[2][8][4];
#pragma unroll
    for (int i = 0; i < 2; i++)
#pragma unroll
      for (int n = 0; n < 8; n++)
#pragma unroll
        for (int k = 0; k < 4; k++) acc[i][n][k] = 0;
    for (int s = 0; s < kStages - 1; s++) fill(s);
#pragma unroll 1
    for (int s = 0; s < steps; s++) {
      cp_wait<kStages - 2>();
      __syncthreads();
      fill(s + kStages - 1);
      const uint32_t a_at = shared_address(smem + s % kStages * kStage), b_at = a_at + kM * kRow;
#pragma unroll
      for (int k = 0; k < 2; k++) {
        uint32_t a[2][4];
#pragma unroll
        for (int i = 0; i < 2; i++) ldmatrix4(a[i], a_at + at(m0 + i * 16 + (lane & 15), 2 * k + lane / 16));
#pragma unroll
        for (int n = 0; n < 8; n += 2) {
          uint32_t b[4];
          ldmatrix4(b, b_at + at(n0 + n * 8 + lane / 16 * 8 + lane % 8, 2 * k + (lane / 8 & 1)));
#pragma unroll
          for (int i = 0; i < 2; i++) {
            mma16816<T>(acc[i][n], a[i], b[0], b[1]);
            mma16816<T>(acc[i][n + 1], a[i], b[2], b[3]);
          }
        }
      }
    }
#pragma unroll
    for (int n = 0; n < 8; n++)
#pragma unroll
      for (int k = 0; k < 2; k++) {
        const int64_t o = col0 + n0 + n * 8 + 2 * t + k;
        if (o >= p.out_dim) continue;
        const float bias = bias_of<T>(p, (int)o);
#pragma unroll
        for (int i = 0; i < 2; i++)
#pragma unroll
          for (int half = 0; half < 2; half++) {
            const int64_t r = row0 + m0 + i * 16 + half * 8 + g;
            if (r < p.rows) static_cast<T *>(p.out)[r * p.out_dim + o] = from_f32<T>(acc[i][n][2 * half + k] + bias);
          }
      }
  }
};

// sgemm does a tile of MT·TM by NT·TN of c = a·b in f32, MT·NT threads with TM·TN each. store(row, col, value) takes the results.
template <int MT, int NT, int TM, int TN, class A, class B, class Store>
__device__ __forceinline__ void sgemm(float *smem, int64_t m0, int64_t n0, int64_t k_end, A a_at, B b_at, Store store) {
  constexpr int kM = MT * TM, kN = NT * TN, kK = 8, kThreads = MT * NT;
  float *as = smem, *bs = smem + kK * kM;
  const int tid = threadIdx.x, tm = tid / NT, tn = tid % NT;
  float acc[TM][TN];
#pragma unroll
  for (int i = 0; i < TM; i++)
#pragma unroll
    for (int j = 0; j < TN; j++) acc[i][j] = 0;
#pragma unroll 1
  for (int64_t k0 = 0; k0 < k_end; k0 += kK) {
    __syncthreads();
    for (int e = tid; e < kK * kM; e += kThreads) as[e % kK * kM + e / kK] = a_at(m0 + e / kK, k0 + e % kK);
    for (int e = tid; e < kK * kN; e += kThreads) bs[e % kK * kN + e / kK] = b_at(k0 + e % kK, n0 + e / kK);
    __syncthreads();
#pragma unroll
    for (int k = 0; k < kK; k++) {
      float a[TM], b[TN];
#pragma unroll
      for (int i = 0; i < TM; i++) a[i] = as[k * kM + i * MT + tm];
#pragma unroll
      for (int j = 0; j < TN; j++) b[j] = bs[k * kN + j * NT + tn];
#pragma unroll
      for (int i = 0; i < TM; i++)
#pragma unroll
        for (int j = 0; j < TN; j++) acc[i][j] = fmaf(a[i], b[j], acc[i][j]);
    }
  }
#pragma unroll
  for (int i = 0; i < TM; i++)
#pragma unroll
    for (int j = 0; j < TN; j++) store(m0 + i * MT + tm, n0 + j * NT + tn, acc[i][j]);
}

}  // namespace gaze
