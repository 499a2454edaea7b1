#include "decode.cuh"

typedef gaze::DecodeShape<256, 2> Shape;
static_assert(LAUNCH_FACTS(DECODE_256).are(Shape::kThreads, Shape::kBytes, 8 * Shape::kMaxTiles, Shape::kBlocks), "launch.h");

KERNEL(decode_h256_r8_bf16_kvbf16, DecodeParams, Shape::kThreads, Shape::kBlocks) { gaze::decode<gaze::bf16, 256, 8>(p); }
KERNEL(decode_h256_r16_bf16_kvbf16, DecodeParams, Shape::kThreads, Shape::kBlocks) { gaze::decode<gaze::bf16, 256, 16>(p); }
KERNEL(decode_h256_r8_f16_kvf16, DecodeParams, Shape::kThreads, Shape::kBlocks) { gaze::decode<gaze::f16, 256, 8>(p); }
KERNEL(decode_h256_r16_f16_kvf16, DecodeParams, Shape::kThreads, Shape::kBlocks) { gaze::decode<gaze::f16, 256, 16>(p); }
