#include "decode.cuh"

typedef gaze::DecodeShape<96, 2> Shape;
static_assert(LAUNCH_FACTS(DECODE_96).are(Shape::kThreads, Shape::kBytes, 8 * Shape::kMaxTiles, Shape::kBlocks), "launch.h");

KERNEL(decode_h96_bf16_kvbf16, DecodeParams, Shape::kThreads, Shape::kBlocks) { gaze::decode<gaze::bf16, 96>(p); }
KERNEL(decode_h96_f16_kvf16, DecodeParams, Shape::kThreads, Shape::kBlocks) { gaze::decode<gaze::f16, 96>(p); }
