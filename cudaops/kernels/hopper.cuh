// Hopper's own instructions: mbarriers, bulk tensor copies, warpgroup products. emu/hopper_emu.h gives the same names on a CPU.
#pragma once
#include "kernel.cuh"

#ifdef GAZE_EMU
#include "emu/hopper_emu.h"
#else

namespace gaze {

// ---- mbarriers, by shared memory address ----

__device__ __forceinline__ void barrier_init(uint32_t bar, uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(arrivals) : "memory");
}
__device__ __forceinline__ void barrier_init_fence() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
__device__ __forceinline__ void barrier_arrive(uint32_t bar) { asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(bar) : "memory"); }
__device__ __forceinline__ void barrier_expect(uint32_t bar, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes) : "memory");
}
// barrier_wait waits until the phase of that parity is over.
__device__ __forceinline__ void barrier_wait(uint32_t bar, uint32_t parity) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "wait:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n"
      "@p bra done;\n"
      "bra wait;\n"
      "done:\n"
      "}" ::"r"(bar), "r"(parity) : "memory");
}

// ---- other synchronisation ----

// Makes ordinary writes to shared memory visible to bulk copies and warpgroup products that are ordered after this thread.
__device__ __forceinline__ void fence_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
__device__ __forceinline__ void group_sync(int id, int threads) { asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory"); }
__device__ __forceinline__ void group_arrive(int id, int threads) { asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory"); }
template <int N>
__device__ __forceinline__ void registers_up() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}
template <int N>
__device__ __forceinline__ void registers_down() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}

// ---- bulk tensor copies ----

__device__ __forceinline__ void prefetch_map(const void *map) { asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory"); }
// Copies the map's box at element coordinates (c0, c1, c2, c3) to shared memory and counts its bytes on the barrier.
__device__ __forceinline__ void copy_box(uint32_t dst, const void *map, uint32_t bar, int c0, int c1, int c2, int c3) {
  asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6}], [%2];" ::"r"(dst), "l"(map),
               "r"(bar), "r"(c0), "r"(c1), "r"(c2), "r"(c3)
               : "memory");
}

// ---- warpgroup products ----

// A tile in shared memory with 128-byte swizzling, by address: rows (or k) in groups of 8 at `group` bytes, and for tiles whose long side
// is contiguous, blocks of 64 elements of it at `block` bytes.
__device__ __forceinline__ uint64_t swizzled_tile(uint32_t address, uint32_t group, uint32_t block) {
  return (uint64_t)1 << 62 | (uint64_t)(group >> 4) << 32 | (uint64_t)(block >> 4 & 0x3fff) << 16 | (address >> 4 & 0x3fff);
}
// tile_at is the tile `bytes` further on.
__device__ __forceinline__ uint64_t tile_at(uint64_t tile, uint32_t bytes) { return tile >> 32 << 32 | (uint32_t)((uint32_t)tile + (bytes >> 4)); }
// opaque keeps the compiler from computing what follows from x before a loop and carrying it through in registers.
__device__ __forceinline__ void opaque(uint32_t &x) { asm volatile("" : "+r"(x)); }
__device__ __forceinline__ void wgmma_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int Pending>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(Pending) : "memory");
}
// The compiler must not move uses of these registers across.
template <int N>
__device__ __forceinline__ void pin(float (&d)[N][4]) {
#pragma unroll
  for (int n = 0; n < N; n++)
#pragma unroll
    for (int k = 0; k < 4; k++) asm volatile("" : "+f"(d[n][k])::"memory");
}

// d (+)= a·b for 64 rows of the warpgroup, N = 8·Cols columns and 16 of k. ss: a and b in shared memory, rows of both along k; add: to
// what d holds. rs: a in registers as for mma16816, b in shared memory with its columns contiguous; always added.
template <class T, int Cols>
struct Wgmma;

// The sums of Cols columns of 8, in the instruction's text and among its operands.
#define GAZE_NAMES_8 "%0, %1, %2, %3, %4, %5, %6, %7" ", " "%8, %9, %10, %11, %12, %13, %14, %15" \
  ", " "%16, %17, %18, %19, %20, %21, %22, %23" ", " "%24, %25, %26, %27, %28, %29, %30, %31"
