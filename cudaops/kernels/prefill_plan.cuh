// How prefill finds its work: tiles of 128 rows in the order request, rows from the last to the first, KV head, so that with a causal mask
// the last tiles are the light ones; but only as many heads together as have keys and values that L2 holds beside other things. Blocks draw
// numbers from a counter, so the grid depends on nothing, and walk the requests' lengths to find the tile of a number.
#pragma once
#include "kernel.cuh"

namespace gaze {

constexpr int kTileRows = 128;
constexpr int kTogether = 1 << 23;  // elements of K and V of heads whose tiles alternate

// Beyond it, exponents are taken from differences of scores instead of from differences of their products with the scale, whose rounding
// would be a sizeable part of an exponent.
constexpr float kFar = 1024;

// Tile is one piece of work. Past the last one b is B, and o_base the element of out behind the last row of any request.
struct Tile {
  int b;            // request
  int head;         // KV head
  int row0;         // first row r = i·G + g; L_b·G rows of a request are fewer than 2³¹
  int query0;       // its i
  int group0;       // and g
  int rows;         // L_b, what of it may be written
  int keys;         // S_b, 0 for bad requests
  int bad;          // its rows become 0
  int64_t q_base;   // elements, of the request's first row
  int64_t o_base;
  int64_t key0;     // ragged: the first key's row, where keys are packed
  int64_t k_base;   // ragged: elements, of the first key of the KV head
  int64_t v_base;
  int64_t lse_base; // -1: not to be written
};

// Split tells the query row and the head of a tile's rows by a multiplication.
struct Split {
  const int group;  // G
  const uint32_t inverse;

  __device__ __forceinline__ explicit Split(int group) : group(group), inverse((1u << 24) / group + 1) {}

  // query gives i - query0 of row n < 128 of a tile, exactly while G < 3,500 or so.
  __device__ __forceinline__ int query(int group0, int n) const { return (group0 + n) * inverse >> 24; }
  // head gives that row's g.
  __device__ __forceinline__ int head(int group0, int n) const { return group0 + n - query(group0, n) * group; }
};

// offset is the b-th of batch offsets of so many bytes.
__device__ __forceinline__ int64_t offset(const void *x, int bytes, int b) {
  return bytes == 8 ? static_cast<const int64_t *>(x)[b] : static_cast<const int32_t *>(x)[b];
}

// own_rows is how many of the n rows that request i claims of the output, from element `base` on and o_token apart, no other request begins
// in. It finds them by halves: a division would be a call, which costs the kernel registers.
__device__ __forceinline__ int own_rows(const PrefillParams &p, int64_t o_token, int i, int64_t base, int n) {
  int64_t room = p.tokens * o_token - base;
#pragma unroll 1
  for (int j = 0; j < p.batch; j++) {
    const int64_t ahead = offset(p.offsets_o, p.offset_bytes_o, j) - base;
    if (j != i && p.q_lens[j] > 0 && ahead >= 0) room = min(room, ahead);
  }
  int own = 0;
#pragma unroll 1
  for (int step = 1 << 30; step > 0; step /= 2)
    if (own + step <= n && (own + step) * o_token <= room) own += step;
  return own;
}

// Scheduler is one warp's walk over the requests.
struct Scheduler {
  const PrefillParams &p;
  const int lane, dqk, dvo;
  int64_t number;  // of the tile to find
  int b;           // requests before this one hold so many tiles, query rows and keys:
  int64_t tiles, rows, keys;
  int64_t beyond;  // the tiles of the request found last
  int each;        // tiles of each of its heads
  int64_t end;     // elements of out up to behind the last row of the requests that this lane has judged

  __device__ __forceinline__ Scheduler(const PrefillParams &p, int64_t number, int dqk, int dvo)
      : p(p), lane(threadIdx.x % 32), dqk(dqk), dvo(dvo), number(number), b(0), tiles(0), rows(0), keys(0), beyond(0), each(0), end(0) {}

  // draw takes the next number, which seek waits for.
  __device__ __forceinline__ void draw() {
    if (lane == 0) number = (int64_t)gridDim.x + atomicAdd(&p.counters[0], 1u);
  }

  // leave is called once by every block when it has no more work. The last one sets the counters back.
  __device__ __forceinline__ void leave() const {
    if (atomicAdd(&p.counters[1], 1u) == gridDim.x - 1) {
      p.counters[0] = 0;
      p.counters[1] = 0;
    }
  }

