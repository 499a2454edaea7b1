// Prefill attention over packed requests of varying lengths, keys paged or ragged: the kernel for every GPU from sm_80 on. The loop it
// replaces: for every request, query row i and head h, over the keys j that it sees,
//
//	s[j] = scale · q[i,h]·k[j,h/G],  out[i,h] = Σ exp(s[j]-m)·v[j,h/G] / Σ exp(s[j]-m)
//
// and with e4m3 operands scale·q_scale·k_scale in scale's place and v_scale times the result.
//
// A tile is 128 of the L_b·G rows that share a KV head, row r = i·G + g. Four warps hold 32 rows each of S and O in registers
// (mma.m16n8k16); K and V come by cp.async in blocks of 64 keys, one block ahead, the places of their rows another block ahead. Blocks
// of the grid draw tiles from a counter, those of one head from the last, heaviest, to the first. Key blocks go from the last to the
// first, so that only the first ones carry masks. Operands of e4m3 are multiplied as f16, which holds them exactly: q is widened on its way
// into shared memory; K and V come as they are, and all threads widen a block into f16 rows when it is there.
#pragma once
#include "prefill_plan.cuh"
#include "rows.cuh"

namespace gaze {

template <int DQK, int DVO>
struct PrefillShape {
  // Keys of a block. Beside the GPUs with 163 and 227 KB of shared memory a block there are 8.6, 8.9 and 12.0 with 99.
  static constexpr int kKeys = DQK <= 128 ? 64 : DVO <= 128 ? 32 : GAZE_SM90 ? 64 : DQK <= 192 ? 32 : 16;
  static constexpr int kTall = DVO <= 128 ? 2 : 1;  // 16-row tiles of a warp
  static constexpr int kWarps = kTileRows / (16 * kTall);
  static constexpr int kThreads = 32 * kWarps;
  static constexpr int kKeyBytes = kKeys * Rows<DQK>::kBytes, kValueBytes = kKeys * Rows<DVO>::kBytes;

  static constexpr int kQuery = 0;
  static constexpr int kKey = kQuery + kTileRows * Rows<DQK>::kBytes;
  static constexpr int kValue = kKey + 2 * kKeyBytes;
  static constexpr int kPlaces = kValue + 2 * kValueBytes;          // of K and V rows, two blocks
  static constexpr int kTile = kPlaces + 2 * 2 * kKeys * 8;
  static constexpr int kBytes = kTile + (int)sizeof(Tile) + 16;
  static constexpr int kBlocks = kBytes <= 113 * 1024 && kThreads <= 128 ? 2 : 1;  // of a multiprocessor
};

// Product is the type in which operands of type E are multiplied.
template <class E>
struct Product {
  typedef E T;
};
template <>
struct Product<e4m3> {
  typedef f16 T;
};

// spot is the offset of element d of row r among rows of D elements in shared memory: 16-bit ones permuted, bytes as they are.
template <class E, int D>
__device__ __forceinline__ uint32_t spot(int r, int d) {
  return sizeof(E) == 1 ? r * D + d : Rows<D>::at(r, d / 8) + d % 8 * 2;
}

// store_pair rounds two neighbours, the first to `to`.
template <class E>
__device__ __forceinline__ void store_pair(uint8_t *to, float lo, float hi) {
  if constexpr (sizeof(E) == 1) {
    *reinterpret_cast<uint16_t *>(to) = narrow_e4m3(lo, hi);
  } else {
    *reinterpret_cast<uint32_t *>(to) = pack<E>(lo, hi);
  }
}

// widen8 makes eight e4m3 eight f16.
__device__ __forceinline__ uint4 widen8(uint2 x) {
  uint4 y;
  widen_e4m3(x.x, y.x, y.y);
  widen_e4m3(x.y, y.z, y.w);
  return y;
}

template <class E, int DQK, int DVO>
struct Prefill {
  typedef PrefillShape<DQK, DVO> S;
  typedef typename Product<E>::T T;
  typedef Rows<DQK> RK;
  typedef Rows<DVO> RV;
  static constexpr int kSteps = DQK / 16, kCols = S::kKeys / 8, kDims = DVO / 8, kTall = S::kTall;
  static constexpr bool kWiden = sizeof(E) == 1;

  const PrefillParams &p;
  uint8_t *const smem;
  const int tid, lane, warp, g, t;
  const int group;  // G

