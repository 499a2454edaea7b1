// Writes rows of new keys and values into a paged cache:
//
//	page = block_tables[request[t], position[t] / P],  cache[page, h, position[t] % P, :] = k[t, h, :]
//
// with RoPE on the way where asked. A warp does some heads of a token, of q, k or v in that order.
#pragma once
#include "rotate.cuh"

namespace gaze {

// Place is where a token goes. page < 0: nowhere, because it is skipped or a value is bad.
struct Place {
  int64_t page;
  int slot, position;
  bool skipped;
};

__device__ __forceinline__ Place place_of(const AppendParams &p, int64_t token) {
  const bool blame = threadIdx.x % 32 == 0;
  Place to = {-1, 0, -1, false};
  int request;
  if (p.positions != nullptr) {
    to.position = p.positions[token];
    to.skipped = to.position == -1;
    if (to.skipped) return to;
    request = p.requests[token];
  } else {
    // The last request that begins at or before the token.
    int low = 0, high = p.batch;
    while (high - low > 1) {
      const int mid = low + (high - low) / 2;
      if (p.cum_seq_lens[mid] <= token) {
        low = mid;
      } else {
        high = mid;
      }
    }
    request = low;
    const int64_t from = p.cum_seq_lens[low], end = p.cum_seq_lens[low + 1];
    if (from > token || end <= token) return to;  // of no request; check_sums says so
    const int64_t position = p.start_positions[low] + token - from;
    to.position = (int)max((int64_t)-2, min(position, (int64_t)0x7fffffff));
  }
  const int64_t room = (int64_t)p.max_pages * p.page_size;
  if (to.position < 0 || to.position >= room) {
    if (blame) report(p.fault, p.op, FAULT_POSITION, token, to.position, room);
    return to;
  }
  if (request < 0 || request >= p.batch) {
    if (blame) report(p.fault, p.op, FAULT_REQUEST, token, request, p.batch);
    return to;
  }
  const int page = p.block_tables[request * p.table_row + to.position / p.page_size];
  if (page < 0 || page >= p.pages) {
    if (blame) report(p.fault, p.op, FAULT_PAGE, request, page, p.pages);
    return to;
  }
  to.page = page;
  to.slot = to.position % p.page_size;
  return to;
}

// check_sums reports prefix sums that fall or do not span the tokens.
__device__ __forceinline__ void check_sums(const AppendParams &p) {
  for (int b = threadIdx.x; b < p.batch; b += blockDim.x) {
    const int from = p.cum_seq_lens[b], to = p.cum_seq_lens[b + 1];
    if (to < from) report(p.fault, p.op, FAULT_Q_LEN_NEGATIVE, b, to, from);
    if (b == 0 && from != 0) report(p.fault, p.op, FAULT_Q_ROWS, -1, from, 0);
    if (b == p.batch - 1 && to != p.tokens) report(p.fault, p.op, FAULT_Q_ROWS, -1, to, p.tokens);
  }
}

template <class T, class Cache, class Store>
__device__ __forceinline__ void append(const AppendParams &p, Store k_store, Store v_store) {
  grid_wait();
  grid_launch_next();
  if (p.cum_seq_lens != nullptr && blockIdx.x == 0) check_sums(p);
  const int q_heads = p.q != nullptr ? p.q_heads : 0, heads = q_heads + 2 * p.kv_heads;
  const int each = heads_each(p.tokens, heads), chunks = (heads + each - 1) / each;
  const int64_t step = (int64_t)gridDim.x * (blockDim.x / 32);
  for (int64_t item = (int64_t)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32; item < p.tokens * chunks; item += step) {
    const int64_t token = item / chunks;
    const int first = (int)(item % chunks) * each;
    const Place to = place_of(p, token);
    Rotation r;
    r.pairs = 0;
    if (p.rotary > 0 && to.page >= 0 && first < q_heads + p.kv_heads) r.at(to.position, p.turns, p.factors, p.rotary);
    for (int i = first; i < min(first + each, heads); i++) {
      if (i < q_heads) {
        const T *x = static_cast<const T *>(p.q) + token * p.q_token + i * p.q_head;
        T *out = static_cast<T *>(p.q_out) + (token * q_heads + i) * p.k_dim;
        if (to.page < 0 && !to.skipped) {
          zero_row(out, p.k_dim);
        } else {
          rotate_row(out, x, p.k_dim, r, p.adjacent, Plain<T>());
        }
      } else if (to.page < 0) {
        break;
      } else if (i < q_heads + p.kv_heads) {
        const int h = i - q_heads;
        const T *x = static_cast<const T *>(p.k) + token * p.k_row_token + h * p.k_row_head;
        Cache *out = static_cast<Cache *>(p.k_cache) + to.page * p.k_page + h * p.k_head + to.slot * p.k_token;
        rotate_row(out, x, p.k_dim, r, p.adjacent, k_store);
      } else {
        const int h = i - q_heads - p.kv_heads;
        const T *x = static_cast<const T *>(p.v) + token * p.v_row_token + h * p.v_row_head;
        copy_row(static_cast<Cache *>(p.v_cache) + to.page * p.v_page + h * p.v_head + to.slot * p.v_token, x, 0, p.v_dim, v_store);
      }
    }
  }
}

template <class T, class Cache>
__device__ __forceinline__ void append(const AppendParams &p) {
  append<T, Cache>(p, Plain<Cache>(), Plain<Cache>());
}

}  // namespace gaze
