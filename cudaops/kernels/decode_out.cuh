// How decode writes its output.
#pragma once
#include "kernel.cuh"

namespace gaze {

// store_all stores N neighbours, of which `bits` holds the bits, at once where they lie at a multiple of their size.
template <int N, class E, class V>
__device__ __forceinline__ void store_all(E *to, V bits) {
  static_assert(sizeof(V) == N * sizeof(E), "");
  if ((reinterpret_cast<uintptr_t>(to) & (sizeof(V) - 1)) == 0) {
    *reinterpret_cast<V *>(to) = bits;
  } else {
#pragma unroll
    for (int i = 0; i < N; i++) to[i] = (E)(bits >> 8 * sizeof(E) * i);
  }
}

// Output writes four neighbours, d a multiple of 4, of the output's row token·Hq+head. Every lane of a warp calls it, each four of them with
// 16 neighbours; those that are not `live` write nothing.
template <class T>
struct Output {
  template <int D>
  static __device__ __forceinline__ void write(const DecodeParams &p, int64_t token, int head, int d, float4 o, bool live) {
    const int64_t at = (token * p.q_heads + head) * D + d;
    if (live) store_all<4>(static_cast<uint16_t *>(p.out) + at, (uint64_t)pack<T>(o.z, o.w) << 32 | pack<T>(o.x, o.y));
  }
};

// Beside an e4m3 cache the output's type is params.out_type, or q's.
template <>
struct Output<e4m3> {
  template <int D>
  static __device__ __forceinline__ void write(const DecodeParams &p, int64_t token, int head, int d, float4 o, bool live) {
    const int64_t at = (token * p.q_heads + head) * D + d;
    const int type = p.out_type != TYPE_NONE ? p.out_type : p.q_type;
    if (type == TYPE_F16) {
      Output<f16>::write<D>(p, token, head, d, o, live);
    } else if (type == TYPE_BF16) {
      Output<bf16>::write<D>(p, token, head, d, o, live);
    } else if (type == TYPE_E4M3) {
      if (live) store_all<4>(static_cast<uint8_t *>(p.out) + at, narrow_e4m3(o.x, o.y) | (uint32_t)narrow_e4m3(o.z, o.w) << 16);
    } else {
      // A block of 16: its scale is e4m3(out_sf_scale·max|x|/6), its codes e2m1(x·out_sf_scale/scale), 0 where the scale is.
      o = make_float4(o.x * p.out_sf_scale, o.y * p.out_sf_scale, o.z * p.out_sf_scale, o.w * p.out_sf_scale);
      uint32_t top = 0;  // the largest magnitude's bits, of NaN the most
      for (float x : {o.x, o.y, o.z, o.w}) top = max(top, __float_as_uint(x) & 0x7fffffff);
      top = max(top, __shfl_xor_sync(~0u, top, 1));
      top = max(top, __shfl_xor_sync(~0u, top, 2));
      const e4m3 scale = from_f32<e4m3>(__uint_as_float(top) / 6);
      if (!live) return;
      const float s = to_f32(scale);
      auto code = [&](float x) { return s == 0 ? 0 : narrow_e2m1(x / s); };
      store_all<2>(static_cast<uint8_t *>(p.out) + at / 2, (uint16_t)(code(o.x) | code(o.y) << 4 | code(o.z) << 8 | code(o.w) << 12));
      if (d % 16 == 0) {
        // 128×4 swizzle: tiles of 128 rows by 4 columns, in them rows r, r+32, r+64, r+96 side by side.
        const int64_t row = p.out_sf_start + token;
        const int column = (head * D + d) / 16;
        static_cast<e4m3 *>(p.out_scale)[(row / 128 * (p.out_sf_columns / 4) + column / 4) * 512 + row % 32 * 16 + row % 128 / 32 * 4 + column % 4] = scale;
      }
    }
  }
};

}  // namespace gaze
