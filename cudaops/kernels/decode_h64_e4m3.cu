#include "decode.cuh"

typedef gaze::DecodeShape<64, 1> Shape;
static_assert(LAUNCH_FACTS(DECODE_E4M3_64).are(Shape::kThreads, Shape::kBytes, 8 * Shape::kMaxTiles, Shape::kBlocks), "launch.h");

KERNEL(decode_h64_r8_kve4m3, DecodeParams, Shape::kThreads, Shape::kBlocks) { gaze::decode<gaze::e4m3, 64, 8>(p); }
KERNEL(decode_h64_r16_kve4m3, DecodeParams, Shape::kThreads, Shape::kBlocks) { gaze::decode<gaze::e4m3, 64, 16>(p); }
KERNEL(decode_h64_r32_kve4m3, DecodeParams, Shape::kThreads, Shape::kBlocks) { gaze::decode<gaze::e4m3, 64, 32>(p); }
