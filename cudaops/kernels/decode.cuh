// Paged decode attention. The loop it replaces: for every request, KV head and row of the head's group,
//
//	s[j] = bmm1 · q·k[j] over the visible keys j,  out = bmm2 · Σ exp(s[j]-m)·v[j] / (Σ exp(s[j]-m) + exp(sink-m))
//
// It is bound by reading K and V once. Every warp streams its own units of 16 tokens through its own ring in shared memory (cp.async,
// so any strides and page sizes), without a barrier in the loop. Tokens are the long side of both products, rows the short one:
// S^T = K·Q^T and O^T = V^T·P^T with mma.m16n8k16, so 8 rows fill a tile; S^T becomes the operand P^T by one 8×8 transpose. Warps
// meet at the end of a segment, add up in a fixed order, and write the result, or, where the segment is cut between blocks, a
// partial one to the workspace; the block that comes last to a segment (a counter that it sets back to 0) merges those.
#pragma once
#include "decode_plan.cuh"
#include "rows.cuh"

namespace gaze {

// DecodeShape fixes the sizes for one head dim.
template <int D>
struct DecodeShape {
  static constexpr int kWarps = GAZE_SM90 || D <= 128 ? 4 : 2;
  static constexpr int kStages = D == 64 ? 4 : D == 96 ? 3 : D == 128 ? 2 : GAZE_SM90 ? (D == 192 ? 4 : 3) : (D == 192 ? 3 : 2);
  // Two blocks a multiprocessor: while the warps of one meet at the end of a segment, those of the other go on.
  static constexpr int kBlocks = GAZE_SM90 && D <= 128 ? 2 : 1;
  static constexpr int kMaxTiles = D <= 128 ? 4 : 2;  // of 8 rows
  static constexpr int kThreads = 32 * kWarps;
  static constexpr int kUnitBytes = 2 * kUnit * Rows<D>::kBytes;  // K, then V
  // O^T is added up in slices of this many dims, so that warps · rows · slice fits.
  static constexpr int slice(int tiles) {
    int d = 512 / (tiles * kWarps) / 16 * 16;
    d = d < 16 ? 16 : d > D ? D : d;
    while (D % d) d -= 16;
    return d;
  }
  static constexpr int sum_floats(int tiles) { return kWarps * 8 * tiles * (slice(tiles) + 4); }
  static constexpr int most(int a, int b) { return a > b ? a : b; }

  static constexpr int kRing = 0;
  static constexpr int kQuery = kRing + kWarps * kStages * kUnitBytes;
  static constexpr int kSum = kQuery + 8 * kMaxTiles * Rows<D>::kBytes;
  static constexpr int kStats = kSum + 4 * most(most(sum_floats(1), sum_floats(2)), kMaxTiles == 4 ? sum_floats(4) : 0);
  static constexpr int kPlan = kStats + kWarps * 8 * kMaxTiles * 8;
  static constexpr int kCursors = kPlan + (int)sizeof(PlanShared);
  static constexpr int kBytes = kCursors + (kWarps + 3) * (int)sizeof(Cursor) + 16;
};

template <class T, int D, int Tiles>
struct Decode {
  typedef DecodeShape<D> S;
  typedef Rows<D> R;
  static constexpr int kRows = 8 * Tiles;
  static constexpr int kSteps = D / 16;  // of k in S^T, of m in O^T
  static constexpr bool kQueryInRegisters = Tiles * D <= 256;
  static constexpr int kQueryPieces = (kRows * R::kPieces + S::kThreads - 1) / S::kThreads;
  static constexpr int kSlice = S::slice(Tiles), kPitch = kSlice + 4;
  static constexpr int kPartial = kRows * (D + 2);  // floats of a partial result: O [rows][D], then (m, l) of each row

  const DecodeParams &p;
  uint8_t *const smem;
  const int tid, lane, warp, g, t;
  const int group;       // G
  const int page_shift;  // page_size is 1 << page_shift, or -1

  __device__ __forceinline__ Decode(const DecodeParams &p, uint8_t *smem)
      : p(p), smem(smem), tid(threadIdx.x), lane(tid % 32), warp(tid / 32), g(lane / 4), t(lane % 4), group(p.q_heads / p.kv_heads),
        page_shift((p.page_size & (p.page_size - 1)) == 0 ? 31 - __clz(p.page_size) : -1) {}