  __device__ __forceinline__ Prefill(const PrefillParams &p, uint8_t *smem)
      : p(p), smem(smem), tid(threadIdx.x), lane(tid % 32), warp(tid / 32), g(lane / 4), t(lane % 4), group(p.q_heads / p.kv_heads) {}

  __device__ __forceinline__ Tile &tile() const { return *reinterpret_cast<Tile *>(smem + S::kTile); }
  // Where a block is loaded, and where its products read it: the same, but rows to widen are loaded into the halves of the second buffer.
  __device__ __forceinline__ uint8_t *loaded(int at, int bytes, int block) const {
    return smem + at + (kWiden ? bytes + (block & 1) * (bytes / 2) : (block & 1) * bytes);
  }
  __device__ __forceinline__ uint8_t *ready(int at, int bytes, int block) const { return smem + at + (kWiden ? 0 : (block & 1) * bytes); }
  __device__ __forceinline__ uint8_t *keys(int block) const { return ready(S::kKey, S::kKeyBytes, block); }
  __device__ __forceinline__ uint8_t *values(int block) const { return ready(S::kValue, S::kValueBytes, block); }
  __device__ __forceinline__ int64_t *places(int block, int v) const { return reinterpret_cast<int64_t *>(smem + S::kPlaces) + ((block & 1) * 2 + v) * S::kKeys; }

  // ---- loading ----

  bool keys_aligned;
  int page;  // of this thread's key in the block whose places are wanted next

  __device__ __forceinline__ void fetch_page(const Tile &x, int block) {
    const int token = block * S::kKeys + tid;
    page = -1;
    if (p.block_tables != nullptr && tid < S::kKeys && block >= 0 && token < x.keys) page = p.block_tables[x.b * p.table_row + token / p.page_size];
  }
  // store_places writes where the rows of a block's keys are, -1 for none.
  __device__ __forceinline__ void store_places(const Tile &x, int block) const {
    if (tid >= S::kKeys || block < 0) return;
    const int token = block * S::kKeys + tid;
    int64_t k = -1, v = -1;
    if (token < x.keys) {
      if (p.block_tables == nullptr) {
        k = x.k_base + token * p.k_token;
        v = x.v_base + token * p.v_token;
      } else if (page >= 0 && page < p.pages) {
        const int slot = token % p.page_size;
        k = page * p.k_page + slot * p.k_token + x.head * p.k_head;
        v = page * p.v_page + slot * p.v_token + x.head * p.v_head;
      }
    }
    places(block, 0)[tid] = k;
    places(block, 1)[tid] = v;
  }

  template <int D>
  __device__ __forceinline__ void load_rows(uint8_t *dst, const void *from, const int64_t *place) const {
    constexpr int kEach = 16 / sizeof(E), kPieces = D / kEach, kAll = S::kKeys * kPieces;
    const E *src = static_cast<const E *>(from);
    if (keys_aligned) {
#pragma unroll
      for (int i = 0; i < (kAll + S::kThreads - 1) / S::kThreads; i++) {
        const int e = i * S::kThreads + tid, row = e / kPieces, d = e % kPieces * kEach;
        if (kAll % S::kThreads != 0 && e >= kAll) break;
        const int64_t at = place[row];
        cp_async16(shared_address(dst) + spot<E, D>(row, d), src + (at < 0 ? 0 : at + d), at < 0 ? 0 : 16);
      }
    } else {
#pragma unroll 1
      for (int e = tid; e < S::kKeys * D; e += S::kThreads) {
        const int row = e / D, d = e % D;
        const int64_t at = place[row];
        *reinterpret_cast<E *>(dst + spot<E, D>(row, d)) = at < 0 ? E{} : src[at + d];
      }
    }
  }
  __device__ __forceinline__ void load_block(int block) const {
    load_rows<DQK>(loaded(S::kKey, S::kKeyBytes, block), p.k, places(block, 0));
    load_rows<DVO>(loaded(S::kValue, S::kValueBytes, block), p.v, places(block, 1));
  }

