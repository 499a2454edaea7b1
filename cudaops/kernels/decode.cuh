// Paged decode attention. The loop it replaces: for every request, KV head and row of the head's group,
//
//	s[j] = bmm1 · q·k[j] over the visible keys j,  out = bmm2 · Σ exp(s[j]-m)·v[j] / (Σ exp(s[j]-m) + exp(sink-m))
//
// It is bound by reading K and V once. Every warp streams its own units of 16 tokens (32 of e4m3, or of head dim 64) through its own ring
// in shared memory (cp.async, so any strides and page sizes), without a barrier in the loop. Tokens are the long side of both products,
// rows the short one: S^T = K·Q^T and O^T = V^T·P^T with mma.m16n8k16, so 8 rows fill a tile; S^T becomes the operand P^T by one 8×8
// transpose. e4m3 is widened to f16, which holds all of it, between shared memory and the products; q and P are f16 then. Warps meet at
// the end of a segment, add up in a fixed order, and write the result, or, where the segment is cut between blocks, a partial one to the
// workspace; the block that comes last to a segment (a counter that it sets back to 0) merges those.
#pragma once
#include "decode_out.cuh"
#include "decode_query.cuh"

namespace gaze {

// DecodeShape fixes the sizes for one head dim, cache elements of Size bytes, and tiles of 8·Tiles rows.
template <int D, int Size, int Tiles>
struct DecodeShape {
  static constexpr int kUnit = Size == 1 || D == 64 ? 32 : 16;  // tokens: 6 to 16 KB of K and V
  static constexpr int kWarps = GAZE_SM90 || D <= 128 ? 4 : 2;
  static constexpr int kStages = D == 64 ? (Size == 1 ? 4 : 2) : D == 96 ? 3 : D == 128 ? 2 : GAZE_SM90 ? (D == 192 ? 4 : 3) : (D == 192 ? 3 : 2);
  // Two blocks a multiprocessor: while the warps of one meet at the end of a segment, those of the other go on.
  static constexpr int kBlocks = GAZE_SM90 && D <= 128 ? 2 : 1;
  static constexpr int kThreads = 32 * kWarps, kRows = 8 * Tiles;
  static constexpr int kUnitBytes = 2 * kUnit * Rows<D, Size>::kBytes;  // K, then V
  // O^T is added up in slices of this many dims, so that warps · rows · slice fits; halves of it have whole blocks of 16.
  static constexpr int slice() {
    static_assert(D % 32 == 0, "");
    int d = 512 / (Tiles * kWarps) / 32 * 32;
    d = d > D ? D : d;
    while (D % d) d -= 32;
    return d;
  }

  static constexpr int kRing = 0;
  static constexpr int kQuery = kRing + kWarps * kStages * kUnitBytes;
  static constexpr int kScales = kQuery + kRows * Rows<D>::kBytes;
  static constexpr int kSum = kScales + (Size == 1 ? kRows * 8 : 0);
  static constexpr int kStats = kSum + 4 * kWarps * kRows * (slice() + 4);
  static constexpr int kPlan = kStats + kWarps * kRows * 8;
  static constexpr int kCursors = kPlan + (int)sizeof(PlanShared);
  static constexpr int kBytes = kCursors + (kWarps + 3) * (int)sizeof(Cursor) + 16;

  static constexpr bool is(LaunchFacts f) { return f.are(kThreads, kBytes, kRows, kBlocks); }
};

template <class T, int D, int Tiles>
struct Decode {
  static constexpr bool kWiden = sizeof(T) == 1;
  typedef DecodeShape<D, sizeof(T), Tiles> S;
  typedef Rows<D, sizeof(T)> R;
  typedef std::conditional_t<kWiden, f16, T> M;  // what products are made of
  typedef QueryTile<T, D, 8 * Tiles, S::kThreads> Query;
  static constexpr int kUnit = S::kUnit, kParts = kUnit / 16;
  static constexpr int kGroups = kUnit == 32 && Tiles * D <= 256 ? 2 : 1;  // of 16 tokens, whose scores are made at once
  static constexpr int kOperands = kWiden ? 2 : kGroups;  // of 16×16, that one read gives
  static constexpr int kRows = 8 * Tiles;
  static constexpr int kSteps = D / 16;  // of k in S^T, of m in O^T
  static constexpr bool kQueryInRegisters = Tiles * D <= 256;
  static constexpr int kSlice = S::slice(), kPitch = kSlice + 4;
  static constexpr int kPartial = kRows * (D + 2);  // floats of a partial result: O [rows][D], then (m, l) of each row

  const DecodeParams &p;
  uint8_t *const smem;
  const int tid, lane, warp, g, t;
  const int group;  // G
  const Divider by_group, by_page;

  __device__ __forceinline__ Decode(const DecodeParams &p, uint8_t *smem)
      : p(p), smem(smem), tid(threadIdx.x), lane(tid % 32), warp(tid / 32), g(lane / 4), t(lane % 4), group(p.group),
        by_group{p.group, p.group_mul, p.group_shift}, by_page{p.page_size, p.page_mul, p.page_shift} {}

  __device__ __forceinline__ PlanShared &shared_plan() const { return *reinterpret_cast<PlanShared *>(smem + S::kPlan); }
  // The load side's segment, one a warp; and three for the block: the segment at hand, the next, and the one after. The first of those
  // is also where the load sides begin: nobody writes it before they have gone on to others.
  __device__ __forceinline__ Cursor &load_cursor() const { return reinterpret_cast<Cursor *>(smem + S::kCursors)[warp]; }
  __device__ __forceinline__ Cursor &cursor(int i) const { return reinterpret_cast<Cursor *>(smem + S::kCursors)[S::kWarps + i]; }

