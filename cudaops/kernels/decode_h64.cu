#include "decode.cuh"

typedef gaze::DecodeShape<64, 2> Shape;
static_assert(LAUNCH_FACTS(DECODE_64).are(Shape::kThreads, Shape::kBytes, 8 * Shape::kMaxTiles, Shape::kBlocks), "launch.h");

KERNEL(decode_h64_bf16_kvbf16, DecodeParams, Shape::kThreads, Shape::kBlocks) { gaze::decode<gaze::bf16, 64>(p); }
KERNEL(decode_h64_f16_kvf16, DecodeParams, Shape::kThreads, Shape::kBlocks) { gaze::decode<gaze::f16, 64>(p); }
