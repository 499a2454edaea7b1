#include "decode.cuh"

typedef gaze::DecodeShape<256, 1> Shape;
static_assert(LAUNCH_FACTS(DECODE_E4M3_256).are(Shape::kThreads, Shape::kBytes, 8 * Shape::kMaxTiles, Shape::kBlocks), "launch.h");

KERNEL(decode_h256_r8_kve4m3, DecodeParams, Shape::kThreads, Shape::kBlocks) { gaze::decode<gaze::e4m3, 256, 8>(p); }
KERNEL(decode_h256_r16_kve4m3, DecodeParams, Shape::kThreads, Shape::kBlocks) { gaze::decode<gaze::e4m3, 256, 16>(p); }