  __device__ __forceinline__ PlanShared &shared_plan() const { return *reinterpret_cast<PlanShared *>(smem + S::kPlan); }
  // The load side's place, one a warp; and three for the block: the segment at hand, the next, and the one after.
  __device__ __forceinline__ Cursor &load_cursor() const { return reinterpret_cast<Cursor *>(smem + S::kCursors)[warp]; }
  __device__ __forceinline__ Cursor &cursor(int i) const { return reinterpret_cast<Cursor *>(smem + S::kCursors)[S::kWarps + i]; }

  // Tokens [low, keys) are visible to some row of the request, others are zeroed when loaded.
  __device__ __forceinline__ int low_of(const Request &r) const {
    return p.window_left < 0 ? 0 : (int)max((int64_t)0, (int64_t)r.keys - r.rows - p.window_left);
  }

  // ---- loading ----

  int left;              // units of this block from this warp's next one on; ≤ 0: none
  int pages;             // lane i: the page of that unit's token i, or, where a unit lies within a page, of the i-th unit of this warp since turn 0
  int turn;              // which of those is next
  int load_stage;
  uint32_t bad_stages;   // loaded with a bad page

  __device__ __forceinline__ void fetch_pages() {
    pages = turn = 0;
    const Cursor &c = load_cursor();
    const bool whole = p.page_size % kUnit == 0;
    if (whole ? left <= lane * S::kWarps : left <= 0 || lane >= kUnit) return;
    const int64_t token = (int64_t)(c.r.first + c.unit) * kUnit + lane * (whole ? S::kWarps * kUnit : 1);
    if (token >= c.r.keys) return;
    pages = p.block_tables[c.b * p.table_row + (page_shift >= 0 ? (int)token >> page_shift : (int)token / p.page_size)];
  }

  // load starts the copies of the next unit into the next stage, always as one group.
  __device__ __forceinline__ void load() {
    const int stage = load_stage;
    load_stage = stage + 1 == S::kStages ? 0 : stage + 1;
    bad_stages &= ~(1u << stage);
    if (left > 0) {
      Cursor &c = load_cursor();
      const int token0 = (c.r.first + c.unit) * kUnit, low = low_of(c.r), high = c.r.keys, head = c.head;
      const bool whole = p.page_size % kUnit == 0;  // a unit lies within a page
      const int page = whole ? __shfl_sync(~0u, pages, turn) : pages, from = c.unit;
      const bool used = whole ? token0 < high : lane < kUnit && token0 + lane < high && token0 + lane >= low;
      const bool wrong = used && (page < 0 || page >= p.pages);
      if (wrong) report(p.fault, p.op, FAULT_PAGE, c.b, page, p.pages);
      const bool skip = __any_sync(~0u, wrong);  // nothing is read then, all rows become 0
      if (skip) bad_stages |= 1u << stage;
      const uint32_t ring = shared_address(smem + S::kRing + (warp * S::kStages + stage) * S::kUnitBytes);
      const T *k = static_cast<const T *>(p.k) + head * p.k_head, *v = static_cast<const T *>(p.v) + head * p.v_head;
      const int token = whole ? token0 : token0 + lane, slot = page_shift >= 0 ? token & (p.page_size - 1) : token % p.page_size;
      const bool aligned = aligned16(k) && aligned16(v) && ((p.k_page | p.k_token | p.v_page | p.v_token) & 7) == 0;
      if (whole && aligned && !skip && token0 >= low && token0 + kUnit <= high) {
        copy_unit(ring, k + page * p.k_page + slot * p.k_token, p.k_token);
        copy_unit(ring + kUnit * R::kBytes, v + page * p.v_page + slot * p.v_token, p.v_token);
      } else {
        copy_rows(ring, k, page, p.k_page, p.k_token, slot, whole, aligned, skip ? 0 : low - token0, skip ? 0 : high - token0);
        copy_rows(ring + kUnit * R::kBytes, v, page, p.v_page, p.v_token, slot, whole, aligned, skip ? 0 : low - token0, skip ? 0 : high - token0);
      }
      left -= S::kWarps;
      __syncwarp();
      if (lane == 0 && left > 0) c.advance(p, group, S::kWarps);
      __syncwarp();
      if (!whole || ++turn == 32 || c.unit != from + S::kWarps) fetch_pages();  // the last: another segment
    }
    cp_commit();
  }

