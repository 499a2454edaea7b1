// What every kernel file starts with: how a kernel is declared, shared memory, faults, and waiting for the kernel before.
#pragma once
#include "launch.h"
#include "num.cuh"
#include "params.h"
#include "ptx.cuh"

#define GAZE_JOIN_(a, b) a##_##b
#define GAZE_JOIN(a, b) GAZE_JOIN_(a, b)

#ifndef GAZE_TARGET
#define GAZE_TARGET sm80
#endif

// GAZE_SM90: compiled for sm_90a and nothing else, with 227 KB of shared memory a block and Hopper's instructions.
#if defined(__CUDA_ARCH_FEAT_SM90_ALL) || defined(GAZE_EMU_SM90)
#define GAZE_SM90 1
#else
#define GAZE_SM90 0
#endif

namespace gaze {
// Aligned lets a parameter struct hold tensor maps, which must lie at multiples of 64 bytes.
template <class P>
struct alignas(sizeof(P) % 64 == 0 ? 64 : 8) Aligned : P {};
}  // namespace gaze

// KERNEL(symbol without its target, params struct, threads, blocks a multiprocessor) { body that reads p }
#ifndef GAZE_EMU
#define KERNEL(name, Params, threads, blocks) \
  extern "C" __global__ void __launch_bounds__(threads, blocks) GAZE_JOIN(name, GAZE_TARGET)(const __grid_constant__ gaze::Aligned<Params> p)
#define SHARED(name) extern __shared__ __align__(1024) uint8_t name[]
#define STATIC_SHARED(name, bytes) __shared__ __align__(128) uint8_t name[bytes]
#else
#define GAZE_TEXT_(a) #a
#define GAZE_TEXT(a) GAZE_TEXT_(a)
#define KERNEL(name, Params, threads, blocks)                                                                                        \
  static void name##_run(const Params &p);                                                                                           \
  static struct name##_entry {                                                                                                       \
    name##_entry() { emu::add(GAZE_TEXT(GAZE_JOIN(name, GAZE_TARGET)), sizeof(Params), [](const void *q) { name##_run(*(const Params *)q); }); } \
  } name##_added;                                                                                                                    \
  static void name##_run(const Params &p)
#define SHARED(name) uint8_t *name = emu::shared
#define STATIC_SHARED(name, bytes) uint8_t *name = (emu::shared_bytes = bytes, emu::shared)
#endif

// LAUNCH_FACTS(DECODE_128_R8) is this target's line of launch.h.
#define LAUNCH_FACTS_(name) gaze::LaunchFacts{name}
#if GAZE_SM90
#define LAUNCH_FACTS(name) LAUNCH_FACTS_(GAZE_##name##_SM90A)
#else
#define LAUNCH_FACTS(name) LAUNCH_FACTS_(GAZE_##name##_SM80)
#endif

namespace gaze {

struct LaunchFacts {
  int threads, shared, rows, blocks;
  constexpr bool are(int t, int s, int r, int b) const { return threads == t && shared == s && rows == r && blocks == b; }
};

constexpr float kLog2e = 1.4426950408889634f;
constexpr float kLn2 = 0.6931471805599453f;

#define GAZE_INF __int_as_float(0x7f800000)
#define GAZE_NAN __int_as_float(0x7fffffff)
#define GAZE_MAX __int_as_float(0x7f7fffff)  // the largest finite number

// base2 is what exponents base 2 take in the place of factor_of(scale): finite where the scale is.
__device__ __forceinline__ float base2(float scale) {
  const float x = factor_of(scale) * kLog2e;
  return x == GAZE_INF && factor_of(scale) <= GAZE_MAX ? GAZE_MAX : x;
}

// The sum of a row's weights begins with kFaint where the row sees a key, and with 0 where it sees none. A score above -inf makes an end of
// it: that score's own weight is 1 or more, or nearly. So at the end what is 0 is a row without keys, whose output is 0, and what is_faint one whose
// scores are all -inf, which the formula makes NaN.
constexpr float kFaint = 1.4e-45f;
__device__ __forceinline__ bool is_faint(float sum) { return sum > 0 && sum < 0.5f; }

// report keeps the first fault.
__device__ inline void report(Fault *f, uint32_t op, uint32_t reason, int64_t request, int64_t got, int64_t want) {
  if (atomicCAS(&f->reason, 0u, reason) == 0u) {
    f->op = op;
    f->request = request;
    f->got = got;
    f->want = want;
  }
}

__device__ __forceinline__ bool aligned16(const void *p) { return (reinterpret_cast<uintptr_t>(p) & 15) == 0; }

// Vec is N elements that are loaded and stored at once.
template <class T, int N>
struct alignas(N * sizeof(T) < 16 ? N * sizeof(T) : 16) Vec {
  T x[N];
};
template <class T>
using Vec16 = Vec<T, 16 / sizeof(T)>;

__device__ __forceinline__ float warp_sum(float x) {
#pragma unroll
  for (int d = 16; d > 0; d /= 2) x += __shfl_xor_sync(~0u, x, d);
  return x;
}

}  // namespace gaze
