// The instructions of ptx.cuh on the CPU.
#pragma once
#include "emu.h"
#include "../num.cuh"

namespace gaze {

inline uint32_t shared_address(const void *p) {
  ptrdiff_t d = (const uint8_t *)p - emu::shared;
  if (d < 0 || d > (ptrdiff_t)emu::shared_bytes) emu::fail("not a shared memory address");
  return (uint32_t)d;
}

inline float exp2_approx(float x) { return exp2f(x); }

inline void widen_e4m3(uint32_t x, uint32_t &lo, uint32_t &hi) {
#ifdef GAZE_EMU_SM90
  const __half2_raw l = __nv_cvt_fp8x2_to_halfraw2((__nv_fp8x2_storage_t)x, __NV_E4M3), h = __nv_cvt_fp8x2_to_halfraw2((__nv_fp8x2_storage_t)(x >> 16), __NV_E4M3);
  lo = l.x | (uint32_t)l.y << 16;
  hi = h.x | (uint32_t)h.y << 16;
#else
  lo = widen_e4m3_by_bits(x);
  hi = widen_e4m3_by_bits(x >> 16);
#endif
}

template <class T>
inline float half_of(uint32_t w, int hi) {
  uint16_t b = (uint16_t)(hi ? w >> 16 : w);
  T t;
  memcpy(&t, &b, 2);
  return to_f32(t);
}

template <class T>
inline void mma16816(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  uint32_t mine[6] = {a[0], a[1], a[2], a[3], b0, b1};
  auto s = emu::exchange(mine, sizeof mine);
  auto word = [&](int lane, int i) { return ((const uint32_t *)s[lane])[i]; };
  int g = emu::self->lane / 4, t = emu::self->lane % 4;
  for (int i = 0; i < 4; i++) {
    int row = g + (i / 2) * 8, col = 2 * t + i % 2;
    double sum = 0;
    for (int k = 0; k < 16; k++) {
      // A: row r, column k is in lane (r%8)*4 + (k%8)/2, word (r>=8) + 2*(k>=8), half k%2. B: row k, column n in lane n*4 + (k%8)/2.
      float x = half_of<T>(word((row % 8) * 4 + (k % 8) / 2, (row >= 8) + 2 * (k >= 8)), k % 2);
      float y = half_of<T>(word(col * 4 + (k % 8) / 2, 4 + (k >= 8)), k % 2);
      sum += (double)x * y;
    }
    d[i] = (float)((double)d[i] + sum);
  }
}

inline void ldmatrix_emu(uint32_t (&r)[4], uint32_t address, bool trans) {
  if (address % 16) emu::fail("ldmatrix address %u", address);
  auto s = emu::exchange(&address, 4);
  int g = emu::self->lane / 4, t = emu::self->lane % 4;
  for (int m = 0; m < 4; m++) {
    uint16_t pair[2];
    for (int i = 0; i < 2; i++) {
      int row = trans ? 2 * t + i : g, col = trans ? g : 2 * t + i;
      memcpy(&pair[i], emu::at(*(const uint32_t *)s[m * 8 + row], 16) + 2 * col, 2);
    }
    r[m] = pair[0] | (uint32_t)pair[1] << 16;
  }
}
inline void ldmatrix4(uint32_t (&r)[4], uint32_t address) { ldmatrix_emu(r, address, false); }
inline void ldmatrix4_trans(uint32_t (&r)[4], uint32_t address) { ldmatrix_emu(r, address, true); }
inline uint32_t movmatrix_trans(uint32_t x) {
  auto s = emu::exchange(&x, 4);
  int g = emu::self->lane / 4, t = emu::self->lane % 4;
  uint32_t y = 0;
  for (int i = 0; i < 2; i++) {
    uint32_t w = *(const uint32_t *)s[(2 * t + i) * 4 + g / 2];  // row 2t+i, column g
    y |= (g % 2 ? w >> 16 : w & 0xffff) << (16 * i);
  }
  return y;
}

inline void cp_async16(uint32_t dst, const void *src, uint32_t valid) {
  if (dst % 16 || (uintptr_t)src % 16) emu::fail("cp.async %u from %p", dst, src);
  memset(emu::at(dst, 16), 0xff, 16);
  emu::self->open.copies.push_back({emu::at(dst, 16), {}, src, 16, valid});
}
inline void cp_async16(uint32_t dst, const void *src) { cp_async16(dst, src, 16); }
inline void store_shared16(uint32_t dst, uint16_t x) { memcpy(emu::at(dst, 2), &x, 2); }
inline void store_shared8(uint32_t dst, uint8_t x) { memcpy(emu::at(dst, 1), &x, 1); }
inline void cp_commit() {
  emu::self->groups.push_back(std::move(emu::self->open));
  emu::self->open = emu::Group();
}
inline void cp_wait_emu(size_t pending) {
  auto &q = emu::self->groups;
  while (q.size() > pending) {
    for (auto &c : q.front().copies) {
      memcpy(c.dst, c.src, c.valid);
      memset((uint8_t *)c.dst + c.valid, 0, c.n - c.valid);
    }
    q.pop_front();
  }
}
template <int Pending>
inline void cp_wait() {
  cp_wait_emu(Pending);
}

inline uint32_t atomic_add_acq_rel(uint32_t *p, uint32_t x) { return atomicAdd(p, x); }
inline void prefetch_l2(const void *) {}
inline void grid_wait() {}
inline void grid_launch_next() {}

}  // namespace gaze