  static constexpr int kUnitPieces = kUnit * R::kPieces;
  static_assert(kUnitPieces % 32 == 0, "");

  // copy_unit copies 16 rows at an even distance, the usual case.
  __device__ __forceinline__ void copy_unit(uint32_t dst, const T *src, int64_t token_stride) const {
    if constexpr (32 % R::kPieces == 0) {
      constexpr int kRowsEach = 32 / R::kPieces;  // of one instruction
      const int row = lane / R::kPieces, piece = lane % R::kPieces;
      dst += R::at(row, piece);
      src += row * token_stride + piece * 8;
#pragma unroll
      for (int i = 0; i < kUnitPieces / 32; i++) {
        cp_async16((dst ^ (i * kRowsEach & 7) * 16) + i * kRowsEach * R::kBytes, src);
        src += kRowsEach * token_stride;
      }
    } else {
#pragma unroll
      for (int i = 0; i < kUnitPieces / 32; i++) {
        const int e = i * 32 + lane, row = e / R::kPieces, piece = e % R::kPieces;
        cp_async16(dst + R::at(row, piece), src + row * token_stride + piece * 8);
      }
    }
  }

  // copy_rows copies rows [low, high) of 16 tokens in any pages and zeroes the others, which are not read.
  __device__ __forceinline__ void copy_rows(uint32_t dst, const T *src, int page, int64_t page_stride, int64_t token_stride, int slot, bool whole, bool aligned,
                                            int low, int high) const {
#pragma unroll 1
    for (int e = lane; e < kUnitPieces; e += 32) {
      const int row = e / R::kPieces, piece = e % R::kPieces;
      const int64_t at_page = __shfl_sync(~0u, page, whole ? 0 : row), at_slot = __shfl_sync(~0u, slot, whole ? 0 : row) + (whole ? row : 0);
      const T *x = src + at_page * page_stride + at_slot * token_stride + piece * 8;
      const bool live = row >= low && row < high;
      const uint32_t to = dst + R::at(row, piece);
      if (aligned) {
        cp_async16(to, live ? x : static_cast<const T *>(p.k), live ? 16 : 0);
      } else {
#pragma unroll 1
        for (int k = 0; k < 8; k++) store_shared16(to + 2 * k, live ? reinterpret_cast<const uint16_t *>(x)[k] : 0);
      }
    }
  }

  // ---- queries ----

  // fetch_query reads a segment's tile of q, 16 bytes a time; rows that don't exist are 0.
  __device__ __forceinline__ void fetch_query(const Cursor &c, uint4 (&x)[kQueryPieces]) const {
    const bool aligned = aligned16(p.q) && ((p.q_token | p.q_head) & 7) == 0;
    const int head = c.head, row0 = c.tile * kRows, rows = c.r.rows * group;
#pragma unroll
    for (int n = 0; n < kQueryPieces; n++) {
      const int e = n * S::kThreads + tid, r = row0 + e / R::kPieces;
      x[n] = make_uint4(0, 0, 0, 0);
      if (e >= kRows * R::kPieces || r >= rows) continue;
      const T *src = static_cast<const T *>(p.q) + (c.r.row0 + r / group) * p.q_token + (head * group + r % group) * p.q_head + e % R::kPieces * 8;
      if (aligned) {
        x[n] = *reinterpret_cast<const uint4 *>(src);
      } else {
        Vec16<T> y;
#pragma unroll
        for (int k = 0; k < 8; k++) y.x[k] = src[k];
        x[n] = *reinterpret_cast<uint4 *>(&y);
      }
    }
  }

  // store_query puts it into shared memory. A negative scale becomes positive with q negated, so that the largest score has the largest exponent.
  __device__ __forceinline__ void store_query(const uint4 (&x)[kQueryPieces]) const {
#pragma unroll
    for (int n = 0; n < kQueryPieces; n++) {
      const int e = n * S::kThreads + tid;
      if (e < kRows * R::kPieces)
        *reinterpret_cast<uint4 *>(smem + S::kQuery + R::at(e / R::kPieces, e % R::kPieces)) = make_uint4(x[n].x ^ sign, x[n].y ^ sign, x[n].z ^ sign, x[n].w ^ sign);
    }
  }