  template <int D>
  __device__ __forceinline__ void widen_rows(uint8_t *dst, const uint8_t *src) const {
    constexpr int kAll = S::kKeys * Rows<D>::kPieces;
    static_assert(kAll % S::kThreads == 0, "");
#pragma unroll
    for (int i = 0; i < kAll / S::kThreads; i++) {
      const int e = i * S::kThreads + tid;
      *reinterpret_cast<uint4 *>(dst + Rows<D>::at(e / Rows<D>::kPieces, e % Rows<D>::kPieces)) = widen8(reinterpret_cast<const uint2 *>(src)[e]);
    }
  }
  __device__ __forceinline__ void widen_block(int block) const {
    widen_rows<DQK>(keys(block), loaded(S::kKey, S::kKeyBytes, block));
    widen_rows<DVO>(values(block), loaded(S::kValue, S::kValueBytes, block));
  }

  static constexpr int kQueryEach = kTileRows * RK::kPieces / S::kThreads;

  __device__ __forceinline__ void load_query(const Tile &x) const {
    const E *q = static_cast<const E *>(p.q) + x.q_base;
    constexpr int kBytes = 8 * sizeof(E);  // of a piece
    const bool aligned = (reinterpret_cast<uintptr_t>(q) & (kBytes - 1)) == 0 && ((p.q_token | p.q_head) & 7) == 0;
#pragma unroll kWiden ? 4 : 1
    for (int i = 0; i < kQueryEach; i++) {
      const int e = i * S::kThreads + tid, row = e / RK::kPieces, piece = e % RK::kPieces, r = x.row0 + row;
      const bool live = r < x.rows * group;
      const E *src = q + (live ? r / group * p.q_token + (x.head * group + r % group) * p.q_head + piece * 8 : 0);
      uint8_t *to = smem + S::kQuery + RK::at(row, piece);
      if (!kWiden && aligned) {
        cp_async16(shared_address(to), src, live ? 16 : 0);
      } else {
        Vec<E, 8> y = {};
        if (live && aligned) {
          y = *reinterpret_cast<const Vec<E, 8> *>(src);
        } else if (live) {
#pragma unroll
          for (int k = 0; k < 8; k++) y.x[k] = src[k];
        }
        if constexpr (kWiden) {
          *reinterpret_cast<uint4 *>(to) = widen8(*reinterpret_cast<const uint2 *>(&y));
        } else {
          *reinterpret_cast<Vec<E, 8> *>(to) = y;
        }
      }
    }
  }
  // turn_query makes of q what the scale wants of it. Each thread turns what it copied.
  __device__ __forceinline__ void turn_query() const {
#pragma unroll 1
    for (int i = 0; i < kQueryEach; i++) {
      const int e = i * S::kThreads + tid;
      uint4 *x = reinterpret_cast<uint4 *>(smem + S::kQuery + RK::at(e / RK::kPieces, e % RK::kPieces));
      *x = turned<T>(*x, c1);
    }
  }

  // ---- a block of keys ----

  float c1;     // scale, with e4m3 operands times theirs
  float scale;  // base2(c1)
  float acc[kTall][kDims][4];
  float m[kTall][2], l[kTall][2];
  int limit[kTall][2];  // the last key that a row sees

  // products gives the scores of this warp's rows.
  __device__ __forceinline__ void scores(int block, float (&s)[kTall][kCols][4]) const {
    const uint32_t q = shared_address(smem + S::kQuery) + RK::at(warp * 16 * kTall + (lane & 15), lane / 16);
    const uint32_t k = shared_address(keys(block)) + RK::at(lane / 16 * 8 + lane % 8, lane / 8 & 1);
#pragma unroll
    for (int i = 0; i < kTall; i++)
#pragma unroll
      for (int n = 0; n < kCols; n++)
#pragma unroll
        for (int x = 0; x < 4; x++) s[i][n][x] = 0;
#pragma unroll
    for (int step = 0; step < kSteps; step++) {
      uint32_t a[kTall][4];
#pragma unroll
      for (int i = 0; i < kTall; i++) ldmatrix4(a[i], RK::step(q, step) + i * 16 * RK::kBytes);
#pragma unroll
      for (int n = 0; n < kCols; n += 2) {
        uint32_t b[4];
        ldmatrix4(b, RK::step(k, step) + n * 8 * RK::kBytes);
#pragma unroll
        for (int i = 0; i < kTall; i++) {
          mma16816<T>(s[i][n], a[i], b[0], b[1]);
          mma16816<T>(s[i][n + 1], a[i], b[2], b[3]);
        }
      }
    }
  }

