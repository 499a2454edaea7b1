#include "decode.cuh"

typedef gaze::DecodeShape<64, 1> Shape;
static_assert(LAUNCH_FACTS(DECODE_E4M3_64).are(Shape::kThreads, Shape::kBytes, 8 * Shape::kMaxTiles, Shape::kBlocks), "launch.h");

KERNEL(decode_h64_kve4m3, DecodeParams, Shape::kThreads, Shape::kBlocks) { gaze::decode<gaze::e4m3, 64>(p); }