  uint32_t qf[kQueryInRegisters ? kSteps : 1][Tiles][2];

  // read_query gives the operand Q^T of one k step: for every tile of 8 rows two words.
  __device__ __forceinline__ void read_query(int step, uint32_t (&b)[Tiles][2]) const {
    const uint32_t base = shared_address(smem + S::kQuery) + R::at((Tiles > 1 ? lane / 16 * 8 : 0) + lane % 8, lane / 8 & 1);
#pragma unroll
    for (int n = 0; n < Tiles; n += 2) {  // two tiles, k halves 0 and 8 of each
      uint32_t r[4];
      ldmatrix4(r, R::step(base, step) + n * 8 * R::kBytes);
      b[n][0] = r[0], b[n][1] = r[1];
      if (n + 1 < Tiles) b[n + 1][0] = r[2], b[n + 1][1] = r[3];
    }
  }

  // ---- a unit ----

  // Scores and maxima are kept as they come, without the scale: at large ones the product's rounding is worse than a factor of e, while
  // the difference of two that matter is small and exact.
  float scale;    // |bmm1| · log2(e)
  float natural;  // |bmm1|
  uint32_t sign;  // flips both halves of a word of q where bmm1 is negative
  float acc[kSteps][Tiles][4];
  float m[Tiles][2], l[Tiles][2];

  // What the unit needs of the segment at hand.
  int keys, rows;          // S_b, L_b
  int row0;                // the tile's first row
  int query0, query1;      // query rows of the tile's first and last existing row
  int valid;               // rows of the tile that exist
  const uint16_t *masks;   // of the request, or null

  __device__ __forceinline__ void begin_segment(const Cursor &c) {
    keys = c.r.keys;
    rows = c.r.rows;
    row0 = c.tile * kRows;
    valid = min(kRows, rows * group - row0);
    query0 = row0 / group;
    query1 = (row0 + valid - 1) / group;
    masks = p.mask == nullptr || rows == 1 ? nullptr : p.mask + (int64_t)c.b * p.q_len * (2 * ((p.q_len + 31) / 32));
    if constexpr (kQueryInRegisters) {
#pragma unroll
      for (int k = 0; k < kSteps; k++) read_query(k, qf[k]);
    }
#pragma unroll
    for (int n = 0; n < Tiles; n++) {
      m[n][0] = m[n][1] = -GAZE_INF;
      l[n][0] = l[n][1] = 0;
#pragma unroll
      for (int k = 0; k < kSteps; k++)
#pragma unroll
        for (int i = 0; i < 4; i++) acc[k][n][i] = 0;
    }
  }

  // visible tells whether query row i sees a token.
  __device__ __forceinline__ bool visible(int i, int token) const {
    const int at = keys - rows + i;
    if (token >= keys || (p.window_left >= 0 && token < (int64_t)at - p.window_left)) return false;
    if (masks == nullptr) return token <= at;
    const int draft = token - (keys - rows);
    return draft < 0 || (i < rows && (masks[i * (2 * ((p.q_len + 31) / 32)) + draft / 16] >> (draft % 16) & 1));
  }