  static __device__ __forceinline__ int64_t before_lane(int64_t x, int lane, int64_t &all) {
    int64_t sum = x;
#pragma unroll
    for (int d = 1; d < 32; d *= 2) {
      const int64_t y = __shfl_up_sync(~0u, sum, d);
      if (lane >= d) sum += y;
    }
    all = __shfl_sync(~0u, sum, 31);
    return sum - x;
  }

  // rows_before is what request i adds to the rows before the next one. Where both offsets say where rows lie, one that claims too many of
  // them takes none from the others.
  __device__ __forceinline__ int rows_before(int i) const {
    const int n = max(0, p.q_lens[i]);
    return n > p.max_q_len && p.offsets_q != nullptr && p.offsets_o != nullptr ? 0 : n;
  }

  // judge fills in what request `i`, whose rows and keys begin at `row` and `key`, has; block 0 reports what is wrong.
  __device__ __forceinline__ void judge(int i, int64_t row, int64_t key, Tile &x) const {
    const bool blame = blockIdx.x == 0;
    x.b = i;
    x.bad = 0;
    x.rows = max(0, p.q_lens[i]);
    x.keys = max(0, p.kv_lens[i]);
    auto fault = [&](uint32_t reason, int64_t got, int64_t want) {
      x.bad = 1;
      if (blame) report(p.fault, p.op, reason, i, got, want);
    };
    // In the order of the host's checks.
    const int want_rows = x.rows, want_keys = x.keys;
    const int64_t room = (int64_t)p.max_pages * p.page_size;
    if (p.q_lens[i] < 0) fault(FAULT_Q_LEN_NEGATIVE, p.q_lens[i], 0);
    if (want_rows > p.max_q_len) fault(FAULT_Q_LEN_MAX, want_rows, p.max_q_len);
    if (p.kv_lens[i] < 0) fault(FAULT_SEQ_LEN_NEGATIVE, p.kv_lens[i], 0);
    if (p.block_tables != nullptr && want_keys > room) fault(FAULT_SEQ_LEN_TABLE, want_keys, room);
    if (want_keys > p.max_kv_len) fault(FAULT_SEQ_LEN_MAX, want_keys, p.max_kv_len);
    if (row + want_rows > p.tokens) fault(FAULT_Q_ROWS, row + want_rows, p.tokens);
    // within tells whether n rows from `base` on, `stride` apart, lie in a tensor of `all` rows.
    auto within = [&](uint32_t reason, int64_t base, int64_t n, int64_t all, int64_t stride) {
      const int64_t most = (all - n) * stride;
      if (n == 0 || (base >= 0 && base <= most && all >= n)) return true;
      fault(reason, base, max((int64_t)0, most));
      return false;
    };
    const int64_t o_token = (int64_t)p.q_heads * dvo;
    x.q_base = row * p.q_token;
    x.o_base = row * o_token;
    if (p.offsets_q != nullptr) {
      x.q_base = offset(p.offsets_q, p.offset_bytes_q, i);
      within(FAULT_OFFSET_Q, x.q_base, want_rows, p.tokens, p.q_token);
    }
    if (p.offsets_o != nullptr) {
      x.o_base = offset(p.offsets_o, p.offset_bytes_o, i);
      if (want_rows > p.max_q_len) x.rows = own_rows(p, o_token, i, x.o_base, want_rows);
      if (!within(FAULT_OFFSET_O, x.o_base, x.rows, p.tokens, o_token)) x.rows = 0;
    } else {
      x.rows = (int)max((int64_t)0, min((int64_t)want_rows, p.tokens - row));
    }
    const int64_t dense = (int64_t)p.max_q_len * p.q_heads;
    x.lse_base = i * dense;
    if (p.offsets_stats != nullptr) {
      x.lse_base = offset(p.offsets_stats, p.offset_bytes_stats, i);
      within(FAULT_OFFSET_STATS, x.lse_base, (int64_t)want_rows * p.q_heads, p.batch * dense, 1);
    }
    x.key0 = key;
    x.k_base = x.v_base = 0;
    if (p.block_tables == nullptr) {
      const int looked_at = want_rows == 0 ? 0 : want_keys;
      x.k_base = key * p.k_token;
      x.v_base = key * p.v_token;
      if ((p.offsets_k == nullptr || p.offsets_v == nullptr) && key + want_keys > p.kv_tokens) fault(FAULT_KV_ROWS, key + want_keys, p.kv_tokens);
      if (p.offsets_k != nullptr) {
        x.k_base = offset(p.offsets_k, p.offset_bytes_k, i);
        within(FAULT_OFFSET_K, x.k_base, looked_at, p.kv_tokens, p.k_token);
      }
      if (p.offsets_v != nullptr) {
        x.v_base = offset(p.offsets_v, p.offset_bytes_v, i);
        within(FAULT_OFFSET_V, x.v_base, looked_at, p.kv_tokens, p.v_token);
      }
    }
    if (x.bad) {
      x.keys = 0;
      x.lse_base = -1;
    }
  }

