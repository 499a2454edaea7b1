// Prefill attention on Hopper. The same loop as prefill.cuh, with a tile of 128 rows done by two consumer warpgroups of 64 rows each and
// fed by a third: one warp issues bulk tensor copies of K and V (boxes of one page, or of a whole block of ragged keys), the other three
// find the tiles, load q a tile ahead, and tidy V where rows differ in what they see.
//
// A consumer holds S, P and O in registers. It issues the next block's Q·K^T and this block's P·V together, and computes the next
// softmax while P·V runs; the two consumers take turns at the tensor cores.
//
// Shared memory holds rows of 64 elements (128 bytes, permuted by the hardware's swizzle): a head dim of 192 is three such columns of all
// rows, one after the other, and one of 96 two, the second half full.
//
// What must not matter: keys past S_b are masked in S, and their rows of V become 0 in shared memory before the product, since 0·NaN is
// NaN. In blocks where causal rows differ in what they see, rows of V with a NaN or an infinity become 0 too and are added afterwards to
// those rows that see them.
#pragma once
#include "hopper.cuh"
#include "prefill_plan.cuh"

namespace gaze {

// PrefillTmaShape says how the 227 KB of shared memory and the 64 K registers are spent. Registers of a consumer's thread: DVO/2 for O,
// Keys/2 for S, Keys/4 for P, and some 35.
template <int DQK, int DVO, int Keys = (DVO > 192 ? 80 : DVO > 128 ? 96 : 128)>
struct PrefillTmaShape {
  static constexpr int kKeys = Keys;  // of a block
  static constexpr int kThreads = 384, kHelpers = 96;
  static constexpr int kHelperRegisters = 56, kConsumerRegisters = 224;
  static constexpr int kQueries = DQK <= 128 ? 2 : 1;                              // buffers of q
  static constexpr int kStages = DQK <= 64 ? 4 : 2;                                // of K and of V
  static constexpr int kColumnsQK = (DQK + 63) / 64, kColumnsVO = (DVO + 63) / 64;  // of 64 elements
  static constexpr int kQueryColumn = kTileRows * 128, kKeyColumn = kKeys * 128;     // bytes of one
  static constexpr int kQueryBytes = kColumnsQK * kQueryColumn, kKeyBytes = kColumnsQK * kKeyColumn, kValueBytes = kColumnsVO * kKeyColumn;

  static constexpr int kQuery = 0;
  static constexpr int kKey = kQuery + kQueries * kQueryBytes;
  static constexpr int kValue = kKey + kStages * kKeyBytes;
  static constexpr int kBarriers = kValue + kStages * kValueBytes;
  static constexpr int kTiles = kBarriers + (6 * kStages + 8) * 8;
  static constexpr int kOdd = kTiles + 2 * (int)sizeof(Tile);  // of each stage of V, 128 bits: its rows with a NaN or an infinity
  static constexpr int kBytes = kOdd + kStages * 16;
};

// Ring counts what passes through N buffers: which of them is next, and the parity of its barriers.
template <int N>
struct Ring {
  uint32_t n = 0;
  __device__ __forceinline__ int stage() const { return n % N; }
  __device__ __forceinline__ uint32_t parity() const { return n / N & 1; }
  __device__ __forceinline__ Ring operator+(int k) const { return Ring{n + k}; }
};

template <class T, int DQK, int DVO>
struct PrefillTma {
  typedef PrefillTmaShape<DQK, DVO> S;
  static constexpr int kCols = S::kKeys / 8, kDims = DVO / 8;
  // Large heads, whose products are long, do better without turns, and with O rescaled under Q·K^T.
  static constexpr bool kTurns = DQK <= 128, kRescaleLate = DVO > 128;

  typedef Ring<S::kStages> Blocks;     // of keys
  typedef Ring<2> Tiles;
  typedef Ring<S::kQueries> Queries;  // the same tiles'

  enum Barrier {
    kKeyFull = 0,
    kKeyEmpty = S::kStages,
    kValueFull = 2 * S::kStages,
    kValueEmpty = 3 * S::kStages,
    kValueRaw = 4 * S::kStages,
    kOddEmpty = 5 * S::kStages,
    kQueryFull = 6 * S::kStages,
    kQueryEmpty = kQueryFull + 2,
    kTileFull = kQueryFull + 4,
    kTileEmpty = kQueryFull + 6
  };
  enum Group { kHelperGroup = 1, kTurn = 2 };  // of bar.sync