  // ---- loading ----

  // The unit that this warp loads next.
  int left;          // units of this block from it on; ≤ 0: there is none
  int rest;          // units of its segment from it on
  int first_token;
  int low, high;     // keys [low, high) of its request are visible to some row, others are zeroed when loaded
  int request;
  const int32_t *table;  // the request's row
  const T *k, *v;        // of the KV head
  bool aligned;          // all rows at multiples of 16 bytes
  bool crossed;          // it lies in another segment than the block's first unit
  int pages;             // lane i: the page of its token i, or, where pages hold whole 16 tokens, of the i-th 16 of this warp's units since turn 0
  int turn;              // which of those is next
  int load_stage;
  uint32_t bad_stages;   // loaded with a bad page

  // whole tells whether 16 tokens, from a multiple of 16 on, always lie within a page.
  __device__ __forceinline__ bool whole() const { return p.page_size % 16 == 0; }

  // enter takes the load side to where c stands.
  __device__ __forceinline__ void enter(const Cursor &c) {
    rest = c.r.units - c.unit;
    first_token = (c.r.first + c.unit) * kUnit;
    high = c.r.keys;
    low = p.window_left < 0 ? 0 : (int)max((int64_t)0, (int64_t)c.r.keys - c.r.rows - p.window_left);
    request = c.b;
    table = p.block_tables + c.b * p.table_row;
    k = static_cast<const T *>(p.k) + c.head * p.k_head;
    v = static_cast<const T *>(p.v) + c.head * p.v_head;
    aligned = aligned16(k) && aligned16(v) && ((p.k_page | p.k_token | p.v_page | p.v_token) * sizeof(T) & 15) == 0;
    turn = 32;  // no page yet
  }

  __device__ __forceinline__ void fetch_pages() {
    pages = turn = 0;
    const int ahead = lane / kParts * S::kWarps;  // units
    if (whole() ? left <= ahead : lane >= kUnit) return;
    const int token = first_token + (whole() ? ahead * kUnit + lane % kParts * 16 : lane);
    if ((uint32_t)token < (uint32_t)high) pages = table[by_page(token)];
  }

  // load starts the copies of the next unit into the next stage, always as one group.
  __device__ __forceinline__ void load() {
    const int stage = load_stage;
    load_stage = stage + 1 == S::kStages ? 0 : stage + 1;
    bad_stages &= ~(1u << stage);
    if (left > 0) {
      const int from = low - first_token, to = high - first_token;    // of the unit's tokens these are looked at
      const int mine = whole() ? (lane - turn * kParts) * 16 : lane;  // the token whose page this lane holds
      const bool used = mine >= 0 && mine < kUnit && mine < to && mine + (whole() ? 15 : 0) >= from;
      const bool wrong = used && (pages < 0 || pages >= p.pages);
      if (wrong) blame_page(p, request, pages);
      const bool skip = __any_sync(~0u, wrong);  // nothing is read then, all rows become 0
      if (skip) bad_stages |= 1u << stage;
      const uint32_t ring = shared_address(smem + S::kRing + (warp * S::kStages + stage) * S::kUnitBytes);
      if (whole() && aligned && !skip && from <= 0 && to >= kUnit) {
#pragma unroll
        for (int i = 0; i < kParts; i++) {
          const int64_t page = __shfl_sync(~0u, pages, turn * kParts + i);
          const int slot = slot_of(first_token + 16 * i);
          copy_part(ring + 16 * i * R::kBytes, k + page * p.k_page + slot * p.k_token, p.k_token);
          copy_part(ring + (kUnit + 16 * i) * R::kBytes, v + page * p.v_page + slot * p.v_token, p.v_token);
        }
      } else {
#pragma unroll 1
        for (int i = 0; i < 2; i++)
          copy_rows(ring + i * kUnit * R::kBytes, i ? v : k, i ? p.v_page : p.k_page, i ? p.v_token : p.k_token, skip ? 0 : from, skip ? 0 : to);
      }
    }
    cp_commit();
  }

  // next moves the load side on by n units.
  __device__ __forceinline__ void next(int n) {
    left -= n;
    if (left <= 0) return;
    if (n < rest) {
      rest -= n;
      first_token += n * kUnit;
    } else {
      Cursor &c = load_cursor();
      if (lane == 0) {
        if (!crossed) c = cursor(0);
        c.unit = c.r.units - rest;
        c.template advance<kUnit, kRows>(p, n);
      }
      crossed = true;
      __syncwarp();
      enter(c);
      __syncwarp();
    }
    if (!whole() || ++turn >= 32 / kParts) fetch_pages();
  }

  // slot_of is a token's place in its page.
  __device__ __forceinline__ int slot_of(int token) const { return token - by_page(token) * p.page_size; }