  // unit works on the 16 tokens in `ring`.
  __device__ __forceinline__ void unit(const uint8_t *ring, int token0) {
    const uint32_t k = shared_address(ring) + R::at(lane & 15, lane / 16);
    const uint32_t v = shared_address(ring) + kUnit * R::kBytes + R::at((lane & 7) + (lane & 16) / 2, lane / 8 & 1);
    float s[Tiles][4], s2[4] = {0, 0, 0, 0};
#pragma unroll
    for (int n = 0; n < Tiles; n++)
#pragma unroll
      for (int i = 0; i < 4; i++) s[n][i] = 0;
#pragma unroll
    for (int step = 0; step < kSteps; step++) {
      uint32_t a[4];
      ldmatrix4(a, R::step(k, step));
      if constexpr (kQueryInRegisters) {
#pragma unroll
        for (int n = 0; n < Tiles; n++)  // with one tile two chains: a product waits for the one before it
          mma16816<T>(Tiles == 1 && step % 2 ? s2 : s[n], a, qf[step][n][0], qf[step][n][1]);
      } else {
        uint32_t b[Tiles][2];
        read_query(step, b);
#pragma unroll
        for (int n = 0; n < Tiles; n++) mma16816<T>(s[n], a, b[n][0], b[n][1]);
      }
    }
    if (Tiles == 1)
#pragma unroll
      for (int i = 0; i < 4; i++) s[0][i] += s2[i];

    // Units whose tokens some row does not see.
    const bool edge = token0 + kUnit > keys - rows + (masks != nullptr ? 0 : query0 + 1) ||
                      (p.window_left >= 0 && token0 < (int64_t)keys - rows + query1 - p.window_left);
    if (edge) {
#pragma unroll
      for (int n = 0; n < Tiles; n++)
#pragma unroll
        for (int c = 0; c < 2; c++) {
          const int i = (row0 + n * 8 + 2 * t + c) / group;
          if (!visible(i, token0 + g)) s[n][c] = -GAZE_INF;
          if (!visible(i, token0 + g + 8)) s[n][2 + c] = -GAZE_INF;
        }
    }

    bool grew = false;
    float old[Tiles][2];
#pragma unroll
    for (int n = 0; n < Tiles; n++)
#pragma unroll
      for (int c = 0; c < 2; c++) {
        float x = fmaxf(s[n][c], s[n][2 + c]);
        x = fmaxf(x, __shfl_xor_sync(~0u, x, 4));
        x = fmaxf(x, __shfl_xor_sync(~0u, x, 8));
        x = fmaxf(x, __shfl_xor_sync(~0u, x, 16));
        old[n][c] = m[n][c];
        m[n][c] = fmaxf(old[n][c], x);
        grew |= m[n][c] > old[n][c];
      }
    if (__any_sync(~0u, grew)) {
#pragma unroll
      for (int n = 0; n < Tiles; n++)
#pragma unroll
        for (int c = 0; c < 2; c++) {
          const float f = weight(old[n][c], m[n][c]);
          l[n][c] *= f;
#pragma unroll
          for (int k2 = 0; k2 < kSteps; k2++) acc[k2][n][c] *= f, acc[k2][n][2 + c] *= f;
        }
    }
    uint32_t pt[Tiles][2];
#pragma unroll
    for (int n = 0; n < Tiles; n++) {
      // Without a key so far all are -inf, and weigh 0 whatever the scale.
      const bool none0 = m[n][0] == -GAZE_INF, none1 = m[n][1] == -GAZE_INF;
      const float m0 = none0 ? 0.0f : m[n][0], m1 = none1 ? 0.0f : m[n][1], scale0 = none0 ? 1.0f : scale, scale1 = none1 ? 1.0f : scale;
      s[n][0] = exp2_approx((s[n][0] - m0) * scale0);
      s[n][1] = exp2_approx((s[n][1] - m1) * scale1);
      s[n][2] = exp2_approx((s[n][2] - m0) * scale0);
      s[n][3] = exp2_approx((s[n][3] - m1) * scale1);
      l[n][0] += s[n][0] + s[n][2];
      l[n][1] += s[n][1] + s[n][3];
      pt[n][0] = movmatrix_trans(pack<T>(s[n][0], s[n][1]));
      pt[n][1] = movmatrix_trans(pack<T>(s[n][2], s[n][3]));
    }
    if (edge && rows > 1) {
      // A NaN or infinity in V times a weight of 0 would reach rows that don't see it. So one product for each query row, of the
      // tokens that it sees, and only its columns are kept. Tokens that no row sees were zeroed when loaded.
#pragma unroll 1
      for (int i = query0; i <= query1; i++) {
        uint32_t see[2];
#pragma unroll
        for (int half = 0; half < 2; half++) {
          const int token = token0 + 2 * t + 8 * half;
          see[half] = (visible(i, token) ? 0xffffu : 0) | (visible(i, token + 1) ? 0xffff0000u : 0);
        }
        product<true>(v, pt, see, i);
      }
    } else {
      const uint32_t all[2] = {~0u, ~0u};
      product<false>(v, pt, all, 0);
    }
  }

