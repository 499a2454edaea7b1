// How decode cuts its work. A request's keys are cut into units of 16 or 32 tokens, its rows (all query rows and heads of one KV head) into
// tiles; a segment is one tile of one KV head of one request with all of its units. The units of all segments stand in one line
// (request, KV head, tile, unit), and every block takes an equal run of it, so that batches of any lengths stay balanced while the grid
// depends on nothing but the device: a captured launch serves every batch.
#pragma once
#include "kernel.cuh"

namespace gaze {

// Request is what decode must know of one request.
struct Request {
  int keys;       // S_b
  int rows;       // L_b
  int first;      // the first unit that any row sees
  int units;      // of every segment, at least 1: a segment without keys still writes its rows
  int tiles;      // of every KV head, 0 without rows
  int64_t row0;   // its first row of q and out
  bool bad;       // its rows become 0

  __device__ __forceinline__ int64_t all_units(int kv_heads) const { return (int64_t)kv_heads * tiles * units; }
};

// blame reports what is wrong with request b: the first of what load_request takes for bad. Out of line, since code that is there but not
// run costs time too: a first run fetches it.
inline __device__ __noinline__ void blame(const DecodeParams &p, int b) {
  auto fault = [&](uint32_t reason, int64_t got, int64_t want) { report(p.fault, p.op, reason, b, got, want); };
  if (p.cum_seq_lens_q != nullptr) {
    const int from = p.cum_seq_lens_q[b], to = p.cum_seq_lens_q[b + 1];
    if (to < from) return fault(FAULT_Q_LEN_NEGATIVE, to, from);
    if (from < 0 || to > p.tokens) return fault(FAULT_Q_ROWS, from < 0 ? from : to, p.tokens);
    if (to - from > p.max_q_len) return fault(FAULT_Q_LEN_MAX, to - from, p.max_q_len);
  }
  const int keys = p.seq_lens[b];
  const int64_t room = (int64_t)p.max_pages * p.page_size;
  if (keys < 0) fault(FAULT_SEQ_LEN_NEGATIVE, keys, 0);
  else if (keys > room) fault(FAULT_SEQ_LEN_TABLE, keys, room);
  else fault(FAULT_SEQ_LEN_MAX, keys, p.max_seq_len);
}

// blame_page reports a page of request b.
inline __device__ __noinline__ void blame_page(const DecodeParams &p, int b, int page) { report(p.fault, p.op, FAULT_PAGE, b, page, p.pages); }

// load_request reads and judges request b, of `keys` keys. Unit: the tokens of a unit, TileRows: the rows of a tile.
template <int Unit, int TileRows>
__device__ __forceinline__ Request load_request(const DecodeParams &p, int b, int keys) {
  Request r;
  r.keys = keys;
  r.bad = false;
  if (p.cum_seq_lens_q == nullptr) {
    r.rows = p.q_len;
    r.row0 = (int64_t)b * p.q_len;
  } else {
    const int from = p.cum_seq_lens_q[b], to = p.cum_seq_lens_q[b + 1];
    r.row0 = max(from, 0);
    r.rows = (int)max((int64_t)0, min((int64_t)to, p.tokens) - r.row0);
    r.bad = to < from || from < 0 || to > p.tokens || r.rows > p.max_q_len;
    if (to < from) r.rows = 0;
  }
  r.bad |= (uint32_t)r.keys > (uint32_t)p.max_seq_len || r.keys > (int64_t)p.max_pages * p.page_size;
  if (r.bad) r.keys = 0;
  r.first = 0;
  if (p.window_left >= 0) r.first = (int)(max((int64_t)0, (int64_t)r.keys - r.rows - p.window_left) / Unit);
  r.units = max(1, (int)(((uint32_t)r.keys + Unit - 1) / Unit) - r.first);
  r.tiles = (r.rows * p.group + TileRows - 1) / TileRows;
  return r;
}

// Cursor stands on one unit of the line.
struct Cursor {
  int b;     // request
  int head;  // KV head
  int tile;  // of the head
  int unit;  // of the segment
  Request r;

  // advance moves on by n units. Past the end of the line it stands on request B.
  template <int Unit, int TileRows>
  __device__ __forceinline__ void advance(const DecodeParams &p, int n) {
    unit += n;
    while (b < p.batch && unit >= r.units) {
      unit -= r.units;
      if (++tile < r.tiles) continue;
      tile = 0;
      if (++head < p.kv_heads) continue;
      head = 0;
      do {
        if (++b < p.batch) r = load_request<Unit, TileRows>(p, b, p.seq_lens[b]);
      } while (b < p.batch && r.tiles == 0);
    }
  }
};

// Plan is how the line is cut: block i's run begins at ⌊total·i/blocks⌋.
struct Plan {
  int64_t total;  // units in the line
  int blocks;     // that have any

