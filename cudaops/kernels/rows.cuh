// How rows of D elements of Size bytes lie in shared memory: back to back, their 16-byte pieces permuted so that eight rows of one piece,
// which ldmatrix reads together, lie in different banks.
#pragma once
#include "kernel.cuh"

namespace gaze {

template <int D, int Size = 2>
struct Rows {
  static constexpr int kBytes = Size * D;
  static constexpr int kPieces = kBytes / 16;
  static_assert(kBytes % 32 == 0, "");
  // The address bits that the permutation of a row's pieces may change: as many rows as fit 128 bytes share one.
  static constexpr int kPermuted = kPieces % 8 == 0 ? 112 : kPieces % 4 == 0 ? 48 : 16;

  // at is the offset of piece c of row r.
  static __device__ __forceinline__ uint32_t at(int r, int c) {
    return r * kBytes + (kPieces % 8 == 0 ? c ^ (r & 7) : kPieces % 4 == 0 ? c ^ (r >> 1 & 3) : c ^ (r >> 2 & 1)) * 16;
  }
  // step moves an address of piece 0 or 1 on to piece 2·k or 2·k+1 of its row, and piece one of piece 0 to piece k.
  static __device__ __forceinline__ uint32_t step(uint32_t address, int k) {
    return (address ^ (k * 32 & kPermuted)) + (k * 32 & ~kPermuted);
  }
  static __device__ __forceinline__ uint32_t piece(uint32_t address, int k) {
    return (address ^ (k * 16 & kPermuted)) + (k * 16 & ~kPermuted);
  }
};

}  // namespace gaze
