// Rotary position embedding: (x, y) → (x·cos - y·sin, x·sin + y·cos) for every pair of a head's first R elements. A warp does some
// heads of a token.
#include "rotate.cuh"

namespace gaze {

template <class T>
__device__ __forceinline__ void rope(const RoPEParams &p) {
  grid_wait();
  grid_launch_next();
  const int each = heads_each(p.tokens, p.heads), chunks = (p.heads + each - 1) / each, lane = threadIdx.x % 32;
  const int64_t step = (int64_t)gridDim.x * (blockDim.x / 32);
  for (int64_t item = (int64_t)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32; item < p.tokens * chunks; item += step) {
    const int64_t token = item / chunks;
    const int head = (int)(item % chunks) * each, position = p.positions[token];
    const bool bad = position < -1;
    if (bad && lane == 0) report(p.fault, p.op, FAULT_POSITION, token, position, (int64_t)1 << 31);
    Rotation r;
    r.pairs = 0;
    if (position >= 0) r.at(position, p.turns, p.factors, p.rotary);
    for (int h = head; h < min(head + each, p.heads); h++) {
      const T *x = static_cast<const T *>(p.x) + token * p.x_token + h * p.x_head;
      T *out = static_cast<T *>(p.out) + (token * p.heads + h) * p.head_dim;
      if (bad) {
        zero_row(out, p.head_dim);
      } else {
        rotate_row(out, x, p.head_dim, r, p.adjacent, Plain<T>());
      }
    }
  }
}

}  // namespace gaze

KERNEL(rope_f32, RoPEParams, 256, 1) { gaze::rope<float>(p); }
KERNEL(rope_f16, RoPEParams, 256, 1) { gaze::rope<gaze::f16>(p); }
KERNEL(rope_bf16, RoPEParams, 256, 1) { gaze::rope<gaze::bf16>(p); }
