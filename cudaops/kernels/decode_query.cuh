// A tile of q on its way to the operand Q^T: rows of 16-bit elements in shared memory.
#pragma once
#include "decode_plan.cuh"
#include "rows.cuh"

namespace gaze {

// Divider divides numbers in [0, 2^31) by d: n·m >> 31+s with m = ⌈2^(31+s)/d⌉ and 2^s ≥ d is ⌊n/d⌋, as n·(m·d - 2^(31+s)) < 2^(31+s). The
// host made m and s.
struct Divider {
  int d;
  uint32_t m, s;

  __device__ __forceinline__ int operator()(int n) const { return (int)(__umulhi(2 * (uint32_t)n, m) >> s); }
};

// QueryTile holds a thread's part of a tile of q between fetch and store, which come a segment apart. Rows that don't exist are 0.
//
// On the way q is turned as bmm1 wants it, and a row of it may be scaled by a power of two: `scales` has for each row the factor of its
// scores, base 2, and the inverse power.
template <class T, int D, int Rows_, int Threads>
struct QueryTile {
  typedef Rows<D> R;
  static constexpr int kEach = (Rows_ * R::kPieces + Threads - 1) / Threads;
  uint4 x[kEach];

  __device__ __forceinline__ void fetch(const DecodeParams &p, const Cursor &c, Divider by_group) {
    const bool aligned = aligned16(p.q) && ((p.q_token | p.q_head) & 7) == 0;
    const int head = c.head * by_group.d, row0 = c.tile * Rows_, rows = c.r.rows * by_group.d;
#pragma unroll
    for (int n = 0; n < kEach; n++) {
      const int e = n * Threads + threadIdx.x, r = row0 + e / R::kPieces, i = by_group(r);
      x[n] = make_uint4(0, 0, 0, 0);
      if (e >= Rows_ * R::kPieces || r >= rows) continue;
      const T *src = static_cast<const T *>(p.q) + (c.r.row0 + i) * p.q_token + (head + r - i * by_group.d) * p.q_head + e % R::kPieces * 8;
      if (aligned) {
        x[n] = *reinterpret_cast<const uint4 *>(src);
      } else {
        Vec16<T> y;
#pragma unroll
        for (int k = 0; k < 8; k++) y.x[k] = src[k];
        x[n] = *reinterpret_cast<uint4 *>(&y);
      }
    }
  }

  __device__ __forceinline__ void store(const DecodeParams &, uint8_t *rows, float2 *, float bmm1, float) const {
#pragma unroll
    for (int n = 0; n < kEach; n++) {
      const int e = n * Threads + threadIdx.x;
      if (e < Rows_ * R::kPieces) *reinterpret_cast<uint4 *>(rows + R::at(e / R::kPieces, e % R::kPieces)) = turned<T>(x[n], bmm1);
    }
  }
};

// row_scale is scale·power, but neither 0 nor infinite where the scale is not: a hidden key's -inf times 0 would be NaN, and so would 0 times inf.
__device__ __forceinline__ float row_scale(float scale, float power) {
  const float x = scale * power;
  return x == 0 ? __int_as_float(1) : x == GAZE_INF && scale <= GAZE_MAX ? GAZE_MAX : x;
}

// Beside an e4m3 cache q is f16, bf16 or e4m3 (params.q_type) and becomes f16, exactly: a row of bf16 is scaled so that its largest
// element lies in [2^14, 2^15), and what is 2^31 times smaller than that keeps its bits too. 16 dims stand in the order 0 1 4 5 8 9 12
// 13, 2 3 6 7 10 11 14 15: a lane's four neighbours of a row of K, as ldmatrix gives them, are then a fragment's two words.
template <int D, int Rows_, int Threads>
struct QueryTile<e4m3, D, Rows_, Threads> {
  typedef Rows<D> R;
  static constexpr int kLanes = D == 64 ? 4 : 8;  // that share a row
  static constexpr int kBlocks = (D / 16 + kLanes - 1) / kLanes;  // of 16 dims, of a lane
  static constexpr int kEach = (Rows_ * kLanes + Threads - 1) / Threads;
  uint4 x[kEach][kBlocks][2];

  // shift_in reads N elements at any address: 8 words of them.
  template <class E>
  static __device__ __forceinline__ void shift_in(const E *src, uint4 &lo, uint4 &hi) {
    constexpr int kBits = 8 * sizeof(E);
#pragma unroll 1
    for (int k = 0; k < 16; k++) {
      lo.x = lo.x >> kBits | lo.y << (32 - kBits), lo.y = lo.y >> kBits | lo.z << (32 - kBits);
      lo.z = lo.z >> kBits | lo.w << (32 - kBits), lo.w = lo.w >> kBits | hi.x << (32 - kBits);
      hi.x = hi.x >> kBits | hi.y << (32 - kBits), hi.y = hi.y >> kBits | hi.z << (32 - kBits);
      hi.z = hi.z >> kBits | hi.w << (32 - kBits), hi.w = hi.w >> kBits | (uint32_t)src[k] << (32 - kBits);
    }
  }