  // weights turns scores into exponentials, pairs of keys in a word, and rescales what was there before.
  __device__ __forceinline__ void weights(float (&s)[kTall][kCols][4], uint32_t (&w)[kTall][kCols][2]) {
#pragma unroll
    for (int i = 0; i < kTall; i++)
#pragma unroll
      for (int r = 0; r < 2; r++) {
        float top = m[i][r];
#pragma unroll
        for (int n = 0; n < kCols; n++) top = fmaxf(top, fmaxf(s[i][n][2 * r], s[i][n][2 * r + 1]));
        top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
        top = fmaxf(top, __shfl_xor_sync(~0u, top, 2));
        // The same rounded product is taken off all exponents, old ones too, so that its rounding cancels out; upwards, so that weights
        // are at most 2^kLift, below which f16 has steps half as large.
        // Without a key so far all weigh 0, whatever the scale.
        const bool none = top == -GAZE_INF;
        const float by = none ? 1.0f : scale;
        float off = none ? 0.0f : __fmul_ru(top, scale), f = m[i][r] == top ? 1.0f : exp2_approx(__fmul_ru(m[i][r], scale) - off);
        if (fabsf(off) > kFar) {
          f = m[i][r] == top ? 1.0f : exp2_approx((m[i][r] - top) * scale);
          off = 0;
#pragma unroll
          for (int n = 0; n < kCols; n++) s[i][n][2 * r] -= top, s[i][n][2 * r + 1] -= top;
        }
        off -= kLift<T>;
        m[i][r] = top;
        float sum = 0;
#pragma unroll
        for (int n = 0; n < kCols; n++) {
          const float x = exp2_approx(fmaf(s[i][n][2 * r], by, -off)), y = exp2_approx(fmaf(s[i][n][2 * r + 1], by, -off));
          sum += x + y;
          w[i][n][r] = pack<T>(x, y);
        }
        l[i][r] = l[i][r] * f + sum;
#pragma unroll
        for (int n = 0; n < kDims; n++) acc[i][n][2 * r] *= f, acc[i][n][2 * r + 1] *= f;
      }
  }

