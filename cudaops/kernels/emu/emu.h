// A CPU stand-in for one GPU: it runs the kernels of this folder, compiled by a host compiler, so that their index arithmetic,
// synchronisation and memory safety can be tried where there is no GPU. Threads of a block are fibers on one OS thread; blocks run
// one after another. It is adversarial where hardware is free to be: copies land as late as they may, and their destination is
// poisoned as soon as they are issued; threads run in a shuffled order.
#pragma once
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <vector>
#include <deque>

#include <vector_types.h>
#include <vector_functions.h>

#define GAZE_EMU 1
#include <cuda_fp16.h>
#include <cuda_bf16.h>
#include <cuda_fp8.h>
#undef __global__
#undef __device__
#undef __forceinline__
#undef __shared__
#undef __launch_bounds__
#undef __grid_constant__
#undef __constant__
#define __global__
#define __device__
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __shared__ static
#define __launch_bounds__(...)
#define __grid_constant__
#define __constant__ static
#define __restrict__ __restrict

namespace emu {

struct Copy {
  void* dst;
  std::vector<uint8_t> bytes;  // unused while the source is read late
  const void* src;
  uint32_t n, valid;
};

struct Group {
  std::vector<Copy> copies;
};

struct Warp {
  alignas(16) uint8_t slot[2][32][64];
  uint64_t arrived = 0;  // deposits so far
};

struct Barrier {
  uint64_t generation = 0;
  uint32_t arrived = 0;
};

struct Thread {
  uint3 tid;
  int index, lane, warp;
  void* sp = nullptr;
  uint8_t* stack = nullptr;
  bool done = false;
  std::function<bool()> ready;
  uint64_t collectives = 0;
  Group open;
  std::deque<Group> groups;
  std::vector<std::function<void()>> wgmma_open;
  std::deque<std::vector<std::function<void()>>> wgmma_groups;
};

extern Thread* self;
extern uint3 block_id;
extern dim3 block_dim, grid_dim;
extern uint8_t* shared;
extern uint32_t shared_bytes;
extern Warp warps[64];
extern Barrier barriers[16];
extern int threads_in_block;

void wait(std::function<bool()> ready);
void later(std::function<void()> what);  // at some time before everything waits
void fail(const char* format, ...);

// exchange deposits n bytes of each lane and gives the deposits of all 32 (every lane of the warp must take part).
inline const uint8_t (*exchange(const void* mine, size_t n))[64] {
  Warp& w = warps[self->warp];
  uint64_t turn = self->collectives++;
  memcpy(w.slot[turn & 1][self->lane], mine, n);
  w.arrived++;
  uint64_t target = (turn + 1) * 32;
  if (w.arrived < target) wait([&w, target] { return w.arrived >= target; });
  return w.slot[turn & 1];
}

inline void barrier(int id, uint32_t count, bool blocks) {
  Barrier& b = barriers[id];
  uint64_t g = b.generation;
  if (++b.arrived == count) {
    b.arrived = 0;
    b.generation++;
    return;
  }
  if (b.arrived > count) fail("barrier %d: %u arrivals of %u", id, b.arrived, count);
  if (blocks) wait([&b, g] { return b.generation != g; });
}

inline uint8_t* at(uint32_t address, uint32_t n) {
  if (address + (uint64_t)n > shared_bytes) fail("shared memory address %u + %u of %u", address, n, shared_bytes);
  return shared + address;
}

typedef void (*Entry)(const void* params);
void add(const char* name, size_t params, Entry entry);

}  // namespace emu

#define threadIdx (emu::self->tid)
#define blockIdx (emu::block_id)
#define blockDim (emu::block_dim)
#define gridDim (emu::grid_dim)
#define warpSize 32

inline void __syncthreads() { emu::barrier(0, emu::threads_in_block, true); }
inline void __syncwarp(unsigned = ~0u) {
  int x = 0;
  emu::exchange(&x, 4);
}
inline int __syncthreads_or(int x) {
  static int value;
  static int readers;
  __syncthreads();
  if (readers == 0) value = 0;
  readers++;
  value |= x != 0;
  __syncthreads();
  int v = value;
  __syncthreads();
  readers = 0;
  __syncthreads();
  return v;
}
inline void __threadfence() {}
inline void __threadfence_block() {}

