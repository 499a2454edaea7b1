#include "decode.cuh"

typedef gaze::DecodeShape<192, 1> Shape;
static_assert(LAUNCH_FACTS(DECODE_E4M3_192).are(Shape::kThreads, Shape::kBytes, 8 * Shape::kMaxTiles, Shape::kBlocks), "launch.h");

KERNEL(decode_h192_r8_kve4m3, DecodeParams, Shape::kThreads, Shape::kBlocks) { gaze::decode<gaze::e4m3, 192, 8>(p); }
KERNEL(decode_h192_r16_kve4m3, DecodeParams, Shape::kThreads, Shape::kBlocks) { gaze::decode<gaze::e4m3, 192, 16>(p); }
