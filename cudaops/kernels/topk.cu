// The k largest elements of each row, in order, and their columns: a radix select, then a sort of what it selects. A block a row.
//
// An element's rank is an integer: its bits made monotonic, and below them its column, counted from the end. So ranks are all different,
// and the order of equal elements needs no care.
#include "kernel.cuh"

namespace gaze {

// ordered maps an element to an integer that is larger where it is. NaN gives 0, less than -inf; -0 is 0.
__device__ __forceinline__ uint32_t ordered(float x) {
  const uint32_t b = __float_as_uint(x);
  if (x != x) return 0;
  if (b == 0x80000000u) return b;
  return b >> 31 ? ~b : b | 0x80000000u;
}
template <class T>
__device__ __forceinline__ uint32_t ordered(T x) {
  const uint32_t b = *reinterpret_cast<const uint16_t *>(&x);
  if ((b & 0x7fff) > 0x8000 - kExponentOne<T>) return 0;
  if (b == 0x8000) return b;
  return b >> 15 ? b ^ 0xffff : b | 0x8000;
}

template <class T>
struct Row {
  const T *x;
  int64_t n;
  int column_bits;

  __device__ __forceinline__ Row(const T *row, int64_t columns) : x(row), n(columns), column_bits(32 - __clz((int)(columns - 1))) {}

  __device__ __forceinline__ int rank_bits() const { return 8 * (int)sizeof(T) + column_bits; }
  __device__ __forceinline__ uint64_t rank(T v, int64_t i) const { return (uint64_t)ordered(v) << column_bits | (uint64_t)(n - 1 - i); }
  __device__ __forceinline__ int64_t column(uint64_t rank) const { return n - 1 - (int64_t)(rank & ((1ull << column_bits) - 1)); }

  // each visits the rank of every element, a share of them a thread.
  template <class F>
  __device__ __forceinline__ void each(F visit) const {
    constexpr int N = 16 / sizeof(T);
    const int64_t wide = aligned16(x) ? n / N * N : 0;
    for (int64_t i = (int64_t)threadIdx.x * N; i < wide; i += (int64_t)blockDim.x * N) {
      const Vec<T, N> v = *reinterpret_cast<const Vec<T, N> *>(x + i);
#pragma unroll
      for (int k = 0; k < N; k++) visit(rank(v.x[k], i + k));
    }
    for (int64_t i = wide + threadIdx.x; i < n; i += blockDim.x) visit(rank(x[i], i));
  }
};

constexpr int kThreads = 1024;  // of a block, and the most that k may be
constexpr int kDigit = 10;      // bits, so that each thread has one bin

struct TopKShared {
  uint64_t best[kThreads];
  uint32_t bins[kThreads];
  uint64_t low[32];    // of each warp
  uint32_t total[32];  // of each warp
  uint32_t bin, count, before, taken;
};

// block_min is the least x of the block's threads.
__device__ __forceinline__ uint64_t block_min(TopKShared &s, uint64_t x) {
#pragma unroll
  for (int d = 16; d > 0; d /= 2) x = min(x, __shfl_xor_sync(~0u, x, d));
  if (threadIdx.x % 32 == 0) s.low[threadIdx.x / 32] = x;
  __syncthreads();
  x = s.low[threadIdx.x % 32];
#pragma unroll
  for (int d = 16; d > 0; d /= 2) x = min(x, __shfl_xor_sync(~0u, x, d));
  return x;
}

// block_scan is the sum of x over the threads up to this one.
__device__ __forceinline__ uint32_t block_scan(TopKShared &s, uint32_t x) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
  for (int d = 1; d < 32; d *= 2) {
    const uint32_t y = __shfl_up_sync(~0u, x, d);
    if (lane >= d) x += y;
  }
  if (lane == 31) s.total[warp] = x;
  __syncthreads();
  for (int w = 0; w < warp; w++) x += s.total[w];
  return x;
}