  const PrefillParams &p;
  uint8_t *const smem;
  const int tid, lane, warp;
  const int group;  // G
  const Split split;

  __device__ __forceinline__ PrefillTma(const PrefillParams &p, uint8_t *smem)
      : p(p), smem(smem), tid(threadIdx.x), lane(tid % 32), warp(tid / 32), group(p.q_heads / p.kv_heads), split(group) {}

  __device__ __forceinline__ uint32_t bar(int b, int i) const { return shared_address(smem + S::kBarriers) + (b + i) * 8; }
  __device__ __forceinline__ Tile &tile(int i) const { return reinterpret_cast<Tile *>(smem + S::kTiles)[i]; }
  // odd gives the words in which each bit stands for a row of V in a stage. Helpers write them and consumers read them by atomics, so that
  // what orders them, kOddEmpty, need not be understood by who looks for races.
  __device__ __forceinline__ uint32_t *odd(int stage) const { return reinterpret_cast<uint32_t *>(smem + S::kOdd) + 4 * stage; }

  // Extent is which keys a tile has to do with.
  struct Extent {
    int end;    // beyond all keys that a row sees
    int full;   // before it, all rows see all keys
    int blocks;
    __device__ __forceinline__ bool special(int block) const { return block >= full / S::kKeys; }
  };
  __device__ __forceinline__ Extent extent(const Tile &x) const {
    const int query0 = x.query0, query1 = min(x.rows - 1, x.query0 + split.query(x.group0, kTileRows - 1));
    const int64_t shift = (int64_t)x.keys - x.rows;
    Extent e;
    e.end = p.causal ? (int)max((int64_t)0, min((int64_t)x.keys, query1 + shift + 1)) : x.keys;
    e.full = p.causal ? (int)max((int64_t)0, min((int64_t)x.keys, query0 + shift + 1)) : x.keys;
    e.blocks = e.end / S::kKeys + (e.end % S::kKeys != 0);
    return e;
  }

  // ---- the warp that copies K and V ----

  // K of a block is copied before V of the block above it: that is the order in which consumers want them. A lane copies the box of
  // {64 elements, box_rows tokens} that starts at its own token of the block, in one or more columns. Blocks follow each other so fast that
  // their pages are found without division.
  __device__ __forceinline__ void copy_tiles() {
    if (lane == 0) {
      prefetch_map(p.k_map);
      prefetch_map(p.v_map);
    }
    const bool paged = p.block_tables != nullptr;
    const int boxes = S::kKeys / p.box_rows, at = lane % boxes * p.box_rows, column = lane / boxes, columns = 32 / boxes;
    const int pages_down = paged ? S::kKeys / p.page_size : 0, rows_down = paged ? S::kKeys % p.page_size : S::kKeys;
    Blocks kv;
    for (Tiles n;; n.n++) {
      barrier_wait(bar(kTileFull, n.stage()), n.parity());
      const Tile &x = tile(n.stage());
      if (x.b >= p.batch) break;
      const int head = x.head, keys = x.keys;
      const int32_t *const table = p.block_tables + x.b * p.table_row;
      const Extent e = extent(x);
      const uint32_t token = (uint32_t)(e.blocks - 1) * S::kKeys + at;
      int entry = paged ? token / p.page_size : 0, row = paged ? token % p.page_size : (int)(x.key0 + token);
      barrier_arrive(bar(kTileEmpty, n.stage()));
      // A page that is none is copied as it is: that yields 0 outside the tensor.
      auto page_of = [&](int block) { return paged && block >= 0 && at < keys - block * S::kKeys ? table[entry] : 0; };
      int page = page_of(e.blocks - 1), page_above = 0, row_above = 0;
      for (int block = e.blocks - 1; block >= -1; block--, kv.n++) {
        const int this_page = page, this_row = row;
        entry -= pages_down, row -= rows_down;
        if (paged && row < 0) entry--, row += p.page_size;
        page = page_of(block - 1);
        if (block >= 0) {
          const int stage = kv.stage();
          barrier_wait(bar(kKeyEmpty, stage), kv.parity() ^ 1);
          copy_block<S::kColumnsQK>(S::kKey + stage * S::kKeyBytes, p.k_map, bar(kKeyFull, stage), keys - block * S::kKeys, at, column, columns, this_row, head,
                                    this_page);
        }
        if (block + 1 < e.blocks) {
          const Blocks above = kv + -1;
          const int stage = above.stage();
          barrier_wait(bar(kValueEmpty, stage), above.parity() ^ 1);
          copy_block<S::kColumnsVO>(S::kValue + stage * S::kValueBytes, p.v_map, bar(e.special(block + 1) ? kValueRaw : kValueFull, stage),
                                    keys - (block + 1) * S::kKeys, at, column, columns, row_above, head, page_above);
        }
        page_above = this_page, row_above = this_row;
      }
      kv.n--;
    }
  }

