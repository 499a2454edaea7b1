#include "decode.cuh"

typedef gaze::DecodeShape<96, 1> Shape;
static_assert(LAUNCH_FACTS(DECODE_E4M3_96).are(Shape::kThreads, Shape::kBytes, 8 * Shape::kMaxTiles, Shape::kBlocks), "launch.h");

KERNEL(decode_h96_r8_kve4m3, DecodeParams, Shape::kThreads, Shape::kBlocks) { gaze::decode<gaze::e4m3, 96, 8>(p); }
KERNEL(decode_h96_r16_kve4m3, DecodeParams, Shape::kThreads, Shape::kBlocks) { gaze::decode<gaze::e4m3, 96, 16>(p); }
KERNEL(decode_h96_r32_kve4m3, DecodeParams, Shape::kThreads, Shape::kBlocks) { gaze::decode<gaze::e4m3, 96, 32>(p); }