  // product adds V^T·P^T; with One over the tokens in `see` and to the rows of query row i only.
  template <bool One>
  __device__ __forceinline__ void product(uint32_t v, const uint32_t (&pt)[Tiles][2], const uint32_t (&see)[2], int i) {
#pragma unroll
    for (int k = 0; k < kSteps; k++) {
      uint32_t a[4];
      ldmatrix4_trans(a, R::step(v, k));
      if (One) a[0] &= see[0], a[1] &= see[0], a[2] &= see[1], a[3] &= see[1];
#pragma unroll
      for (int n = 0; n < Tiles; n++) {
        if (One) {
          float d[4] = {acc[k][n][0], acc[k][n][1], acc[k][n][2], acc[k][n][3]};
          mma16816<T>(d, a, pt[n][0], pt[n][1]);
#pragma unroll
          for (int x = 0; x < 4; x++)
            if ((row0 + n * 8 + 2 * t + (x & 1)) / group == i) acc[k][n][x] = d[x];
        } else {
          mma16816<T>(acc[k][n], a, pt[n][0], pt[n][1]);
        }
      }
    }
  }

  // weight is that of maximum m beside `top`, and 1 for the top itself, -inf too: what has no key yet is 0 already, and a NaN must stay one.
  __device__ __forceinline__ float weight(float m, float top) const { return m == top ? 1.0f : exp2_approx((m - top) * scale); }

  // ---- the end of a segment ----

  __device__ __forceinline__ float2 *stats(int w) const { return reinterpret_cast<float2 *>(smem + S::kStats) + w * kRows; }
  __device__ __forceinline__ float *sums(int w) const { return reinterpret_cast<float *>(smem + S::kSum) + w * kRows * kPitch; }

  // finish writes dims d, d+1 of a row from its sum over all keys, its maximum and its denominator, which is < 0 for a bad request.
  __device__ __forceinline__ void finish(const Cursor &c, int row, int d, float2 o, float top, float sum) const {
    const int r = row0 + row, h = c.head * group + r % group;
    const int64_t at = (c.r.row0 + r / group) * p.q_heads + h;
    float lse2 = -GAZE_INF, top2 = 0;
    bool empty = sum < 0;
    if (!empty) {
      top2 = top * scale;
      if (p.sinks != nullptr) {
        const float sink = p.sinks[h];
        const float none = sink > top ? GAZE_INF : -GAZE_INF;
        const float over = top == -GAZE_INF ? none : fmaf(-top, natural, sink) * kLog2e;  // the sink's logit over the top one, base 2
        if (over > 0) {
          const float f = exp2_approx(-over);
          o.x *= f, o.y *= f;
          sum = sum * f + 1.0f;
          top2 = sink * kLog2e;
        } else {
          sum += exp2_approx(over);
        }
      }
      empty = sum == 0;
    }
    if (empty) {
      o = make_float2(0, 0);
    } else {
      const float c2 = (p.bmm2_scale_at != nullptr ? *p.bmm2_scale_at : p.bmm2_scale) / sum;
      o.x *= c2, o.y *= c2;
      lse2 = top2 + log2f(sum);
    }
    reinterpret_cast<uint32_t *>(p.out)[(at * D + d) / 2] = pack<T>(o.x, o.y);
    if (d == 0) {
      if (p.lse != nullptr) p.lse[at] = lse2 * kLn2;
      if (p.lse2 != nullptr) p.lse2[at] = lse2;
    }
  }