  // copy_block copies boxes of which a key exists, of `keys` from the block's first on.
  template <int Columns>
  __device__ __forceinline__ void copy_block(int dst, const uint64_t *map, uint32_t full, int keys, int at, int column, int columns, int row, int head,
                                             int page) const {
    if (lane == 0) barrier_expect(full, (keys >= S::kKeys ? S::kKeys : (keys + p.box_rows - 1) / p.box_rows * p.box_rows) * 128 * Columns);
    __syncwarp();
    if (at < keys && column < columns)
      for (int c = column; c < Columns; c += columns) copy_box(shared_address(smem + dst) + c * S::kKeyColumn + at * 128, map, full, c * 64, row, head, page);
  }

  // ---- the warps that help ----

  __device__ __forceinline__ void help() {
    const int me = tid - 32;
    Scheduler next(p, blockIdx.x, DQK, DVO);
    Blocks kv;
    Tiles n;
    uint32_t raw = 0;  // bit i: the parity of stage i's next block to tidy
    for (; prepare(n, next, me); n.n++) {
      const Extent e = extent(tile(n.stage()));
      for (int block = e.blocks - 1; block >= 0 && e.special(block); block--) {
        const int stage = (kv + (e.blocks - 1 - block)).stage();
        const uint32_t parity = raw >> stage & 1;
        raw ^= 1u << stage;
        if (p.causal) barrier_wait(bar(kOddEmpty, stage), parity ^ 1);
        barrier_wait(bar(kValueRaw, stage), parity);
        tidy(stage, max(0, e.full - block * S::kKeys), min(S::kKeys, e.end - block * S::kKeys), me);
      }
      kv.n += e.blocks;
    }
    zero_tail(p.out, end * 2, p.tokens * p.q_heads * DVO * 2, (int64_t)blockIdx.x * S::kHelpers + me, (int64_t)gridDim.x * S::kHelpers);
    if (me == 0) next.leave();
  }

  // prepare finds tile n, looks at its block table and loads its rows of q; false past the last one.
  __device__ __forceinline__ bool prepare(Tiles n, Scheduler &next, int me) {
    if (me < 32 && n.n > 0) next.draw();  // no earlier than for its answer to be here in time: who has drawn must do it
    barrier_wait(bar(kTileEmpty, n.stage()), n.parity() ^ 1);
    group_sync(kHelperGroup, S::kHelpers);  // the helpers too have done with the tile that was there
    if (me < 32) {
      next.seek(tile(n.stage()), tile((n + 1).stage()));
      barrier_arrive(bar(kTileFull, n.stage()));
    }
    barrier_wait(bar(kTileFull, n.stage()), n.parity());
    Tile &x = tile(n.stage());
    if (x.b >= p.batch) {
      end = x.o_base;
      return false;
    }
    const int i = Queries{n.n}.stage();
    barrier_wait(bar(kQueryEmpty, i), Queries{n.n}.parity() ^ 1);
    uint8_t *dst = smem + S::kQuery + i * S::kQueryBytes;
    load_query(x, dst, me);
    cp_commit();
    if (x.b != looked_at && bad_table(x, me)) x.bad = 1;  // as all later tiles of the request will say
    looked_at = x.b;
    cp_wait<0>();
    if (p.scale <= 0) {
#pragma unroll 1
      for (int e = me; e < kTileRows * (DQK / 8); e += S::kHelpers) {
        uint4 *y = reinterpret_cast<uint4 *>(dst + query_place(e / (DQK / 8), e % (DQK / 8)));
        *y = turned<T>(*y, p.scale);
      }
    }
    fence_async();
    barrier_arrive(bar(kQueryFull, i));
    return true;
  }