  // copy_part copies 16 rows at an even distance, the usual case.
  __device__ __forceinline__ void copy_part(uint32_t dst, const T *src, int64_t token_stride) const {
    constexpr int kCopies = 16 * R::kPieces / 32, kElements = 16 / sizeof(T);
    static_assert(16 * R::kPieces % 32 == 0, "");
    if constexpr (32 % R::kPieces == 0) {
      constexpr int kRowsEach = 32 / R::kPieces;  // of one instruction
      const int row = lane / R::kPieces, piece = lane % R::kPieces;
      dst += R::at(row, piece);
      src += row * token_stride + piece * kElements;
#pragma unroll
      for (int i = 0; i < kCopies; i++) {
        cp_async16((dst ^ (i * kRowsEach & 7) * 16) + i * kRowsEach * R::kBytes, src);
        src += kRowsEach * token_stride;
      }
    } else {
#pragma unroll
      for (int i = 0; i < kCopies; i++) {
        const int e = i * 32 + lane, row = e / R::kPieces, piece = e % R::kPieces;
        cp_async16(dst + R::at(row, piece), src + row * token_stride + piece * kElements);
      }
    }
  }

  // copy_rows copies rows [low, high) of a unit in any pages and zeroes the others, which are not read.
  __device__ __forceinline__ void copy_rows(uint32_t dst, const T *src, int64_t page_stride, int64_t token_stride, int low, int high) const {
    constexpr int kElements = 16 / sizeof(T);
#pragma unroll 1
    for (int e = lane; e < kUnit * R::kPieces; e += 32) {
      const int row = e / R::kPieces, piece = e % R::kPieces;
      const int64_t page = __shfl_sync(~0u, pages, whole() ? turn * kParts + row / 16 : row);
      const T *x = src + page * page_stride + slot_of(first_token + row) * token_stride + piece * kElements;
      const bool live = row >= low && row < high;
      const uint32_t to = dst + R::at(row, piece);
      if (aligned) {
        cp_async16(to, live ? x : static_cast<const T *>(p.k), live ? 16 : 0);
      } else {
#pragma unroll 1
        for (int i = 0; i < kElements; i++) store_shared(to + i * sizeof(T), live ? bits(x[i]) : 0);
      }
    }
  }
  static __device__ __forceinline__ decltype(auto) bits(const T &x) { return reinterpret_cast<const std::conditional_t<kWiden, uint8_t, uint16_t> &>(x); }
  static __device__ __forceinline__ void store_shared(uint32_t dst, uint32_t x) {
    if constexpr (kWiden) store_shared8(dst, (uint8_t)x);
    else store_shared16(dst, (uint16_t)x);
  }

  // ---- queries ----

  __device__ __forceinline__ void store_query(const Query &q) const { q.store(p, smem + S::kQuery, row_scales(), bmm1, scale); }

  // Of each row: the factor of its scores, base 2, and the power of two that q was divided by. Without widening all are `scale` and 1.
  __device__ __forceinline__ float2 *row_scales() const { return reinterpret_cast<float2 *>(smem + S::kScales); }

  uint32_t qf[kQueryInRegisters ? kSteps : 1][Tiles][2];