  // end_segment adds up the warps and writes the segment's rows, or its partial sums to `part`.
  __device__ __forceinline__ void end_segment(const Cursor &c, bool bad, float *part) {
#pragma unroll
    for (int n = 0; n < Tiles; n++)
#pragma unroll
      for (int i = 0; i < 2; i++) {
        float x = l[n][i];
        x += __shfl_xor_sync(~0u, x, 4);
        x += __shfl_xor_sync(~0u, x, 8);
        x += __shfl_xor_sync(~0u, x, 16);
        if (g == 0) stats(warp)[n * 8 + 2 * t + i] = make_float2(m[n][i], bad ? -1.0f : x);
      }
    __syncthreads();
#pragma unroll
    for (int n = 0; n < Tiles; n++)
#pragma unroll
      for (int i = 0; i < 2; i++) {
        float top = -GAZE_INF;
#pragma unroll
        for (int w = 0; w < S::kWarps; w++) top = fmaxf(top, stats(w)[n * 8 + 2 * t + i].x);
        const float f = weight(m[n][i], top);
#pragma unroll
        for (int k = 0; k < kSteps; k++) acc[k][n][i] *= f, acc[k][n][2 + i] *= f;
      }
#pragma unroll
    for (int d0 = 0; d0 < D; d0 += kSlice) {
      if (d0 > 0) __syncthreads();
#pragma unroll
      for (int k = 0; k < kSlice / 16; k++)
#pragma unroll
        for (int n = 0; n < Tiles; n++)
#pragma unroll
          for (int i = 0; i < 4; i++) {
            const int row = n * 8 + 2 * t + (i & 1), d = 16 * k + g + (i >> 1) * 8;
            if (row < valid) sums(warp)[row * kPitch + d] = acc[d0 / 16 + k][n][i];
          }
      __syncthreads();
#pragma unroll 1
      for (int e = tid; e < valid * (kSlice / 2); e += S::kThreads) {
        const int row = e / (kSlice / 2), d = e % (kSlice / 2) * 2;
        float2 o = make_float2(0, 0);
        float top = -GAZE_INF, sum = 0;
        bool spoilt = false;
#pragma unroll
        for (int w = 0; w < S::kWarps; w++) {
          const float2 x = *reinterpret_cast<const float2 *>(&sums(w)[row * kPitch + d]);
          o.x += x.x, o.y += x.y;
          top = fmaxf(top, stats(w)[row].x);
        }
#pragma unroll
        for (int w = 0; w < S::kWarps; w++) {
          const float2 x = stats(w)[row];
          spoilt |= x.y < 0;
          sum += x.y * weight(x.x, top);
        }
        if (spoilt) sum = -1;
        if (part == nullptr) {
          finish(c, row, d0 + d, o, top, sum);
        } else {
          __stcg(reinterpret_cast<float2 *>(part + row * D + d0 + d), o);
          if (d0 + d == 0) __stcg(reinterpret_cast<float2 *>(part + kRows * D) + row, make_float2(top, sum));
        }
      }
    }
  }

  // last_to_arrive tells whether all other blocks of the segment, `parts` in all, have written theirs; `first` is the first of them.
  __device__ __forceinline__ bool last_to_arrive(int first, int parts) const {
    int *last = reinterpret_cast<int *>(smem + S::kBytes - 16);
    __syncthreads();
    if (tid == 0) {  // its fences stand for the block, which the barriers order before and after
      __threadfence();
      *last = atomicAdd(&p.counters[first], 1u) == (uint32_t)parts - 1;
      if (*last) p.counters[first] = 0;
      __threadfence();
    }
    __syncthreads();
    return *last;
  }

  // merge adds up the partial results of a segment's blocks, in their order. The first block's stands at slot0, those of the others,
  // whose first segment it is, at twice their number.
  __device__ __forceinline__ void merge(const Cursor &c, int first, int parts, int slot0) const {
    constexpr int kBatch = 16;  // loads in flight
#pragma unroll 1
    for (int e = tid; e < valid * (D / 4); e += S::kThreads) {
      const int row = e / (D / 4), d = e % (D / 4) * 4;
      float4 o = make_float4(0, 0, 0, 0);
      float top = -GAZE_INF, sum = 0;
      bool spoilt = false;
#pragma unroll 1
      for (int i0 = 0; i0 < parts; i0 += kBatch) {
        float4 x[kBatch];
        float2 ml[kBatch];
#pragma unroll
        for (int i = 0; i < kBatch; i++) {
          ml[i] = make_float2(-GAZE_INF, 0);
          x[i] = make_float4(0, 0, 0, 0);
          if (i0 + i < parts) {
            const float *part = p.workspace + (int64_t)(i0 + i == 0 ? slot0 : 2 * (first + i0 + i)) * kPartial;
            x[i] = __ldcg(reinterpret_cast<const float4 *>(part + row * D + d));
            ml[i] = __ldcg(reinterpret_cast<const float2 *>(part + kRows * D) + row);
          }
        }
#pragma unroll
        for (int i = 0; i < kBatch; i++) {
          const float up = fmaxf(top, ml[i].x), a = weight(top, up), b = weight(ml[i].x, up);
          spoilt |= ml[i].y < 0;
          o.x = o.x * a + x[i].x * b;
          o.y = o.y * a + x[i].y * b;
          o.z = o.z * a + x[i].z * b;
          o.w = o.w * a + x[i].w * b;
          sum = sum * a + ml[i].y * b;
          top = up;
        }
      }
      if (spoilt) sum = -1;
      finish(c, row, d, make_float2(o.x, o.y), top, sum);
      finish(c, row, d + 2, make_float2(o.z, o.w), top, sum);
    }
  }