  // load_query copies a tile's rows of q, a thread always the same piece of 8 elements, of every kStep-th row: so that it comes from row to
  // row by additions.
  __device__ __forceinline__ void load_query(const Tile &x, uint8_t *dst, int me) const {
    constexpr int kPieces = DQK / 8, kStep = S::kHelpers / kPieces;
    static_assert(S::kHelpers % kPieces == 0, "whole rows at a time");
    const int rows = x.keys > 0 ? rows_of(x) : 0, piece = me % kPieces, queries = kStep / group, heads = kStep % group;  // without keys q is not needed
    const T *q = static_cast<const T *>(p.q) + x.q_base + x.head * group * p.q_head + piece * 8;
    const bool aligned = aligned16(q) && ((p.q_token | p.q_head) & 7) == 0;
    const int64_t step = queries * p.q_token + heads * p.q_head, wrap = p.q_token - group * p.q_head;
    int row = me / kPieces, head = split.head(x.group0, row);
    const T *src = q + (x.query0 + split.query(x.group0, row)) * p.q_token + head * p.q_head;
#pragma unroll 2
    for (; row < kTileRows; row += kStep) {
      const bool live = row < rows;
      uint8_t *to = dst + query_place(row, piece);
      if (aligned) {
        cp_async16(shared_address(to), live ? src : q, live ? 16 : 0);
      } else {
#pragma unroll 1
        for (int k = 0; k < 8; k++) reinterpret_cast<uint16_t *>(to)[k] = live ? reinterpret_cast<const uint16_t *>(src)[k] : 0;
      }
      src += step, head += heads;
      if (head >= group) src += wrap, head -= group;
    }
  }

  int64_t end;         // of all requests in out, once the last tile is found
  int looked_at = -1;  // the last request whose block table a helper has looked at

  // rows_of gives how many of a tile's rows, or more, the request has.
  __device__ __forceinline__ int rows_of(const Tile &x) const { return (int)min((int64_t)kTileRows, (int64_t)x.rows * group - x.row0); }

  // place is where piece c of row r stands in columns of 64 elements, `column` bytes apart, each row's pieces permuted as the hardware does.
  static __device__ __forceinline__ uint32_t place(int r, int c, int column) { return c / 8 * column + r * 128 + (c % 8 ^ (r & 7)) * 16; }
  static __device__ __forceinline__ uint32_t query_place(int r, int c) { return place(r, c, S::kQueryColumn); }
  static __device__ __forceinline__ uint32_t value_place(int r, int c) { return place(r, c, S::kKeyColumn); }

  // tidy makes a stage of V safe: of its rows those from `end` on, which no row of q sees, become 0, and so do those of [full, end), which
  // not every row sees, that hold a NaN or an infinity. These are noted.
  __device__ __forceinline__ void tidy(int stage, int full, int end, int me) const {
    constexpr int kPieces = DVO / 8;
    uint8_t *v = smem + S::kValue + stage * S::kValueBytes;
    if (me < 4) atomicExch(&odd(stage)[me], 0u);
    group_sync(kHelperGroup, S::kHelpers);
#pragma unroll 4
    for (int e = full * kPieces + me; e < end * kPieces; e += S::kHelpers) {
      const uint4 x = *reinterpret_cast<const uint4 *>(v + value_place(e / kPieces, e % kPieces));
      if (nonfinite<T>(x.x, x.y, x.z, x.w)) atomicOr(&odd(stage)[e / kPieces / 32], 1u << (e / kPieces % 32));
    }
#pragma unroll 4
    for (int e = end * kPieces + me; e < S::kKeys * kPieces; e += S::kHelpers)
      *reinterpret_cast<uint4 *>(v + value_place(e / kPieces, e % kPieces)) = make_uint4(0, 0, 0, 0);
    group_sync(kHelperGroup, S::kHelpers);
    for (int row = full + me; row < end; row += S::kHelpers) {
      if ((odd(stage)[row / 32] >> (row % 32) & 1) == 0) continue;
#pragma unroll 1
      for (int c = 0; c < kPieces; c++) *reinterpret_cast<uint4 *>(v + value_place(row, c)) = make_uint4(0, 0, 0, 0);
    }
    fence_async();
    group_sync(kHelperGroup, S::kHelpers);
    if (me == 0) barrier_arrive(bar(kValueFull, stage));
  }