  // read_query gives the operand Q^T of one k step: for every tile of 8 rows two words.
  __device__ __forceinline__ void read_query(int step, uint32_t (&b)[Tiles][2]) const {
    typedef Rows<D> R;
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
  float bmm1;
  float scale;  // base2(bmm1)
  float acc[kSteps][Tiles][4];
  float m[Tiles][2], l[Tiles][2];

  // What the unit needs of the segment at hand.
  int keys, rows;          // S_b, L_b
  int row0;                // the tile's first row
  int query0, query1;      // query rows of the tile's first and last existing row
  int head0;               // and the first's head of the group
  int valid;               // rows of the tile that exist
  const uint16_t *masks;   // of the request, or null

  __device__ __forceinline__ void begin_segment(const Cursor &c) {
    keys = c.r.keys;
    rows = c.r.rows;
    row0 = c.tile * kRows;
    valid = min(kRows, rows * group - row0);
    query0 = by_group(row0);
    head0 = row0 - query0 * group;
    query1 = query_of(valid - 1);
    masks = p.mask == nullptr || rows == 1 ? nullptr : p.mask + (int64_t)c.b * p.q_len * (2 * ((p.q_len + 31) / 32));
    if constexpr (kQueryInRegisters) {
#pragma unroll
      for (int k = 0; k < kSteps; k++) read_query(k, qf[k]);
    }
    uint32_t seeing = 0;  // bit 2·tile + column
#pragma unroll 1
    for (int x = 0; x < 2 * Tiles; x++)
      if (sees(query_of(x / 2 * 8 + 2 * t + x % 2))) seeing |= 1u << x;
#pragma unroll
    for (int n = 0; n < Tiles; n++) {
#pragma unroll
      for (int c = 0; c < 2; c++) m[n][c] = -GAZE_INF, l[n][c] = seeing >> (2 * n + c) & 1 ? kFaint : 0.0f;
#pragma unroll
      for (int k = 0; k < kSteps; k++)
#pragma unroll
        for (int i = 0; i < 4; i++) acc[k][n][i] = 0;
    }
  }

  // query_of is the query row of a row of the tile.
  __device__ __forceinline__ int query_of(int row) const { return query0 + by_group(head0 + row); }

  // visible tells whether query row i sees a token.
  __device__ __forceinline__ bool visible(int i, int token) const {
    const int at = keys - rows + i;
    if ((uint32_t)token >= (uint32_t)keys || (p.window_left >= 0 && token < (int64_t)at - p.window_left)) return false;
    if (masks == nullptr) return token <= at;
    const int draft = token - (keys - rows);
    return draft < 0 || (i < rows && (masks[(int64_t)i * (2 * ((p.q_len + 31) / 32)) + draft / 16] >> (draft % 16) & 1));
  }

  // sees tells whether query row i sees any token.
  __device__ __forceinline__ bool sees(int i) const {
    const int at = keys - rows + i;
    if (masks == nullptr) return at >= 0;
    int token = p.window_left < 0 ? 0 : (int)max((int64_t)at - p.window_left, (int64_t)0);
#pragma unroll 1
    while (token < keys && !visible(i, token)) token++;
    return token < keys;
  }

  // unit works on the tokens in `ring`.
  __device__ __forceinline__ void unit(const uint8_t *ring, int token0) {
    // Of 16 tokens a lane's rows of K are those of the operand K; of V, transposed, those of V^T; of 32 widened ones any in turn.
    const int row = kWiden ? lane & (kGroups * 16 - 1) : lane & 15;
    const uint32_t k = shared_address(ring) + R::at(row, kWiden && kGroups == 2 ? 0 : lane / 16);
    const uint32_t v = shared_address(ring) + kUnit * R::kBytes +
                       (kWiden ? R::at(row, kGroups == 2 ? 0 : lane / 16) : R::at((lane & 7) + (lane & 16) / 2, lane / 8 & 1));
#pragma unroll 1
    for (int part = 0; part < kParts / kGroups; part++) part_of_unit(k + part * 16 * R::kBytes, v + part * 16 * R::kBytes, token0 + part * 16);
  }

  // read_key gives operands K of step `step`, one a group of 16 tokens; step + 1 too where one group is widened, for which it is called
  // with even steps only.
  __device__ __forceinline__ void read_key(uint32_t k, int step, uint32_t (&a)[kOperands][4]) const {
    uint32_t r[4];
    if constexpr (!kWiden) {
#pragma unroll
      for (int u = 0; u < kGroups; u++) ldmatrix4(a[u], R::step(k + u * 16 * R::kBytes, step));
    } else {
      ldmatrix4(r, R::piece(k, step));
#pragma unroll
      for (int i = 0; i < 4; i++) widen_e4m3(r[i], a[i / 2][i % 2], a[i / 2][i % 2 + 2]);
    }
  }
  // read_value does the same for V^T, whose rows of a step are then dims 0 2 4 … 14, 1 3 5 … 15.
  __device__ __forceinline__ void read_value(uint32_t v, int step, uint32_t (&a)[kOperands][4]) const {
    uint32_t r[4];
    if constexpr (!kWiden) {
#pragma unroll
      for (int u = 0; u < kGroups; u++) ldmatrix4_trans(a[u], R::step(v + u * 16 * R::kBytes, step));
    } else {
      ldmatrix4_trans(r, R::piece(v, step));
#pragma unroll
      for (int i = 0; i < 4; i++) widen_e4m3(__byte_perm(r[i], 0, 0x3120), a[i / 2][i % 2 * 2], a[i / 2][i % 2 * 2 + 1]);
    }
  }
  static constexpr int kReads = kWiden && kGroups == 1 ? 2 : 1;  // steps of one read

  // part_of_unit works on kGroups · 16 tokens.
  __device__ __forceinline__ void part_of_unit(uint32_t k, uint32_t v, int token0) {
    float s[kGroups][Tiles][4], s2[kGroups][4];
#pragma unroll
    for (int u = 0; u < kGroups; u++)
#pragma unroll
      for (int i = 0; i < 4; i++) {
        s2[u][i] = 0;
#pragma unroll
        for (int n = 0; n < Tiles; n++) s[u][n][i] = 0;
      }
#pragma unroll
    for (int step = 0; step < kSteps; step += kReads) {
      uint32_t a[kOperands][4];
      read_key(k, step, a);
#pragma unroll
      for (int x = 0; x < kReads; x++) {
        uint32_t b[Tiles][2];
        if constexpr (!kQueryInRegisters) read_query(step + x, b);
#pragma unroll
        for (int n = 0; n < Tiles; n++) {
          const uint32_t(&operand)[2] = kQueryInRegisters ? qf[kQueryInRegisters ? step + x : 0][n] : b[n];
          const uint32_t b0 = operand[0], b1 = operand[1];
#pragma unroll
          for (int u = 0; u < kGroups; u++)  // with one tile two chains: a product waits for the one before it
            mma16816<M>(Tiles == 1 && step % 2 ? s2[u] : s[u][n], a[kGroups == 2 ? u : x], b0, b1);
        }
      }
    }
    if (Tiles == 1)
#pragma unroll
      for (int u = 0; u < kGroups; u++)
#pragma unroll
        for (int i = 0; i < 4; i++) s[u][0][i] += s2[u][i];

    // Tokens that some row does not see.
    const bool edge = token0 > keys - rows + (masks != nullptr ? 0 : query0 + 1) - 16 * kGroups ||
                      (p.window_left >= 0 && token0 < (int64_t)keys - rows + query1 - p.window_left);
    if (edge) {
      if (masks == nullptr) {
#pragma unroll
        for (int n = 0; n < Tiles; n++)
#pragma unroll
          for (int c = 0; c < 2; c++) {
            const int last = keys - rows + query_of(n * 8 + 2 * t + c) - token0;
            const int first = p.window_left < 0 ? 0 : (int)max((int64_t)last - p.window_left, (int64_t)0);
#pragma unroll
            for (int u = 0; u < 2 * kGroups; u++)
              if (g + 8 * u > min(last, keys - 1 - token0) || g + 8 * u < first) s[u / 2][n][u % 2 * 2 + c] = -GAZE_INF;
          }
      } else {
        uint32_t hidden = 0;  // bit 8·tile + 4·column + 2·group + half
#pragma unroll 1
        for (int x = 0; x < 8 * Tiles; x++)
          if ((x & 3) < 2 * kGroups && !visible(query_of(x / 8 * 8 + 2 * t + (x >> 2 & 1)), token0 + g + 8 * (x & 3))) hidden |= 1u << x;
#pragma unroll
        for (int n = 0; n < Tiles; n++)
#pragma unroll
          for (int i = 0; i < 4; i++)
#pragma unroll
            for (int u = 0; u < kGroups; u++)
              if (hidden >> (8 * n + 4 * (i & 1) + 2 * u + i / 2) & 1) s[u][n][i] = -GAZE_INF;
      }
    }

    bool grew = false;
    float old[Tiles][2], factor[Tiles][2];
#pragma unroll
    for (int n = 0; n < Tiles; n++)
#pragma unroll
      for (int c = 0; c < 2; c++) {
        float x = fmaxf(s[0][n][c], s[0][n][2 + c]);
        if (kGroups == 2) x = fmaxf(x, fmaxf(s[kGroups - 1][n][c], s[kGroups - 1][n][2 + c]));
        x = fmaxf(x, __shfl_xor_sync(~0u, x, 4));
        x = fmaxf(x, __shfl_xor_sync(~0u, x, 8));
        x = fmaxf(x, __shfl_xor_sync(~0u, x, 16));
        old[n][c] = m[n][c];
        m[n][c] = fmaxf(old[n][c], x);
        grew |= m[n][c] > old[n][c];
        factor[n][c] = kWiden ? row_scales()[n * 8 + 2 * t + c].x : scale;
      }
    if (__any_sync(~0u, grew)) {
#pragma unroll
      for (int n = 0; n < Tiles; n++)
#pragma unroll
        for (int c = 0; c < 2; c++) {
          const float f = weight(old[n][c], m[n][c], factor[n][c]);
          l[n][c] *= f;
#pragma unroll
          for (int k2 = 0; k2 < kSteps; k2++) acc[k2][n][c] *= f, acc[k2][n][2 + c] *= f;
        }
    }
    uint32_t pt[kGroups][Tiles][2];
#pragma unroll
    for (int n = 0; n < Tiles; n++) {
      // Without a key so far all are -inf, and weigh 0 whatever the scale.
      const bool none0 = m[n][0] == -GAZE_INF, none1 = m[n][1] == -GAZE_INF;
      const float m0 = none0 ? 0.0f : m[n][0], m1 = none1 ? 0.0f : m[n][1], scale0 = none0 ? 1.0f : factor[n][0], scale1 = none1 ? 1.0f : factor[n][1];
#pragma unroll
      for (int u = 0; u < kGroups; u++) {
        float(&x)[4] = s[u][n];
        x[0] = exp2_approx(fmaf(x[0] - m0, scale0, kLift<M>));
        x[1] = exp2_approx(fmaf(x[1] - m1, scale1, kLift<M>));
        x[2] = exp2_approx(fmaf(x[2] - m0, scale0, kLift<M>));
        x[3] = exp2_approx(fmaf(x[3] - m1, scale1, kLift<M>));
        l[n][0] += x[0] + x[2];
        l[n][1] += x[1] + x[3];
        pt[u][n][0] = movmatrix_trans(pack<M>(x[0], x[1]));
        pt[u][n][1] = movmatrix_trans(pack<M>(x[2], x[3]));
      }
    }
    uint32_t see[kGroups][2];
    if (edge && rows > 1) {
      // A NaN or infinity in V times a weight of 0 would reach rows that don't see it. So one product for each query row, of the
      // tokens that it sees, and only its columns are kept. Tokens that no row sees were zeroed when loaded.
#pragma unroll 1
      for (int i = query0; i <= query1; i++) {
#pragma unroll
        for (int u = 0; u < kGroups; u++)
#pragma unroll
          for (int half = 0; half < 2; half++) {
            const int token = token0 + 16 * u + 2 * t + 8 * half;
            see[u][half] = (visible(i, token) ? 0xffffu : 0) | (visible(i, token + 1) ? 0xffff0000u : 0);
          }
        uint32_t own = 0;
#pragma unroll
        for (int n = 0; n < 2 * Tiles; n++) own |= (query_of(n / 2 * 8 + 2 * t + n % 2) == i ? 1u : 0) << n;
        product<true>(v, pt, see, own);
      }
    } else {
      product<false>(v, pt, see, 0);
    }
  }

  // product adds V^T·P^T; with One over the tokens in `see` and to the columns in `own` only.
  template <bool One>
  __device__ __forceinline__ void product(uint32_t v, const uint32_t (&pt)[kGroups][Tiles][2], const uint32_t (&see)[kGroups][2], uint32_t own) {
#pragma unroll
    for (int k0 = 0; k0 < kSteps; k0 += kReads) {
      uint32_t a[kOperands][4];
      read_value(v, k0, a);
#pragma unroll
      for (int x = 0; x < kReads; x++) {
        const int k = k0 + x;
        if (One) {
#pragma unroll
          for (int u = 0; u < kGroups; u++)
#pragma unroll
            for (int w = 0; w < 4; w++) a[kGroups == 2 ? u : x][w] &= see[u][w / 2];
        }
#pragma unroll
        for (int n = 0; n < Tiles; n++) {
          float d[4] = {acc[k][n][0], acc[k][n][1], acc[k][n][2], acc[k][n][3]};
#pragma unroll
          for (int u = 0; u < kGroups; u++) mma16816<M>(One ? d : acc[k][n], a[kGroups == 2 ? u : x], pt[u][n][0], pt[u][n][1]);
          if (One && (own >> (2 * n) & 1)) acc[k][n][0] = d[0], acc[k][n][2] = d[2];
          if (One && (own >> (2 * n + 1) & 1)) acc[k][n][1] = d[1], acc[k][n][3] = d[3];
        }
      }
    }
  }

  static __device__ __forceinline__ float4 times(float4 x, float f) { return make_float4(x.x * f, x.y * f, x.z * f, x.w * f); }
  // plus is o + w·x.
  static __device__ __forceinline__ float4 plus(float4 o, float4 x, float w) {
    return make_float4(fmaf(x.x, w, o.x), fmaf(x.y, w, o.y), fmaf(x.z, w, o.z), fmaf(x.w, w, o.w));
  }

  // weight is that of maximum m beside `top`, and 1 for the top itself, -inf too: what has no weight yet is next to 0, and a NaN must stay one.
  static __device__ __forceinline__ float weight(float m, float top, float scale) { return m == top ? 1.0f : exp2_approx((m - top) * scale); }

  // ---- the end of a segment ----

  __device__ __forceinline__ float2 *stats(int w) const { return reinterpret_cast<float2 *>(smem + S::kStats) + w * kRows; }
  __device__ __forceinline__ float *sums(int w) const { return reinterpret_cast<float *>(smem + S::kSum) + w * kRows * kPitch; }

  // finish writes dims d to d+3, and as many from d+Part on if there are two, of a row: from their sums over all keys, its maximum and its
  // denominator, which is < 0 for a bad request. All lanes call it, those that are not `live` for nothing.
  template <int Part, int Vecs>
  __device__ __forceinline__ void finish(const Cursor &c, int row, int d, const float4 (&o)[Vecs], float top, float sum, bool live) const {
    const int i = by_group(head0 + row), h = c.head * group + head0 + row - i * group;
    const int64_t token = c.r.row0 + query0 + i;
    constexpr float kOne = kLift<M> > 0 ? 1 << (int)kLift<M> : 1;  // a weight of 1 in the sum
    float peak = 0, factor = 1;
    const bool zero = sum <= 0;  // no key, or a bad request; a NaN is neither
    bool empty = sum < 0;
    if (!empty) {
      peak = top * factor_of(bmm1);
      if (is_faint(sum) && !(scale <= GAZE_MAX)) sum = GAZE_NAN;
      if (p.sinks != nullptr) {
        const float sink = p.sinks[h];
        const float none = sink > top && sink < GAZE_INF ? GAZE_INF : -GAZE_INF;  // without a score above -inf only a finite sink counts
        const float over = top == -GAZE_INF ? none : fmaf(-top, factor_of(bmm1), sink) * kLog2e;  // the sink's logit over the top one, base 2
        if (over > 0) {
          factor = exp2_approx(-over);
          sum = sum * factor + (sink - sink + kOne);  // NaN for a sink of infinity
          peak = sink;
        } else {
          sum = fmaf(exp2_approx(over), kOne, sum);
        }
      }
      empty = sum == 0;
      if (is_faint(sum)) sum = GAZE_NAN;
    }
    factor = __fdividef(factor, sum);
    const float bmm2 = p.bmm2_scale_at != nullptr ? *p.bmm2_scale_at : p.bmm2_scale;  // apart: it may be so small that a quotient keeps few bits
#pragma unroll(kWiden ? 1 : Vecs)
    for (int x = 0; x < Vecs; x++) {
      const float4 y = x == 0 ? o[0] : o[Vecs - 1];
      Output<T>::template write<D>(p, token, h, d + x * Part, zero ? make_float4(0, 0, 0, 0) : times(times(y, factor), bmm2), live);
    }
    if (d == 0 && live && (p.lse != nullptr || p.lse2 != nullptr)) {
      const int64_t at = token * p.q_heads + h;
      const float log2 = log2f(sum) - kLift<M>;
      if (p.lse != nullptr) p.lse[at] = empty ? -GAZE_INF : fmaf(log2, kLn2, peak);
      if (p.lse2 != nullptr) p.lse2[at] = empty ? -GAZE_INF : fmaf(peak, kLog2e, log2);
    }
  }

  // end_segment adds up the warps and writes the segment's rows; or, where it is cut between blocks, its partial sums, and merges those
  // of all if it comes last. `here` units of the segment were this block's, from its done-th on.
  __device__ __forceinline__ void end_segment(const Cursor &c, bool bad, int done, int here) {
    const bool cut = here < c.r.units;
    float *const part = cut ? p.workspace + (int64_t)(2 * blockIdx.x + (done > 0)) * kPartial : nullptr;
#pragma unroll
    for (int n = 0; n < Tiles; n++)
#pragma unroll
      for (int i = 0; i < 2; i++) {
        const int row = n * 8 + 2 * t + i;
        if (kWiden) m[n][i] *= row_scales()[row].y;
        float x = l[n][i];
        x += __shfl_xor_sync(~0u, x, 4);
        x += __shfl_xor_sync(~0u, x, 8);
        x += __shfl_xor_sync(~0u, x, 16);
        if (g == 0) stats(warp)[row] = make_float2(m[n][i], bad ? -1.0f : x);
      }
    __syncthreads();
#pragma unroll
    for (int n = 0; n < Tiles; n++)
#pragma unroll
      for (int i = 0; i < 2; i++) {
        float top = -GAZE_INF;
#pragma unroll
        for (int w = 0; w < S::kWarps; w++) top = fmaxf(top, stats(w)[n * 8 + 2 * t + i].x);
        const float f = weight(m[n][i], top, scale);
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
            const int row = n * 8 + 2 * t + (i & 1), d = 16 * k + (kWiden ? 2 * g + (i >> 1) : g + (i >> 1) * 8);
            if (row < valid) sums(warp)[row * kPitch + d] = acc[d0 / 16 + k][n][i];
          }
      __syncthreads();
      constexpr int kHalf = kSlice / 2;  // a thread has four dims of each half
      const int all = valid * (kHalf / 4);
#pragma unroll 1
      for (int e0 = 0; e0 < all; e0 += S::kThreads) {
        const bool live = e0 + tid < all;
        const int e = live ? e0 + tid : 0, row = e / (kHalf / 4), d = e % (kHalf / 4) * 4;
        float4 o[2] = {};
        float top = -GAZE_INF, sum = 0;
        bool spoilt = false;
#pragma unroll
        for (int w = 0; w < S::kWarps; w++) {
#pragma unroll
          for (int i = 0; i < 2; i++) o[i] = plus(o[i], *reinterpret_cast<const float4 *>(&sums(w)[row * kPitch + i * kHalf + d]), 1);
          top = fmaxf(top, stats(w)[row].x);
        }
#pragma unroll
        for (int w = 0; w < S::kWarps; w++) {
          const float2 x = stats(w)[row];
          spoilt |= x.y < 0;
          sum += x.y * weight(x.x, top, scale);
        }
        if (spoilt) sum = -1;
        if (!cut) {
          finish<kHalf>(c, row, d0 + d, o, top, sum, live);
        } else if (live) {
#pragma unroll
          for (int i = 0; i < 2; i++) __stcg(reinterpret_cast<float4 *>(part + row * D + d0 + i * kHalf + d), o[i]);
          if (d0 + d == 0) __stcg(reinterpret_cast<float2 *>(part + kRows * D) + row, make_float2(top, sum));
        }
      }
    }
    if (cut && last_to_arrive()) merge(c);
  }