  __device__ __forceinline__ int64_t begin_of(int block) const { return total * block / blocks; }
  // owner is the block whose run holds unit x.
  __device__ __forceinline__ int owner(int64_t x) const { return (int)(((x + 1) * blocks - 1) / total); }
};

// choose_blocks spreads the units, enough for `most` blocks, over those or fewer: where that costs few blocks, so that segments of equal
// length are cut alike or not at all.
__device__ __forceinline__ int choose_blocks(int64_t segments, int most) {
  int even = most;
  if (segments <= most) {
    even = most - most % (int)segments;
  } else if (segments >> 31 == 0) {
    const uint32_t each = ((uint32_t)segments + most - 1) / most;
    even = (int)(((uint32_t)segments + each - 1) / each);
  }
  return even * 16 >= most * 15 ? even : most;
}

// PlanShared is the shared memory of a plan.
struct PlanShared {
  int64_t units[32], segments[32];  // of each warp's requests
  int64_t begin;                    // this block's first unit
  Plan plan;
};

// make_plan is one scan over the requests' lengths by the whole block, or, where there are few, by every warp, or none for one. It gives
// the number of units of this block's run, 0 for none, and its first in `at`. No block gets fewer than params.min_units, or Least, or a
// segment. Where two blocks share a multiprocessor (PerSM) but there are few units and fewer segments than multiprocessors, every other
// block stays idle: there is no segment's end for another block's work to hide, and a segment in fewer parts is merged sooner.
//
// It stands between a launch and its first key, so it has no division that can be had otherwise, and keys[lane], the `keys`, were asked for
// by the kernel's first instructions. The last block reports faults: with few keys it has nothing else to do.
template <int Threads, int Unit, int TileRows, int Least, int PerSM>
__device__ __forceinline__ int make_plan(const DecodeParams &p, int keys, PlanShared &s, Cursor &at) {
  constexpr int kWarps = Threads / 32, kMostBlocks = 1 << 15, kMostSegments = 1 << 26, kFew = 128;  // kFew: units of a block, by measurement
  const int tid = threadIdx.x, lane = tid % 32, warp = tid / 32;
  const bool reports = blockIdx.x == gridDim.x - 1, few = p.batch <= 32, one = p.batch == 1;
  const int each = (p.batch + Threads - 1) / Threads;
  const int from = one ? 0 : few ? min(lane, p.batch) : (int)min((int64_t)tid * each, (int64_t)p.batch), to = min(from + each, p.batch);
  int64_t units = 0, segments = 0;
  Request r;
#pragma unroll 1
  for (int b = from; b < to; b++) {
    r = load_request<Unit, TileRows>(p, b, few ? keys : p.seq_lens[b]);
    if (r.bad && reports) blame(p, b);
    units += r.all_units(p.kv_heads);
    segments += (int64_t)p.kv_heads * r.tiles;
  }
  if (reports && tid == 0 && p.cum_seq_lens_q != nullptr) {
    if (p.cum_seq_lens_q[0] != 0) report(p.fault, p.op, FAULT_Q_ROWS, -1, p.cum_seq_lens_q[0], p.tokens);
    if (p.cum_seq_lens_q[p.batch] != p.tokens) report(p.fault, p.op, FAULT_Q_ROWS, -1, p.cum_seq_lens_q[p.batch], p.tokens);
  }
  Plan plan;
  plan.total = units;
  int64_t before = 0;  // units of the threads before this one
  if (!one) {
    before = units;
#pragma unroll
    for (int d = 1; d < 32; d *= 2) {
      const int64_t x = __shfl_up_sync(~0u, before, d);
      if (lane >= d) before += x;
    }
    plan.total = __shfl_sync(~0u, before, 31);
    before -= units;
    segments = __reduce_add_sync(~0u, (uint32_t)min(segments, (int64_t)kMostSegments));  // more than blocks is all that matters
  }
  if (!few) {
    if (lane == 0) {
      s.units[warp] = plan.total;
      s.segments[warp] = segments;
    }
    __syncthreads();
    plan.total = segments = 0;
#pragma unroll
    for (int w = 0; w < kWarps; w++) {
      if (w < warp) before += s.units[w];
      plan.total += s.units[w];
      segments += s.segments[w];
    }
  }
  if (plan.total == 0) return 0;
  const int64_t thin = p.min_units > 0 ? plan.total / p.min_units : max(segments, plan.total / Least);
  int grid = min((int)gridDim.x, kMostBlocks);
  if (PerSM == 2 && TileRows == 8 && segments <= grid / 2 && plan.total <= (int64_t)kFew * (grid / 2)) grid /= 2;
  plan.blocks = choose_blocks(segments, (int)max((int64_t)1, min((int64_t)grid, thin)));
  const int block = blockIdx.x;
  if (block >= plan.blocks) return 0;
  const int64_t base = plan.total / plan.blocks;
  const uint32_t rest = (uint32_t)(plan.total - base * plan.blocks), parts = rest * block, more = parts / plan.blocks;
  const int64_t begin = base * block + more;
  const int count = (int)base + (parts - more * plan.blocks + rest >= (uint32_t)plan.blocks);
  if ((one ? tid == 0 : !few || warp == 0) && begin >= before && begin < before + units) {  // one thread: its requests hold the first unit
    int b = from;
#pragma unroll 1
    for (;; b++) {
      if (each > 1) r = load_request<Unit, TileRows>(p, b, p.seq_lens[b]);
      const int64_t n = r.all_units(p.kv_heads);
      if (begin < before + n) break;
      before += n;
    }
    const uint64_t offset = begin - before;
    const int segment = (int)(offset / (uint32_t)r.units);
    at.b = b;
    at.r = r;
    at.head = r.tiles == 1 ? segment : segment / r.tiles;
    at.tile = segment - at.head * r.tiles;
    at.unit = (int)(offset - (int64_t)segment * r.units);
    s.begin = begin;
    s.plan = plan;
  }
  __syncthreads();
  return count;
}

}  // namespace gaze
