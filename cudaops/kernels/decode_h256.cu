#include "decode.cuh"

typedef gaze::DecodeShape<256, 2> Shape;
static_assert(LAUNCH_FACTS(DECODE_256).are(Shape::kThreads, Shape::kBytes, 8 * Shape::kMaxTiles, Shape::kBlocks), "launch.h");

KERNEL(decode_h256_bf16_kvbf16, DecodeParams, Shape::kThreads, Shape::kBlocks) { gaze::decode<gaze::bf16, 256>(p); }
KERNEL(decode_h256_f16_kvf16, DecodeParams, Shape::kThreads, Shape::kBlocks) { gaze::decode<gaze::f16, 256>(p); }