  // Of a segment that is cut between blocks: the first of those, how many they are, and whether the segment is the first one's second.
  int first_block, blocks;
  bool second;

  __device__ __forceinline__ void find_blocks(const Cursor &c, int done) {
    const Plan plan = shared_plan().plan;
    const int64_t begin = shared_plan().begin + done - c.unit;  // of the segment
    first_block = plan.owner(begin);
    blocks = plan.owner(begin + c.r.units - 1) - first_block + 1;
    second = plan.begin_of(first_block) != begin;
  }

  // last_to_arrive tells whether all other blocks of the segment have written their parts.
  __device__ __forceinline__ bool last_to_arrive() const {
    int *last = reinterpret_cast<int *>(smem + S::kBytes - 16);
    __syncthreads();
    if (tid == 0) {  // it releases and acquires for the block, which the barriers order before and after
      *last = atomic_add_acq_rel(&p.counters[first_block], 1u) == (uint32_t)blocks - 1;
      if (*last) p.counters[first_block] = 0;
    }
    __syncthreads();
    return *last;
  }

  // merge adds up the parts of a segment's blocks, in their order: the first of each block, but of the first block maybe the second. A
  // thread has four dims of each of kVecs pieces of a row, so that one batch of loads serves 8 rows of 128 dims.
  __device__ __forceinline__ void merge(const Cursor &c) const {
    constexpr int kBatch = Tiles == 1 && (D == 96 || D == 128) ? 16 : 8, kVecs = D > 64 ? 2 : 1, kPart = D / kVecs;
    const int all = valid * (kPart / 4);
#pragma unroll 1
    for (int e0 = 0; e0 < all; e0 += S::kThreads) {
      const bool live = e0 + tid < all;
      const int e = live ? e0 + tid : 0, row = e / (kPart / 4), d = e % (kPart / 4) * 4;
      float4 o[kVecs] = {};
      float top = -GAZE_INF, sum = 0;
      bool spoilt = false;
      const float *at = p.workspace + (int64_t)first_block * (2 * kPartial);
      int skip = second ? kPartial : 0;
#pragma unroll 1
      for (int left = blocks; left > 0; left -= kBatch) {
        float4 x[kBatch][kVecs];
        float2 ml[kBatch];
#pragma unroll
        for (int i = 0; i < kBatch; i++) {
          ml[i] = make_float2(-GAZE_INF, 0);
#pragma unroll
          for (int j = 0; j < kVecs; j++) x[i][j] = make_float4(0, 0, 0, 0);
          if (i < left) {
            const float *part = at + i * (2 * kPartial) + (i == 0 ? skip : 0);
            ml[i] = __ldcg(reinterpret_cast<const float2 *>(part + kRows * D) + row);
#pragma unroll
            for (int j = 0; j < kVecs; j++) x[i][j] = __ldcg(reinterpret_cast<const float4 *>(part + row * D + j * kPart + d));
          }
        }
        float up = top;
#pragma unroll
        for (int i = 0; i < kBatch; i++) up = fmaxf(up, ml[i].x);
        const float old = weight(top, up, scale);
        sum *= old;
#pragma unroll
        for (int j = 0; j < kVecs; j++) o[j] = times(o[j], old);
#pragma unroll
        for (int i = 0; i < kBatch; i++) {
          const float w = weight(ml[i].x, up, scale);
          spoilt |= ml[i].y < 0;
          sum = fmaf(ml[i].y, w, sum);
#pragma unroll
          for (int j = 0; j < kVecs; j++) o[j] = plus(o[j], x[i][j], w);
        }
        top = up;
        at += kBatch * (2 * kPartial);
        skip = 0;
      }
      if (spoilt) sum = -1;
      finish<kPart>(c, row, d, o, top, sum, live);
    }
  }

