// Hopper's instructions on the CPU. Bulk copies land at a random later time; products read shared memory, and write their sums, when
// they are waited for; until then the sums are NaN.
#pragma once
#include "emu.h"
#include "../num.cuh"

#include <map>
#include <memory>

namespace gaze {

// ---- mbarriers ----

struct MBarrier {
  uint32_t arrivals : 15, pending : 15, phase : 1, live : 1;
  int32_t bytes;
};
inline MBarrier &mbarrier(uint32_t bar) {
  if (bar % 8) emu::fail("mbarrier at %u", bar);
  return *(MBarrier *)emu::at(bar, 8);
}
inline void barrier_settle(MBarrier &b) {
  if (b.pending == 0 && b.bytes == 0) {
    b.phase ^= 1;
    b.pending = b.arrivals;
  }
}
inline void barrier_init(uint32_t bar, uint32_t arrivals) {
  MBarrier &b = mbarrier(bar);
  b.arrivals = b.pending = arrivals;
  b.phase = 0;
  b.live = 1;
  b.bytes = 0;
}
inline void barrier_init_fence() {}
inline void barrier_arrive(uint32_t bar) {
  MBarrier &b = mbarrier(bar);
  if (b.pending == 0) emu::fail("mbarrier %u: more arrivals than %u", bar, b.arrivals);
  b.pending--;
  barrier_settle(b);
}
inline void barrier_expect(uint32_t bar, uint32_t bytes) {
  mbarrier(bar).bytes += (int32_t)bytes;
  barrier_arrive(bar);
}
inline void barrier_wait(uint32_t bar, uint32_t parity) {
  MBarrier &b = mbarrier(bar);
  if (b.phase == (parity & 1)) emu::wait([&b, parity] { return b.phase != (parity & 1); });
}

inline void fence_async() {}
inline void group_sync(int id, int threads) { emu::barrier(id, threads, true); }
inline void group_arrive(int id, int threads) { emu::barrier(id, threads, false); }
template <int N>
inline void registers_up() {}
template <int N>
inline void registers_down() {}

// ---- bulk tensor copies; a map is emulated as its plain numbers ----

struct EmuMap {
  uint64_t base, dims[4], strides[4];  // bytes; strides[0] is the element's size
  uint32_t box[4];
  uint32_t pad[4];
};
static_assert(sizeof(EmuMap) <= 128, "");

inline void prefetch_map(const void *) {}
inline void copy_box(uint32_t dst, const void *map, uint32_t bar, int c0, int c1, int c2, int c3) {
  EmuMap m = *(const EmuMap *)map;
  uint32_t row = (uint32_t)(m.box[0] * m.strides[0]), rows = m.box[1] * m.box[2] * m.box[3];
  if (row != 128 || dst % 1024 || m.base % 16) emu::fail("box of %u-byte rows to %u", row, dst);
  for (int i = 1; i < 4; i++)
    if (m.strides[i] % 16) emu::fail("map stride %d", i);
  memset(emu::at(dst, row * rows), 0xff, row * rows);
  emu::later([=] {
    for (uint32_t r = 0; r < rows; r++) {
      int64_t c[4] = {c0, c1 + r % m.box[1], c2 + r / m.box[1] % m.box[2], c3 + r / m.box[1] / m.box[2]};
      for (uint32_t x = 0; x < row; x += 16) {
        int64_t e = c[0] + x / m.strides[0];
        bool in = e >= 0 && (uint64_t)e < m.dims[0];
        for (int i = 1; i < 4; i++) in = in && c[i] >= 0 && (uint64_t)c[i] < m.dims[i];
        uint32_t at = dst + r * 128 + x;
        at ^= (at >> 7 & 7) << 4;
        uint8_t *to = emu::at(at, 16);
        if (in) {
          memcpy(to, (const uint8_t *)m.base + e * m.strides[0] + c[1] * m.strides[1] + c[2] * m.strides[2] + c[3] * m.strides[3], 16);
        } else {
          memset(to, 0, 16);
        }
      }
    }
    MBarrier &b = mbarrier(bar);
    b.bytes -= (int32_t)(row * rows);
    barrier_settle(b);
  });
}

// ---- warpgroup products ----

inline uint64_t swizzled_tile(uint32_t address, uint32_t group, uint32_t block) {
  return (uint64_t)1 << 62 | (uint64_t)(group >> 4) << 32 | (uint64_t)(block >> 4 & 0x3fff) << 16 | (address >> 4 & 0x3fff);
}
inline uint64_t tile_at(uint64_t tile, uint32_t bytes) { return tile + (bytes >> 4); }
inline void opaque(uint32_t &) {}
inline void wgmma_begin() {}

struct Shadow {  // sums in flight
  std::vector<float> d;
  int pending = 0;
};
inline std::map<std::pair<int, float *>, std::shared_ptr<Shadow>> &shadows() {
  static std::map<std::pair<int, float *>, std::shared_ptr<Shadow>> m;
  return m;
}

template <class T>
inline float tile_element(uint64_t desc, bool long_contiguous, int x, int k) {
  uint32_t address = (uint32_t)(desc & 0x3fff) << 4, block = (uint32_t)(desc >> 16 & 0x3fff) << 4, group = (uint32_t)(desc >> 32 & 0x3fff) << 4;
  uint32_t at = long_contiguous ? address + x % 64 * 2 + x / 64 * block + k % 8 * 128 + k / 8 * group : address + x % 8 * 128 + x / 8 * group + k * 2;
  at ^= (at >> 7 & 7) << 4;
  T t;
  memcpy(&t, emu::at(at, 2), 2);
  return to_f32(t);
}

// product queues d (+)= a·b; a(row, k) gives this lane's rows.
template <class T>
inline void queue_product(float *d, int cols, std::function<float(int, int)> a, uint64_t b, bool b_contiguous, bool add) {
  auto &s = shadows()[{emu::self->index, d}];
  if (!s) {
    s = std::make_shared<Shadow>();
    s->d.assign(d, d + cols * 4);
    for (int i = 0; i < cols * 4; i++) d[i] = NAN;
  }
  s->pending++;
  int g = emu::self->lane / 4, t = emu::self->lane % 4;
  auto shadow = s;
  int thread = emu::self->index;
  emu::self->wgmma_open.push_back([=] {
    for (int r = 0; r < 2; r++) {
      float x[16];
      for (int k = 0; k < 16; k++) x[k] = a(g + 8 * r, k);
      for (int n = 0; n < cols; n++)
        for (int c = 0; c < 2; c++) {
          double sum = add ? shadow->d[n * 4 + 2 * r + c] : 0;
          for (int k = 0; k < 16; k++) sum += (double)x[k] * tile_element<T>(b, b_contiguous, n * 8 + 2 * t + c, k);
          shadow->d[n * 4 + 2 * r + c] = (float)sum;
        }
    }
    if (--shadow->pending == 0) {
      memcpy(d, shadow->d.data(), shadow->d.size() * 4);
      shadows().erase({thread, d});
    }
  });
}
inline void wgmma_commit() {
  emu::self->wgmma_groups.push_back(std::move(emu::self->wgmma_open));
  emu::self->wgmma_open.clear();
}
template <int Pending>
inline void wgmma_wait() {
  __syncwarp();
  auto &q = emu::self->wgmma_groups;
  while (q.size() > (size_t)Pending) {
    for (auto &f : q.front()) f();
    q.pop_front();
  }
  __syncwarp();
}
template <int N>
inline void pin(float (&)[N][4]) {}

template <class T, int Cols>
struct Wgmma {
  static void ss(float (&d)[Cols][4], uint64_t a, uint64_t b, bool add) {
    int warp = emu::self->warp % 4;
    queue_product<T>(&d[0][0], Cols, [=](int row, int k) { return tile_element<T>(a, false, 16 * warp + row, k); }, b, false, add);
  }
  static void rs(float (&d)[Cols][4], const uint32_t (&a)[4], uint64_t b) {
    auto s = emu::exchange(a, sizeof a);
    std::vector<uint32_t> w(16);  // of the four lanes of this row
    for (int t = 0; t < 4; t++) memcpy(&w[4 * t], s[emu::self->lane / 4 * 4 + t], 16);
    auto word = [=](int row, int k) {
      uint32_t x = w[4 * (k % 8 / 2) + (row >= 8) + 2 * (k >= 8)];
      uint16_t h = (uint16_t)(k % 2 ? x >> 16 : x);
      T t;
      memcpy(&t, &h, 2);
      return to_f32(t);
    };
    queue_product<T>(&d[0][0], Cols, word, b, true, true);
  }
};

}  // namespace gaze