  // bad_table looks at all used entries of the request's block table, so that every tile of it comes out alike.
  __device__ __forceinline__ bool bad_table(const Tile &x, int me) const {
    if (p.block_tables == nullptr) return false;
    const int used = x.keys / p.page_size + (x.keys % p.page_size != 0), b = x.b;
    bool bad = false;
#pragma unroll 4
    for (int e = me; e < used; e += S::kHelpers) {
      const int page = p.block_tables[b * p.table_row + e];
      if (page >= 0 && page < p.pages) continue;
      bad = true;
      report(p.fault, p.op, FAULT_PAGE, b, page, p.pages);
    }
    return bad;
  }

  // ---- the consumers ----

  float acc[kDims][4];
  float m[2], l[2];
  float scale;    // base2(p.scale)
  int limit[2];   // the last key that a row sees
  int consumer;   // 0 or 1
  int g, t;

  __device__ __forceinline__ void scores(float (&s)[kCols][4], int i, int stage) const {
    uint32_t q = shared_address(smem + S::kQuery + i * S::kQueryBytes) + consumer * 64 * 128, k = shared_address(smem + S::kKey + stage * S::kKeyBytes);
    opaque(q), opaque(k);
    const uint64_t a = swizzled_tile(q, 1024, 0), b = swizzled_tile(k, 1024, 0);
#pragma unroll
    for (int step = 0; step < DQK / 16; step++)
      Wgmma<T, kCols>::ss(s, tile_at(a, step / 4 * S::kQueryColumn + step % 4 * 32), tile_at(b, step / 4 * S::kKeyColumn + step % 4 * 32), step > 0);
  }
  __device__ __forceinline__ void product(const uint32_t (&w)[kCols][2], int stage) {
    uint32_t v = shared_address(smem + S::kValue + stage * S::kValueBytes);
    opaque(v);
    const uint64_t b = swizzled_tile(v, 1024, S::kKeyColumn);
#pragma unroll
    for (int k = 0; k < S::kKeys / 16; k++) {
      const uint32_t a[4] = {w[2 * k][0], w[2 * k][1], w[2 * k + 1][0], w[2 * k + 1][1]};
      Wgmma<T, kDims>::rs(acc, a, tile_at(b, k * 16 * 128));
    }
  }

  __device__ __forceinline__ void mask(float (&s)[kCols][4], int block) const {
#pragma unroll
    for (int r = 0; r < 2; r++) {
      const int last = limit[r] - block * S::kKeys - 2 * t;
#pragma unroll
      for (int n = 0; n < kCols; n++)
#pragma unroll
        for (int k = 0; k < 2; k++)
          if (n * 8 + k > last) s[n][2 * r + k] = -GAZE_INF;
    }
  }

  // far makes differences from the maximum of the scores of a row whose products with the scale are beyond kFar.
  __device__ __forceinline__ void far(float (&s)[kCols][4], const float (&tops)[2], float (&offs)[2], float (&f)[2]) const {
#pragma unroll
    for (int r = 0; r < 2; r++) {
      const bool is = fabsf(offs[r]) > kFar;
      const float less = is ? tops[r] : 0.0f;
      if (is && m[r] != tops[r]) f[r] = exp2_approx((m[r] - tops[r]) * scale);
      if (is) offs[r] = 0;
#pragma unroll
      for (int n = 0; n < kCols; n++) s[n][2 * r] -= less, s[n][2 * r + 1] -= less;
    }
  }
  // weights turns scores into exponentials; f is what older sums must be multiplied with.
  __device__ __forceinline__ void weights(float (&s)[kCols][4], float (&f)[2]) {
    float tops[2], offs[2];
#pragma unroll
    for (int r = 0; r < 2; r++) {
      float top = m[r], other = s[0][2 * r];  // two chains, half as long
#pragma unroll
      for (int n = 0; n < kCols; n++) top = fmaxf(top, s[n][2 * r + 1]), other = fmaxf(other, s[n][2 * r]);
      top = fmaxf(top, other);
      top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
      top = fmaxf(top, __shfl_xor_sync(~0u, top, 2));
      tops[r] = top;
      // The same rounded product is taken off all exponents, old ones too, so that its rounding cancels out; upwards, so that weights
      // are at most 2^kLift, below which f16 has steps half as large.
      offs[r] = top == -GAZE_INF ? 0.0f : __fmul_ru(top, scale);
      f[r] = m[r] == top ? 1.0f : exp2_approx(__fmul_ru(m[r], scale) - offs[r]);
    }
    // One branch for both rows, and the exponentials of both behind it: a branch for each cost head dim 64 a tenth of its speed.
    if (fmaxf(fabsf(offs[0]), fabsf(offs[1])) > kFar) far(s, tops, offs, f);
#pragma unroll
    for (int r = 0; r < 2; r++) {
      const float off = offs[r] - kLift<T>;
      m[r] = tops[r];
      float sum = 0;
#pragma unroll
      for (int n = 0; n < kCols; n++) {
        s[n][2 * r] = exp2_approx(fmaf(s[n][2 * r], scale, -off));
        s[n][2 * r + 1] = exp2_approx(fmaf(s[n][2 * r + 1], scale, -off));
        sum += s[n][2 * r] + s[n][2 * r + 1];
      }
      l[r] = l[r] * f[r] + sum;
    }
  }
  static __device__ __forceinline__ void packed(uint32_t (&w)[kCols][2], const float (&s)[kCols][4]) {
#pragma unroll
    for (int n = 0; n < kCols; n++) w[n][0] = pack<T>(s[n][0], s[n][1]), w[n][1] = pack<T>(s[n][2], s[n][3]);
  }