  // ---- the whole ----

  __device__ __forceinline__ void run() {
    const float bmm1 = p.bmm1_scale_at != nullptr ? *p.bmm1_scale_at : p.bmm1_scale;
    sign = bmm1 < 0 ? 0x80008000u : 0;
    natural = fabsf(bmm1);
    scale = natural * kLog2e;
    if (scale == 0) scale = __int_as_float(1);  // the least there is: a hidden key's -inf times 0 would be NaN
    const int count = make_plan<S::kThreads>(p, group, p.min_units > 0 ? p.min_units : S::kWarps, shared_plan());
    if (count == 0) return;

    left = count - warp;
    bad_stages = 0;
    load_stage = 0;
    if (lane == 0) {
      load_cursor() = shared_plan().at;
      if (left > 0) load_cursor().advance(p, group, warp);
    }
    __syncwarp();
    fetch_pages();
#pragma unroll 1
    for (int i = 0; i < S::kStages; i++) load();
    uint4 q[kQueryPieces];
    fetch_query(shared_plan().at, q);
    store_query(q);
    if (tid == 0) {
      cursor(0) = cursor(1) = shared_plan().at;
      cursor(1).advance(p, group, min(cursor(0).r.units - cursor(0).unit, count));
    }
    __syncthreads();

    int done = 0, stage = 0, mine = warp, at = 0;  // units of the block done, this warp's stage and next unit, the segment's cursor
#pragma unroll 1
    while (done < count) {
      const Cursor &c = cursor(at);
      const int here = min(c.r.units - c.unit, count - done), token0 = (c.r.first + c.unit - done) * kUnit;
      const bool more = done + here < count;
      begin_segment(c);
      if (more) fetch_query(cursor(at == 2 ? 0 : at + 1), q);
      bool bad = c.r.bad;
#pragma unroll 1
      for (; mine < done + here; mine += S::kWarps) {
        cp_wait<S::kStages - 1>();
        __syncwarp();
        bad |= (bad_stages >> stage & 1) != 0;
        unit(smem + S::kRing + (warp * S::kStages + stage) * S::kUnitBytes, token0 + mine * kUnit);
        __syncwarp();
        load();
        stage = stage + 1 == S::kStages ? 0 : stage + 1;
      }
      if (more && tid == 0) {  // the cursor after the next: nobody looks at its place now
        const Cursor &next = cursor(at == 2 ? 0 : at + 1);
        Cursor &then = cursor(at == 0 ? 2 : at - 1);
        then = next;
        if (done + here + next.r.units < count) then.advance(p, group, next.r.units);
      }
      const Plan plan = shared_plan().plan;
      const int64_t begin = shared_plan().begin + done - c.unit;  // of the segment
      const int first = plan.owner(begin), parts = plan.owner(begin + c.r.units - 1) - first + 1;
      float *part = parts == 1 ? nullptr : p.workspace + (int64_t)(2 * blockIdx.x + (done > 0)) * kPartial;
      end_segment(c, bad, part);
      if (more) store_query(q);
      if (parts > 1 && last_to_arrive(first, parts)) merge(c, first, parts, 2 * first + (plan.begin_of(first) != begin));
      __syncthreads();
      done += here;
      at = at == 2 ? 0 : at + 1;
    }
  }
};

template <class T, int D>
__device__ __forceinline__ void decode(const DecodeParams &p) {
  SHARED(smem);
  grid_wait();
  grid_launch_next();
  // The table is small beside the cache, but its entries are on the way to the first key.
  const int64_t entries = (int64_t)p.batch * p.max_pages;
  if (entries <= 16384) {
    const int64_t e = ((int64_t)blockIdx.x * DecodeShape<D>::kThreads + threadIdx.x) * 32;
    if (e < entries) prefetch_l2(p.block_tables + e / p.max_pages * p.table_row + e % p.max_pages);
  }
  if (p.tile_rows == 8) {
    Decode<T, D, 1>(p, smem).run();
  } else if (p.tile_rows == 16) {
    Decode<T, D, 2>(p, smem).run();
  } else {
    if constexpr (DecodeShape<D>::kMaxTiles == 4) Decode<T, D, 4>(p, smem).run();
  }
}

}  // namespace gaze