  // product adds the weighted values. With One only those that query row `only` sees, and to its rows alone.
  template <bool One>
  __device__ __forceinline__ void product(int block, const uint32_t (&w)[kTall][kCols][2], int only, int last) {
    const uint32_t v = shared_address(values(block)) + RV::at(lane & 15, lane / 16);
#pragma unroll
    for (int k = 0; k < S::kKeys / 16; k++) {
      uint32_t a[kTall][4];
#pragma unroll
      for (int i = 0; i < kTall; i++) a[i][0] = w[i][2 * k][0], a[i][1] = w[i][2 * k][1], a[i][2] = w[i][2 * k + 1][0], a[i][3] = w[i][2 * k + 1][1];
      uint32_t see[2];
      if (One) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
          const int token = block * S::kKeys + 16 * k + 8 * half + 2 * t;
          see[half] = (token <= last ? 0xffffu : 0) | (token < last ? 0xffff0000u : 0);
        }
      }
#pragma unroll
      for (int n = 0; n < kDims; n += 2) {
        uint32_t b[4];
        ldmatrix4_trans(b, RV::step(v, n / 2) + k * 16 * RV::kBytes);
        if (One) b[0] &= see[0], b[1] &= see[1], b[2] &= see[0], b[3] &= see[1];
#pragma unroll
        for (int i = 0; i < kTall; i++)
#pragma unroll
          for (int half = 0; half < 2; half++) {
            if (One) {
              float d[4] = {acc[i][n + half][0], acc[i][n + half][1], acc[i][n + half][2], acc[i][n + half][3]};
              mma16816<T>(d, a[i], b[2 * half], b[2 * half + 1]);
#pragma unroll
              for (int x = 0; x < 4; x++)
                if ((tile().row0 + warp * 16 * kTall + i * 16 + x / 2 * 8 + g) / group == only) acc[i][n + half][x] = d[x];
            } else {
              mma16816<T>(acc[i][n + half], a[i], b[2 * half], b[2 * half + 1]);
            }
          }
      }
    }
  }

  __device__ __forceinline__ bool values_nonfinite(int block) const {
    bool found = false;
#pragma unroll 1
    for (int e = tid; e < S::kValueBytes / 4; e += S::kThreads)
      found |= nonfinite<T>(reinterpret_cast<const uint32_t *>(values(block))[e]);
    return found;
  }

  // ---- a tile ----

  // finish writes the rows, through shared memory so that whole lines go out. The rows of q that it overwrites are this warp's own.
  template <class Out>
  __device__ __forceinline__ void finish(const Tile &x, bool bad) {
    static_assert(DVO <= DQK, "");
    uint8_t *mine = smem + S::kQuery + warp * 16 * kTall * RK::kBytes;
#pragma unroll
    for (int i = 0; i < kTall; i++)
#pragma unroll
      for (int r = 0; r < 2; r++) {
        float sum = l[i][r];
        sum += __shfl_xor_sync(~0u, sum, 1);
        sum += __shfl_xor_sync(~0u, sum, 2);
        const bool empty = bad || sum == 0;
        if (is_faint(sum)) sum = GAZE_NAN;
        const float f = empty ? 0.0f : 1.0f / sum;  // apart from the scale, which may be so small that the quotient of both keeps few bits
        const int row = i * 16 + r * 8 + g, at = x.row0 + warp * 16 * kTall + row;
#pragma unroll
        for (int n = 0; n < kDims; n++)
          store_pair<Out>(mine + spot<Out, DVO>(row, 8 * n) + 2 * t * sizeof(Out), empty ? 0.0f : acc[i][n][2 * r] * f * value_scale, empty ? 0.0f : acc[i][n][2 * r + 1] * f * value_scale);
        if (t == 0 && at < x.rows * group && x.lse_base >= 0) {
          const float peak = m[i][r] * factor_of(c1), log2 = log2f(sum) - kLift<T>;
          const int64_t e = x.lse_base + (int64_t)(at / group) * p.q_heads + x.head * group + at % group;
          if (p.lse != nullptr) p.lse[e] = empty ? -GAZE_INF : fmaf(log2, kLn2, peak);
          if (p.lse2 != nullptr) p.lse2[e] = empty ? -GAZE_INF : fmaf(peak, kLog2e, log2);
        }
      }
    __syncwarp();
    constexpr int kEach = 16 / sizeof(Out), kPieces = DVO / kEach;
    Out *out = static_cast<Out *>(p.out) + x.o_base;
    const bool aligned = aligned16(out);
#pragma unroll 1
    for (int e = lane; e < 16 * kTall * kPieces; e += 32) {
      const int row = e / kPieces, d = e % kPieces * kEach, r = x.row0 + warp * 16 * kTall + row;
      if (r >= x.rows * group) break;
      const Vec16<Out> y = *reinterpret_cast<const Vec16<Out> *>(mine + spot<Out, DVO>(row, d));
      Out *to = out + ((int64_t)(r / group) * p.q_heads + x.head * group + r % group) * DVO + d;
      if (aligned) {
        __stcg(reinterpret_cast<uint4 *>(to), *reinterpret_cast<const uint4 *>(&y));  // at once: an assignment becomes what the other branch is
      } else {
#pragma unroll
        for (int k = 0; k < kEach; k++) to[k] = y.x[k];
      }
    }
  }

  float value_scale;

  __device__ __forceinline__ void one_tile(const Tile &x) {
    const int query0 = x.row0 / group, query1 = min(x.rows - 1, (x.row0 + kTileRows - 1) / group);
    const int64_t shift = (int64_t)x.keys - x.rows;
    const int end = p.causal ? (int)max((int64_t)0, min((int64_t)x.keys, query1 + shift + 1)) : x.keys;
    const int full = p.causal ? (int)max((int64_t)0, min((int64_t)x.keys, query0 + shift + 1)) : x.keys;  // below, all rows see all keys
    int block = end > 0 ? (end - 1) / S::kKeys : -1;
#pragma unroll
    for (int i = 0; i < kTall; i++)
#pragma unroll
      for (int r = 0; r < 2; r++) {
        m[i][r] = -GAZE_INF;
        const int row = (x.row0 + warp * 16 * kTall + i * 16 + r * 8 + g) / group;
        limit[i][r] = p.causal ? (int)max((int64_t)-1, min(row + shift, (int64_t)x.keys - 1)) : x.keys - 1;
        l[i][r] = limit[i][r] >= 0 ? kFaint : 0.0f;
#pragma unroll
        for (int n = 0; n < kDims; n++) acc[i][n][2 * r] = acc[i][n][2 * r + 1] = 0;
      }
    bool bad = x.bad;
    keys_aligned = aligned16(p.k) && aligned16(p.v) &&
                   ((p.k_page | p.k_head | p.k_token | p.v_page | p.v_head | p.v_token | x.k_base | x.v_base) & (16 / sizeof(E) - 1)) == 0;
    if (block >= 0) {
      fetch_page(x, block);
      store_places(x, block);
      fetch_page(x, block - 1);
      store_places(x, block - 1);
      __syncthreads();
      load_block(block);
      load_query(x);
      cp_commit();
      bad |= bad_table(x);
    }
    bool first = true;
#pragma unroll 1
    for (; block >= 0; block--) {
      cp_wait<0>();
      if (first && c1 <= 0) turn_query();
      first = false;
      __syncthreads();
      if (block > 0) load_block(block - 1);
      cp_commit();
      if (kWiden) {
        widen_block(block);
        __syncthreads();
      }
      fetch_page(x, block - 2);
      float s[kTall][kCols][4];
      scores(block, s);
      const bool masked = full - block * S::kKeys < S::kKeys;
      if (masked) {
#pragma unroll
        for (int i = 0; i < kTall; i++)
#pragma unroll
          for (int n = 0; n < kCols; n++)
#pragma unroll
            for (int k = 0; k < 4; k++)
              if (block * S::kKeys + n * 8 + 2 * t + (k & 1) > limit[i][k / 2]) s[i][n][k] = -GAZE_INF;
      }
      uint32_t w[kTall][kCols][2];
      weights(s, w);
      // A NaN or infinity in V times a weight of 0 would reach rows that don't see it: then one product for each query row.
      if (masked && p.causal && __syncthreads_or(values_nonfinite(block))) {
        const int from = (x.row0 + warp * 16 * kTall) / group, to = (x.row0 + (warp + 1) * 16 * kTall - 1) / group;
#pragma unroll 1
        for (int i = from; i <= to; i++) product<true>(block, w, i, (int)max((int64_t)-1, min(i + shift, (int64_t)x.keys - 1)));
      } else {
        product<false>(block, w, 0, 0);
      }
      store_places(x, block - 2);
    }
    bad = __syncthreads_or(bad);
    if (kWiden && p.out_type == TYPE_F16) {
      finish<f16>(x, bad);
    } else if (kWiden && p.out_type == TYPE_BF16) {
      finish<bf16>(x, bad);
    } else {
      finish<E>(x, bad);
    }
  }

  // bad_table looks at all used entries of the request's block table, so that every tile of it comes out alike.
  __device__ __forceinline__ bool bad_table(const Tile &x) const {
    if (p.block_tables == nullptr) return false;
    const int used = x.keys > 0 ? (x.keys - 1) / p.page_size + 1 : 0;
    bool bad = false;
#pragma unroll 4
    for (int e = tid; e < used; e += S::kThreads) {
      const int page = p.block_tables[x.b * p.table_row + e];
      if (page >= 0 && page < p.pages) continue;
      bad = true;
      report(p.fault, p.op, FAULT_PAGE, x.b, page, p.pages);
    }
    return bad;
  }

  __device__ __forceinline__ void run() {
    c1 = kWiden ? (float)((double)p.scale * *p.q_scale * *p.k_scale) : p.scale;
    value_scale = kWiden ? *p.v_scale : 1;
    scale = base2(c1);
    Scheduler next(p, blockIdx.x, DQK, DVO);
    if (warp == 0) next.seek(tile(), tile());
    __syncthreads();
    while (tile().b < p.batch) {
      if (warp == 0) next.draw();
      one_tile(tile());
      __syncthreads();
      if (warp == 0) next.seek(tile(), tile());
      __syncthreads();
    }
    const int size = kWiden && (p.out_type == TYPE_F16 || p.out_type == TYPE_BF16) ? 2 : sizeof(E);
    zero_tail(p.out, tile().o_base * size, p.tokens * p.q_heads * DVO * size, (int64_t)blockIdx.x * S::kThreads + tid, (int64_t)gridDim.x * S::kThreads);
    if (tid == 0) next.leave();
  }
};

template <class E, int DQK, int DVO>
__device__ __forceinline__ void prefill(const PrefillParams &p) {
  SHARED(smem);
  grid_wait();
  grid_launch_next();
  Prefill<E, DQK, DVO>(p, smem).run();
}

}  // namespace gaze