  // add_odd adds the rows of V that tidy took out, to the rows that see them.
  __device__ __forceinline__ void add_odd(const Tile &x, const uint32_t (&w)[kCols][2], int block, int stage) {
    if (!p.causal) return;
    const uint32_t words = lane < 4 ? atomicOr(&odd(stage)[lane], 0u) : 0;
#pragma unroll 1
    for (int i = 0; i < 4; i++) {
#pragma unroll 1
      for (uint32_t rest = __shfl_sync(~0u, words, i); rest != 0; rest &= rest - 1) {
        const int at = 32 * i + __ffs(rest) - 1, token = block * S::kKeys + at;
        uint32_t pair[2] = {0, 0};
#pragma unroll
        for (int n = 0; n < kCols; n++) {  // w[at / 8], without an index that would move w out of registers
          const uint32_t hit = n == at / 8 ? ~0u : 0;
          pair[0] |= w[n][0] & hit, pair[1] |= w[n][1] & hit;
        }
        const int from = (lane & ~3) | at % 8 / 2;
        const float2 upper = unpack<T>(__shfl_sync(~0u, pair[0], from)), lower = unpack<T>(__shfl_sync(~0u, pair[1], from));
        const float w0 = at % 2 ? upper.y : upper.x, w1 = at % 2 ? lower.y : lower.x;
        int64_t base;
        if (p.block_tables == nullptr) {
          base = x.v_base + token * p.v_token;
        } else {
          const int page = p.block_tables[x.b * p.table_row + token / p.page_size];
          base = page * p.v_page + token % p.page_size * p.v_token + x.head * p.v_head;
        }
        const T *v = static_cast<const T *>(p.v) + base + 2 * t;
        const bool up = token <= limit[0], down = token <= limit[1];
#pragma unroll
        for (int n = 0; n < kDims; n++) {
          const float2 y = unpack<T>(*reinterpret_cast<const uint32_t *>(v + n * 8));
          if (up) acc[n][0] += w0 * y.x, acc[n][1] += w0 * y.y;
          if (down) acc[n][2] += w1 * y.x, acc[n][3] += w1 * y.y;
        }
      }
    }
    barrier_arrive(bar(kOddEmpty, stage));
  }

  // release is by one lane for its warp, once all of it has read what bulk copies and the helpers' copies of q overwrite.
  __device__ __forceinline__ void release(int which, int stage) const {
    __syncwarp();
    if (lane == 0) barrier_arrive(bar(which, stage));
  }

  __device__ __forceinline__ void rescale(const float (&f)[2]) {
#pragma unroll
    for (int d = 0; d < kDims; d++) acc[d][0] *= f[0], acc[d][1] *= f[0], acc[d][2] *= f[1], acc[d][3] *= f[1];
  }