  __device__ __forceinline__ int tiles_of(const Tile &x) const {
    return (int)(((int64_t)x.rows * (p.q_heads / p.kv_heads) + kTileRows - 1) / kTileRows);
  }

  // take makes x, a tile of the request or what judge says of it, the k-th of its tiles. There are fewer than 2³².
  __device__ __forceinline__ void take(Tile &x, uint32_t k, uint32_t each) const {
    const uint32_t g = p.q_heads / p.kv_heads, most = max(1, kTogether / (dqk + dvo) / max(1, x.keys));
    const uint32_t first = k / each / most * most, together = min(most, p.kv_heads - first);  // heads
    k -= first * each;
    const int head = first + k % together;
    x.row0 = (each - 1 - k / together) * kTileRows;
    x.query0 = x.row0 / g;
    x.group0 = x.row0 % g;
    if (p.block_tables == nullptr) {
      x.k_base += (head - x.head) * p.k_head;
      x.v_base += (head - x.head) * p.v_head;
    }
    x.head = head;
  }

  // seek finds the tile of `number` and writes it to shared memory. `last` is what it found before: most tiles are of the same request.
  // Numbers of successive calls rise. Behind the last one it gives request B, and in o_base the element of out behind the last row of any
  // request.
  __device__ __forceinline__ void seek(Tile &found, const Tile &last) {
    number = __shfl_sync(~0u, number, 0);
    if (number < beyond) {
      if (lane == 0) {
        Tile x = last;
        take(x, number - tiles, each);
        found = x;
      }
      return;
    }
    for (;;) {
      const int i = b + lane;
      const bool live = i < p.batch;
      int64_t all_rows, all_keys, all_tiles;
      const int64_t row = rows + before_lane(live ? rows_before(i) : 0, lane, all_rows);
      const int64_t key = keys + before_lane(live ? max(0, p.kv_lens[i]) : 0, lane, all_keys);
      Tile x;
      int n = 0;
      if (live) {
        judge(i, row, key, x);
        n = tiles_of(x);
        if (n > 0) end = max(end, x.o_base + (int64_t)x.rows * p.q_heads * dvo);
      }
      const int64_t mine = (int64_t)n * p.kv_heads, before = tiles + before_lane(mine, lane, all_tiles);
      const bool here = number >= before && number < before + mine;
      const uint32_t hit = __ballot_sync(~0u, here);
      if (hit != 0) {
        if (here) {
          x.head = 0;
          take(x, number - before, n);
          found = x;
        }
        const int from = __ffs(hit) - 1;  // go on from this request
        b += from;
        tiles = __shfl_sync(~0u, before, from);
        rows = __shfl_sync(~0u, row, from);
        keys = __shfl_sync(~0u, key, from);
        each = __shfl_sync(~0u, n, from);
        beyond = tiles + (int64_t)each * p.kv_heads;
        return;
      }
      if (b + 32 >= p.batch) {
#pragma unroll
        for (int d = 16; d > 0; d /= 2) end = max(end, __shfl_xor_sync(~0u, end, d));
        if (lane == 0) {
          found.b = p.batch;
          found.o_base = end;
        }
        return;
      }
      b += 32;
      tiles += all_tiles;
      rows += all_rows;
      keys += all_keys;
    }
  }
};

// zero_tail clears out's bytes from one on, the rows past the last request's: a thread its own and every step-th after it, 16 at a time where
// both ends allow it.
__device__ __forceinline__ void zero_tail(void *out, int64_t from, int64_t end, int64_t thread, int64_t step) {
  uint8_t *tail = static_cast<uint8_t *>(out) + from;
  if (aligned16(out) && aligned16(tail)) {
#pragma unroll 1
    for (int64_t i = thread; i < (end - from) / 16; i += step) reinterpret_cast<uint4 *>(tail)[i] = make_uint4(0, 0, 0, 0);
  } else {
#pragma unroll 1
    for (int64_t i = thread; i < end - from; i += step) tail[i] = 0;
  }
}

}  // namespace gaze