#define GAZE_NAMES_10 GAZE_NAMES_8 ", " "%32, %33, %34, %35, %36, %37, %38, %39"
#define GAZE_NAMES_12 GAZE_NAMES_10 ", " "%40, %41, %42, %43, %44, %45, %46, %47"
#define GAZE_NAMES_16 GAZE_NAMES_12 ", " "%48, %49, %50, %51, %52, %53, %54, %55" ", " "%56, %57, %58, %59, %60, %61, %62, %63"
#define GAZE_NAMES_24 GAZE_NAMES_16 ", " "%64, %65, %66, %67, %68, %69, %70, %71" ", " "%72, %73, %74, %75, %76, %77, %78, %79" \
  ", " "%80, %81, %82, %83, %84, %85, %86, %87" ", " "%88, %89, %90, %91, %92, %93, %94, %95"
#define GAZE_NAMES_32 GAZE_NAMES_24 ", " "%96, %97, %98, %99, %100, %101, %102, %103" ", " "%104, %105, %106, %107, %108, %109, %110, %111" \
  ", " "%112, %113, %114, %115, %116, %117, %118, %119" ", " "%120, %121, %122, %123, %124, %125, %126, %127"
#define GAZE_SUM(n) "+f"(d[n][0]), "+f"(d[n][1]), "+f"(d[n][2]), "+f"(d[n][3])
#define GAZE_SUMS_8 GAZE_SUM(0), GAZE_SUM(1), GAZE_SUM(2), GAZE_SUM(3), GAZE_SUM(4), GAZE_SUM(5), GAZE_SUM(6), GAZE_SUM(7)
#define GAZE_SUMS_10 GAZE_SUMS_8, GAZE_SUM(8), GAZE_SUM(9)
#define GAZE_SUMS_12 GAZE_SUMS_10, GAZE_SUM(10), GAZE_SUM(11)
#define GAZE_SUMS_16 GAZE_SUMS_12, GAZE_SUM(12), GAZE_SUM(13), GAZE_SUM(14), GAZE_SUM(15)
#define GAZE_SUMS_24 GAZE_SUMS_16, GAZE_SUM(16), GAZE_SUM(17), GAZE_SUM(18), GAZE_SUM(19), GAZE_SUM(20), GAZE_SUM(21), GAZE_SUM(22), GAZE_SUM(23)
#define GAZE_SUMS_32 GAZE_SUMS_24, GAZE_SUM(24), GAZE_SUM(25), GAZE_SUM(26), GAZE_SUM(27), GAZE_SUM(28), GAZE_SUM(29), GAZE_SUM(30), GAZE_SUM(31)

// Operands are numbered from A on behind the sums.
#define GAZE_WGMMA(T, Cols, N, A, B, C, D, E)                                                                               \
  template <>                                                                                                               \
  struct Wgmma<T, Cols> {                                                                                                   \
    static __device__ __forceinline__ void ss(float (&d)[Cols][4], uint64_t a, uint64_t b, bool add) {                      \
      asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #C ", 0;\nwgmma.mma_async.sync.aligned.m64n" #N "k16.f32." #T "." #T \
                   " {" GAZE_NAMES_##Cols "}, %" #A ", %" #B ", p, 1, 1, 0, 0;\n}\n"                                         \
                   : GAZE_SUMS_##Cols                                                                                       \
                   : "l"(a), "l"(b), "r"((int)add));                                                                        \
    }                                                                                                                       \
    static __device__ __forceinline__ void rs(float (&d)[Cols][4], const uint32_t (&a)[4], uint64_t b) {                    \
      asm volatile("{\n.reg .pred p;\nsetp.eq.b32 p, 0, 0;\nwgmma.mma_async.sync.aligned.m64n" #N "k16.f32." #T "." #T       \
                   " {" GAZE_NAMES_##Cols "}, {%" #A ", %" #B ", %" #C ", %" #D "}, %" #E ", p, 1, 1, 1;\n}\n"               \
                   : GAZE_SUMS_##Cols                                                                                       \
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));                                                   \
    }                                                                                                                       \
  };
#define GAZE_WGMMAS(T)                       \
  GAZE_WGMMA(T, 8, 64, 32, 33, 34, 35, 36)   \
  GAZE_WGMMA(T, 10, 80, 40, 41, 42, 43, 44)  \
  GAZE_WGMMA(T, 12, 96, 48, 49, 50, 51, 52)  \
  GAZE_WGMMA(T, 16, 128, 64, 65, 66, 67, 68) \
  GAZE_WGMMA(T, 24, 192, 96, 97, 98, 99, 100) \
  GAZE_WGMMA(T, 32, 256, 128, 129, 130, 131, 132)
GAZE_WGMMAS(bf16)
GAZE_WGMMAS(f16)

}  // namespace gaze
#endif