  // step does the products of a block, whose weights are in w, with V, and turns the scores of the next one into weights. Special: not all
  // rows see all keys of the block.
  template <bool Special>
  __device__ __forceinline__ void step(const Tile &x, const Extent &e, int block, int i, Blocks now, float (&s)[kCols][4], uint32_t (&w)[kCols][2], float (&f)[2]) {
    const Blocks next = now + 1;
    barrier_wait(bar(kKeyFull, next.stage()), next.parity());
    if (kTurns) group_sync(kTurn + consumer, 256);
    pin(acc);
    wgmma_begin();
    scores(s, i, next.stage());
    wgmma_commit();
    if (kRescaleLate) {
      rescale(f);
      pin(acc);
      wgmma_begin();
    }
    product(w, now.stage());
    wgmma_commit();
    if (kTurns) group_arrive(kTurn + (consumer ^ 1), 256);
    wgmma_wait<1>();
    pin(s);
    release(kKeyEmpty, next.stage());
    if (block == 1) release(kQueryEmpty, i);
    if (Special && e.special(block - 1)) mask(s, block - 1);
    weights(s, f);
    // Here, since the assembler moves a wait for products up in front of arithmetic, but not past a loop.
    barrier_wait(bar(kValueFull, next.stage()), next.parity());
    wgmma_wait<0>();
    pin(acc);
    if (Special) add_odd(x, w, block, now.stage());
    release(kValueEmpty, now.stage());
    if (!kRescaleLate) rescale(f);
    packed(w, s);
  }

  __device__ __forceinline__ void consume() {
    consumer = warp / 4 - 1;
    g = lane / 4;
    t = lane % 4;
    scale = base2(p.scale);
    const int rows0 = consumer * 64 + warp % 4 * 16;  // this warp's first of the tile
    Blocks kv;  // the next block whose V is wanted
    if (kTurns && consumer == 1) group_arrive(kTurn + 0, 256);
    for (Tiles n;; n.n++) {
      const int i = Queries{n.n}.stage();
      barrier_wait(bar(kTileFull, n.stage()), n.parity());
      const Tile &x = tile(n.stage());
      if (x.b >= p.batch) break;
      const Extent e = extent(x);
#pragma unroll
      for (int r = 0; r < 2; r++) {
        const int64_t row = x.query0 + split.query(x.group0, rows0 + 8 * r + g);
        limit[r] = p.causal ? (int)max((int64_t)-1, min(row + x.keys - x.rows, (int64_t)x.keys - 1)) : x.keys - 1;
        m[r] = -GAZE_INF;
        l[r] = limit[r] >= 0 ? kFaint : 0.0f;
      }
#pragma unroll
      for (int d = 0; d < kDims; d++)
#pragma unroll
        for (int k = 0; k < 4; k++) acc[d][k] = 0;
      barrier_wait(bar(kQueryFull, i), Queries{n.n}.parity());
      if (e.blocks == 0) {
        release(kQueryEmpty, i);
      } else {
        float s[kCols][4], f[2];
        uint32_t w[kCols][2];
        int block = e.blocks - 1;
        barrier_wait(bar(kKeyFull, kv.stage()), kv.parity());
        wgmma_begin();
        scores(s, i, kv.stage());
        wgmma_commit();
        wgmma_wait<0>();
        pin(s);
        release(kKeyEmpty, kv.stage());
        if (block == 0) release(kQueryEmpty, i);
        if (e.special(block)) mask(s, block);
        weights(s, f);
        packed(w, s);
        barrier_wait(bar(kValueFull, kv.stage()), kv.parity());
#pragma unroll 1
        for (; block > 0 && e.special(block); block--, kv.n++) step<true>(x, e, block, i, kv, s, w, f);
#pragma unroll 1
        for (; block > 0; block--, kv.n++) step<false>(x, e, block, i, kv, s, w, f);
        if (kRescaleLate) rescale(f);
        pin(acc);
        wgmma_begin();
        product(w, kv.stage());
        wgmma_commit();
        wgmma_wait<0>();
        pin(acc);
        if (e.special(0)) add_odd(x, w, 0, kv.stage());
        release(kValueEmpty, kv.stage());
        kv.n++;
      }
      finish(x, rows0);
      barrier_arrive(bar(kTileEmpty, n.stage()));
    }
  }

