#include "decode.cuh"

typedef gaze::DecodeShape<128, 2> Shape;
static_assert(LAUNCH_FACTS(DECODE_128).are(Shape::kThreads, Shape::kBytes, 8 * Shape::kMaxTiles, Shape::kBlocks), "launch.h");

KERNEL(decode_h128_r8_bf16_kvbf16, DecodeParams, Shape::kThreads, Shape::kBlocks) { gaze::decode<gaze::bf16, 128, 8>(p); }
KERNEL(decode_h128_r16_bf16_kvbf16, DecodeParams, Shape::kThreads, Shape::kBlocks) { gaze::decode<gaze::bf16, 128, 16>(p); }
KERNEL(decode_h128_r32_bf16_kvbf16, DecodeParams, Shape::kThreads, Shape::kBlocks) { gaze::decode<gaze::bf16, 128, 32>(p); }
KERNEL(decode_h128_r8_f16_kvf16, DecodeParams, Shape::kThreads, Shape::kBlocks) { gaze::decode<gaze::f16, 128, 8>(p); }
KERNEL(decode_h128_r16_f16_kvf16, DecodeParams, Shape::kThreads, Shape::kBlocks) { gaze::decode<gaze::f16, 128, 16>(p); }
KERNEL(decode_h128_r32_f16_kvf16, DecodeParams, Shape::kThreads, Shape::kBlocks) { gaze::decode<gaze::f16, 128, 32>(p); }
