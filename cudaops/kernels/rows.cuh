// How rows of D 16-bit elements lie in shared memory: back to back, their 16-byte pieces permuted so that eight rows of one piece, which
// ldmatrix reads together, lie in different banks.
#pragma once
#include "kernel.cuh"

namespace gaze {

template <int D>
struct Rows {
  static constexpr int kBytes = 2 * D;
  static constexpr int kPieces = D / 8;  // of 16 bytes
  static_assert(kPieces % 4 == 0, "");

  // at is the offset of piece c of row r.
  static __device__ __forceinline__ uint32_t at(int r, int c) {
    return r * kBytes + (kPieces % 8 == 0 ? c ^ (r & 7) : c ^ (r >> 1 & 3)) * 16;
  }
  // step moves an address of piece 0 or 1 on to piece 2·k or 2·k+1 of its row.
  static __device__ __forceinline__ uint32_t step(uint32_t address, int k) {
    constexpr int permuted = kPieces % 8 == 0 ? 96 : 32;
    return (address ^ (k * 32 & permuted)) + (k * 32 & ~permuted);
  }
};

}  // namespace gaze