// Selected says which ranks are the k highest: those with rank >> shift ≥ prefix.
struct Selected {
  uint64_t prefix;
  int shift;
};

// select finds the digits of the k-th highest rank, the highest first, until the ranks with these digits are all among the k. Ranks below
// floor are known not to be.
template <class T>
__device__ __forceinline__ Selected select(TopKShared &s, const Row<T> &row, uint32_t k, uint64_t floor) {
  Selected at = {0, row.rank_bits()};
  bool all = false;
  while (at.shift > 0 && !all) {
    const int digit = min(at.shift, kDigit), above = at.shift;
    at.shift -= digit;
    s.bins[threadIdx.x] = 0;
    __syncthreads();
    row.each([&](uint64_t r) {
      if (r >= floor && r >> above == at.prefix) atomicAdd(&s.bins[(r >> at.shift) & ((1u << digit) - 1)], 1u);
    });
    __syncthreads();
    const uint32_t bin = kThreads - 1 - threadIdx.x, count = s.bins[bin], upto = block_scan(s, count);
    if (upto >= k && upto - count < k) {
      s.bin = bin;
      s.count = count;
      s.before = upto - count;
    }
    __syncthreads();
    at.prefix = at.prefix << digit | s.bin;
    k -= s.before;
    all = s.count == k;
  }
  return at;
}

// sort puts n ranks, a power of 2, in descending order (Batcher's bitonic sort).
__device__ __forceinline__ void sort(uint64_t *x, int n) {
  for (int size = 2; size <= n; size *= 2) {
    for (int stride = size / 2; stride > 0; stride /= 2) {
      if ((int)threadIdx.x < n / 2) {
        const int lo = 2 * threadIdx.x - (threadIdx.x & (stride - 1)), hi = lo + stride;
        const uint64_t a = x[lo], b = x[hi];
        if ((a < b) == ((lo & size) == 0)) x[lo] = b, x[hi] = a;
      }
      __syncthreads();
    }
  }
}

template <class T>
__device__ __forceinline__ void topk(const TopKParams &p) {
  STATIC_SHARED(smem, sizeof(TopKShared));
  TopKShared &s = *reinterpret_cast<TopKShared *>(smem);
  grid_wait();
  grid_launch_next();
  int n = 1;
  while (n < p.k) n *= 2;
  for (int64_t r = blockIdx.x; r < p.rows; r += gridDim.x) {
    const Row<T> row(static_cast<const T *>(p.logits) + r * p.logits_row, p.columns);
    // The highest ranks of k threads or more are k ranks at or above the lowest of them: most others need no further look.
    uint64_t highest = 0;
    row.each([&](uint64_t r) { highest = max(highest, r); });
    const uint64_t floor = block_min(s, highest);
    const Selected at = select(s, row, p.k, floor);
    s.best[threadIdx.x] = 0;
    if (threadIdx.x == 0) s.taken = 0;
    __syncthreads();
    row.each([&](uint64_t r) {
      if (r >= floor && r >> at.shift >= at.prefix) {
        const uint32_t i = atomicAdd(&s.taken, 1u);
        if (i < kThreads) s.best[i] = r;  // always, unless somebody writes the row meanwhile
      }
    });
    __syncthreads();
    sort(s.best, n);
    if ((int)threadIdx.x < p.k) {
      const int64_t column = row.column(s.best[threadIdx.x]), i = r * p.k + threadIdx.x;
      p.values[i] = to_f32(row.x[column]);
      p.indices[i] = (int32_t)column;
    }
    __syncthreads();
  }
}

}  // namespace gaze

KERNEL(topk_f32, TopKParams, 1024, 1) { gaze::topk<float>(p); }
KERNEL(topk_f16, TopKParams, 1024, 1) { gaze::topk<gaze::f16>(p); }
KERNEL(topk_bf16, TopKParams, 1024, 1) { gaze::topk<gaze::bf16>(p); }