  // finish writes the rows. Four lanes that hold four pieces of 8 elements between them, two elements of each, swap until each has a piece.
  __device__ __forceinline__ void finish(const Tile &x, int rows0) {
    const int rows = rows_of(x), query0 = x.query0, group0 = x.group0, head0 = x.head * group;
    T *const out = static_cast<T *>(p.out) + x.o_base;
    const bool bad = x.bad, aligned = aligned16(out), odd = t & 1, high = t & 2;
#pragma unroll
    for (int r = 0; r < 2; r++) {
      float sum = l[r];
      sum += __shfl_xor_sync(~0u, sum, 1);
      sum += __shfl_xor_sync(~0u, sum, 2);
      const bool empty = bad || sum == 0;
      if (is_faint(sum)) sum = GAZE_NAN;
      const float f = __fdividef(1.0f, sum);
      const int row = rows0 + 8 * r + g;
      const int64_t to = (int64_t)(query0 + split.query(group0, row)) * p.q_heads + head0 + split.head(group0, row);  // of [L,Hq]
      if (t == 0 && row < rows && x.lse_base >= 0) {
        const float peak = m[r] * factor_of(p.scale), log2 = log2f(sum) - kLift<T>;
        if (p.lse != nullptr) p.lse[x.lse_base + to] = empty ? -GAZE_INF : fmaf(log2, kLn2, peak);
        if (p.lse2 != nullptr) p.lse2[x.lse_base + to] = empty ? -GAZE_INF : fmaf(peak, kLog2e, log2);
      }
#pragma unroll
      for (int d = 0; d < kDims; d += 4) {
        uint32_t y[4];
#pragma unroll
        for (int k = 0; k < 4; k++) y[k] = empty ? 0 : pack<T>(acc[d + k][2 * r] * f, acc[d + k][2 * r + 1] * f);
        const uint32_t a = __shfl_xor_sync(~0u, odd ? y[0] : y[1], 1), b = __shfl_xor_sync(~0u, odd ? y[2] : y[3], 1);
        const uint2 low = odd ? make_uint2(a, y[1]) : make_uint2(y[0], a), up = odd ? make_uint2(b, y[3]) : make_uint2(y[2], b);  // of pieces odd and 2 + odd
        const uint32_t c0 = __shfl_xor_sync(~0u, high ? low.x : up.x, 2), c1 = __shfl_xor_sync(~0u, high ? low.y : up.y, 2);
        const uint4 piece = high ? make_uint4(c0, c1, up.x, up.y) : make_uint4(low.x, low.y, c0, c1);
        if (row >= rows) continue;
        T *const at = out + to * DVO + (d + t) * 8;
        if (aligned) {
          __stcg(reinterpret_cast<uint4 *>(at), piece);  // at once: the compiler splits an assignment into words
        } else {
          const Vec16<T> z = *reinterpret_cast<const Vec16<T> *>(&piece);
#pragma unroll
          for (int k = 0; k < 8; k++) at[k] = z.x[k];
        }
      }
    }
  }

  // ---- the whole ----

  __device__ __forceinline__ void run() {
    if (tid == 0) {
      for (int i = 0; i < S::kStages; i++) {
        barrier_init(bar(kKeyFull, i), 1);
        barrier_init(bar(kKeyEmpty, i), 8);
        barrier_init(bar(kValueFull, i), 1);
        barrier_init(bar(kValueEmpty, i), 8);
        barrier_init(bar(kValueRaw, i), 1);
        barrier_init(bar(kOddEmpty, i), 256);
      }
      for (int i = 0; i < 2; i++) {
        barrier_init(bar(kQueryFull, i), S::kHelpers);
        barrier_init(bar(kQueryEmpty, i), 8);
        barrier_init(bar(kTileFull, i), 32);
        barrier_init(bar(kTileEmpty, i), 32 + 256);
      }
      barrier_init_fence();
    }
    __syncthreads();
    if (warp < 4) {
      registers_down<S::kHelperRegisters>();
      if (warp == 0) {
        copy_tiles();
      } else {
        help();
      }
    } else {
      registers_up<S::kConsumerRegisters>();
      consume();
    }
  }
};

template <class T, int DQK, int DVO>
__device__ __forceinline__ void prefill_tma(const PrefillParams &p) {
  SHARED(smem);
  grid_wait();
  grid_launch_next();
  PrefillTma<T, DQK, DVO>(p, smem).run();
}

}  // namespace gaze