template <class T>
inline T __shfl_sync(unsigned, T x, int lane, int width = 32) {
  auto s = emu::exchange(&x, sizeof x);
  T r;
  memcpy(&r, s[(emu::self->lane & ~(width - 1)) + (lane & (width - 1))], sizeof r);
  return r;
}
template <class T>
inline T __shfl_xor_sync(unsigned, T x, int mask, int = 32) {
  auto s = emu::exchange(&x, sizeof x);
  T r;
  memcpy(&r, s[emu::self->lane ^ mask], sizeof r);
  return r;
}
template <class T>
inline T __shfl_up_sync(unsigned, T x, unsigned d, int = 32) {
  auto s = emu::exchange(&x, sizeof x);
  T r;
  memcpy(&r, s[emu::self->lane >= (int)d ? emu::self->lane - d : emu::self->lane], sizeof r);
  return r;
}
template <class T>
inline T __shfl_down_sync(unsigned, T x, unsigned d, int = 32) {
  auto s = emu::exchange(&x, sizeof x);
  T r;
  memcpy(&r, s[emu::self->lane + d < 32 ? emu::self->lane + d : emu::self->lane], sizeof r);
  return r;
}
inline unsigned __ballot_sync(unsigned, int p) {
  auto s = emu::exchange(&p, 4);
  unsigned r = 0;
  for (int i = 0; i < 32; i++) r |= (*(const int*)s[i] != 0 ? 1u : 0u) << i;
  return r;
}
inline unsigned __reduce_add_sync(unsigned, unsigned x) {
  auto s = emu::exchange(&x, sizeof x);
  unsigned r = 0;
  for (int i = 0; i < 32; i++) r += *(const unsigned*)s[i];
  return r;
}
inline int __any_sync(unsigned m, int p) { return __ballot_sync(m, p) != 0; }
inline int __all_sync(unsigned m, int p) { return __ballot_sync(m, p) == ~0u; }

template <class T>
inline T emu_rmw(T* p, T x) {
  T old = *p;
  *p = old + x;
  return old;
}
inline unsigned atomicAdd(unsigned* p, unsigned x) { return emu_rmw(p, x); }
inline int atomicAdd(int* p, int x) { return emu_rmw(p, x); }
inline unsigned atomicOr(unsigned* p, unsigned x) {
  unsigned old = *p;
  *p |= x;
  return old;
}
inline int atomicOr(int* p, int x) {
  int old = *p;
  *p |= x;
  return old;
}
inline unsigned atomicCAS(unsigned* p, unsigned want, unsigned x) {
  unsigned old = *p;
  if (old == want) *p = x;
  return old;
}
inline unsigned atomicExch(unsigned* p, unsigned x) {
  unsigned old = *p;
  *p = x;
  return old;
}
template <class T>
inline T __ldg(const T* p) {
  return *p;
}
template <class T>
inline T __ldcg(const T* p) {
  return *p;
}
template <class T>
inline T __ldcs(const T* p) {
  return *p;
}
template <class T>
inline void __stcg(T* p, T x) {
  *p = x;
}
template <class T>
inline void __stcs(T* p, T x) {
  *p = x;
}
inline float __uint_as_float(unsigned x) {
  float f;
  memcpy(&f, &x, 4);
  return f;
}
inline unsigned __float_as_uint(float x) {
  unsigned f;
  memcpy(&f, &x, 4);
  return f;
}
inline int __float_as_int(float x) { return (int)__float_as_uint(x); }
inline float __int_as_float(int x) { return __uint_as_float((unsigned)x); }
inline float __fdividef(float a, float b) { return a / b; }
inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
inline float __fmul_ru(float a, float b) {
  const double x = (double)a * b;  // exact
  const float y = (float)x;
  return y < x ? nextafterf(y, INFINITY) : y;
}
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }
inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)(((uint64_t)a * b) >> 32); }
inline unsigned __byte_perm(unsigned a, unsigned b, unsigned s) {
  uint64_t v = (uint64_t)b << 32 | a;
  unsigned r = 0;
  for (int i = 0; i < 4; i++) r |= (unsigned)((v >> (8 * ((s >> (4 * i)) & 7))) & 255) << (8 * i);
  return r;
}
inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
inline void sincospif(float x, float* s, float* c) {
  *s = (float)sin(M_PI * (double)x);
  *c = (float)cos(M_PI * (double)x);
}
template <class T>
inline T min(T a, T b) {
  return b < a ? b : a;
}
template <class T>
inline T max(T a, T b) {
  return a < b ? b : a;
}
inline long long min(long long a, long b) { return b < a ? b : a; }
inline long long max(long long a, long b) { return a < b ? b : a; }
