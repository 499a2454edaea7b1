#include "decode.cuh"

typedef gaze::DecodeShape<64, 2> Shape;
static_assert(LAUNCH_FACTS(DECODE_64).are(Shape::kThreads, Shape::kBytes, 8 * Shape::kMaxTiles, Shape::kBlocks), "launch.h");

KERNEL(decode_h64_r8_bf16_kvbf16, DecodeParams, Shape::kThreads, Shape::kBlocks) { gaze::decode<gaze::bf16, 64, 8>(p); }
KERNEL(decode_h64_r16_bf16_kvbf16, DecodeParams, Shape::kThreads, Shape::kBlocks) { gaze::decode<gaze::bf16, 64, 16>(p); }
KERNEL(decode_h64_r32_bf16_kvbf16, DecodeParams, Shape::kThreads, Shape::kBlocks) { gaze::decode<gaze::bf16, 64, 32>(p); }
KERNEL(decode_h64_r8_f16_kvf16, DecodeParams, Shape::kThreads, Shape::kBlocks) { gaze::decode<gaze::f16, 64, 8>(p); }
KERNEL(decode_h64_r16_f16_kvf16, DecodeParams, Shape::kThreads, Shape::kBlocks) { gaze::decode<gaze::f16, 64, 16>(p); }
KERNEL(decode_h64_r32_f16_kvf16, DecodeParams, Shape::kThreads, Shape::kBlocks) { gaze::decode<gaze::f16, 64, 32>(p); }