  // ---- the whole ----

  // run works on this block's units; keys are those of request `lane`.
  __device__ __forceinline__ void run(int keys) {
    bmm1 = p.bmm1_scale_at != nullptr ? *p.bmm1_scale_at : p.bmm1_scale;
    scale = base2(bmm1);
    const int count = make_plan<S::kThreads, kUnit, kRows, S::kWarps, S::kBlocks>(p, keys, shared_plan(), cursor(0));
    if (count == 0) return;

    left = count;
    bad_stages = 0;
    load_stage = 0;
    crossed = false;
    enter(cursor(0));
    Query q;

    // The block has done `done` units before the segment at hand, which has `here`; `mine` is this warp's next one to work on and lies in
    // `stage`. It owes one load for every unit, and at first as many as there are stages, after it has moved to its first unit.
    int done = 0, here = 0, token0 = 0, mine = warp, stage = 0, at = 0, owed = S::kStages + 1;
    bool bad = false;
#pragma unroll 1
    for (;;) {
      if (owed > 0) {
        if (owed <= S::kStages) load();
        next(owed > S::kStages ? warp : S::kWarps);
        if (owed > S::kStages) q.fetch(p, cursor(0), by_group);
        if (--owed > 0) continue;
      }
      if (mine >= done + here) {  // from one segment to the next, whose cursor is `at`
        const int after = at == 2 ? 0 : at + 1, begin = done + here;
        if (tid == 0 && begin < count) {  // the cursor after that: nobody looks at its place now
          const int units = cursor(at).r.units - cursor(at).unit;
          if (begin + units < count) {
            cursor(after) = cursor(at);
            cursor(after).template advance<kUnit, kRows>(p, units);
          }
        }
        if (here > 0) {
          end_segment(cursor(at == 0 ? 2 : at - 1), bad, done, here);
          done = begin;
          if (done == count) return;
        }
        store_query(q);
        __syncthreads();
        const Cursor &c = cursor(at);
        here = min(c.r.units - c.unit, count - done);
        token0 = (c.r.first + c.unit - done) * kUnit;
        bad = c.r.bad;
        begin_segment(c);
        at = after;
        if (done + here < count) q.fetch(p, cursor(at), by_group);
        if (here < c.r.units) find_blocks(c, done);
        continue;
      }
      cp_wait<S::kStages - 1>();
      __syncwarp();
      bad |= (bad_stages >> stage & 1) != 0;
      unit(smem + S::kRing + (warp * S::kStages + stage) * S::kUnitBytes, token0 + mine * kUnit);
      __syncwarp();
      stage = stage + 1 == S::kStages ? 0 : stage + 1;
      mine += S::kWarps;
      owed = 1;
    }
  }
};

// decode is a kernel: one for every height of a tile, so that each has its own registers and its code lies in a row.
template <class T, int D, int TileRows>
__device__ __forceinline__ void decode(const DecodeParams &p) {
  SHARED(smem);
  grid_wait();
  grid_launch_next();
  const int keys = p.seq_lens[min((int)threadIdx.x % 32, p.batch - 1)];
  // The table is small beside the cache, but its entries are on the way to the first key. Rows of 4,096 pages and 264 requests are enough
  // to be bound by the cache.
  if (blockIdx.x < p.batch && threadIdx.x * 32 < p.max_pages) prefetch_l2(p.block_tables + blockIdx.x * p.table_row + threadIdx.x * 32);
  Decode<T, D, TileRows / 8>(p, smem).run(keys);
}

}  // namespace gaze

// The kernels of one head dim and height of a tile: for caches of q's type, and for e4m3 caches.
#define DECODE_SHAPE(T, D, rows) gaze::DecodeShape<D, sizeof(gaze::T), rows / 8>
#define DECODE_KERNEL(name, T, D, rows, shape)                                                               \
  static_assert(DECODE_SHAPE(T, D, rows)::is(LAUNCH_FACTS(shape)), "launch.h");                              \
  KERNEL(name, DecodeParams, (DECODE_SHAPE(T, D, rows)::kThreads), (DECODE_SHAPE(T, D, rows)::kBlocks)) {    \
    gaze::decode<gaze::T, D, rows>(p);                                                                       \
  }
#define DECODE_KERNELS(D, rows)                                                             \
  DECODE_KERNEL(decode_h##D##_r##rows##_bf16_kvbf16, bf16, D, rows, DECODE_##D##_R##rows)   \
  DECODE_KERNEL(decode_h##D##_r##rows##_f16_kvf16, f16, D, rows, DECODE_##D##_R##rows)
#define DECODE_KERNELS_E4M3(D, rows) DECODE_KERNEL(decode_h##D##_r##rows##_kve4m3, e4m3, D, rows, DECODE_E4M3_##D##_R##rows)