  __device__ __forceinline__ void fetch(const DecodeParams &p, const Cursor &c, Divider by_group) {
    const bool wide = p.q_type != TYPE_E4M3;
    const int size = wide ? 2 : 1;
    const bool aligned = aligned16(p.q) && ((p.q_token | p.q_head) * size & 15) == 0;
    const int head = c.head * by_group.d, row0 = c.tile * Rows_, rows = c.r.rows * by_group.d;
#pragma unroll
    for (int n = 0; n < kEach; n++) {
      const int e = n * Threads + threadIdx.x, row = e / kLanes, r = row0 + row, j = by_group(r);
      const uint8_t *src = static_cast<const uint8_t *>(p.q) + ((c.r.row0 + j) * p.q_token + (head + r - j * by_group.d) * p.q_head) * size;
#pragma unroll
      for (int i = 0; i < kBlocks; i++) {
        uint4(&y)[2] = x[n][i];
        y[0] = y[1] = make_uint4(0, 0, 0, 0);
        const int block = i * kLanes + e % kLanes;
        if (row >= Rows_ || r >= rows || block >= D / 16) continue;
        const uint8_t *at = src + block * 16 * size;
        if (aligned) {
          y[0] = *reinterpret_cast<const uint4 *>(at);
          if (wide) y[1] = *reinterpret_cast<const uint4 *>(at + 16);
        } else if (wide) {
          shift_in(reinterpret_cast<const uint16_t *>(at), y[0], y[1]);
        } else {
          shift_in(at, y[1], y[0]);
        }
      }
    }
  }

  __device__ __forceinline__ void store(const DecodeParams &p, uint8_t *rows, float2 *scales, float bmm1, float scale) const {
#pragma unroll
    for (int n = 0; n < kEach; n++) {
      const int e = n * Threads + threadIdx.x, row = e / kLanes;
      float up = 1, down = 1;
      if (p.q_type == TYPE_BF16) {
        uint32_t top = 0;  // the largest magnitude's bits, of NaN the most
#pragma unroll
        for (int i = 0; i < kBlocks; i++) {
          const uint4(&y)[2] = x[n][i];
          const uint32_t w[8] = {y[0].x, y[0].y, y[0].z, y[0].w, y[1].x, y[1].y, y[1].z, y[1].w};
#pragma unroll
          for (int k = 0; k < 8; k++) top = max(top, max(w[k] << 16 & 0x7fff0000, w[k] & 0x7fff0000));
        }
#pragma unroll
        for (int d = 1; d < kLanes; d *= 2) top = max(top, __shfl_xor_sync(~0u, top, d));
        const int exponent = max((int)(top >> 23), 27);  // so that both powers are normal
        up = __int_as_float((268 - exponent) << 23);
        down = __int_as_float((exponent - 14) << 23);
      }
      if (row >= Rows_) continue;
      if (e % kLanes == 0) scales[row] = make_float2(row_scale(scale, down), down);
#pragma unroll
      for (int i = 0; i < kBlocks; i++) {
        const int block = i * kLanes + e % kLanes;
        if (block >= D / 16) continue;
        const uint4(&y)[2] = x[n][i];
        uint32_t w[8] = {y[0].x, y[0].y, y[0].z, y[0].w, y[1].x, y[1].y, y[1].z, y[1].w};
        if (p.q_type == TYPE_E4M3) {
#pragma unroll
          for (int k = 3; k >= 0; k--) widen_e4m3(w[k], w[2 * k], w[2 * k + 1]);
        } else if (p.q_type == TYPE_BF16) {
#pragma unroll
          for (int k = 0; k < 8; k++) w[k] = pack<f16>(__uint_as_float(w[k] << 16) * up, __uint_as_float(w[k] & 0xffff0000) * up);
        }
#pragma unroll
        for (int k = 0; k < 8; k++) w[k] = turned<f16>(w[k], bmm1);
        *reinterpret_cast<uint4 *>(rows + R::at(row, 2 * block)) = make_uint4(w[0], w[2], w[4], w[6]);
        *reinterpret_cast<uint4 *>(rows + R::at(row, 2 * block + 1)) = make_uint4(w[1], w[3], w[5], w[7]);
      }
    }
  }
};

}  // namespace gaze
