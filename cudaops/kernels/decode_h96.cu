#include "decode.cuh"

typedef gaze::DecodeShape<96, 2> Shape;
static_assert(LAUNCH_FACTS(DECODE_96).are(Shape::kThreads, Shape::kBytes, 8 * Shape::kMaxTiles, Shape::kBlocks), "launch.h");

KERNEL(decode_h96_r8_bf16_kvbf16, DecodeParams, Shape::kThreads, Shape::kBlocks) { gaze::decode<gaze::bf16, 96, 8>(p); }
KERNEL(decode_h96_r16_bf16_kvbf16, DecodeParams, Shape::kThreads, Shape::kBlocks) { gaze::decode<gaze::bf16, 96, 16>(p); }
KERNEL(decode_h96_r32_bf16_kvbf16, DecodeParams, Shape::kThreads, Shape::kBlocks) { gaze::decode<gaze::bf16, 96, 32>(p); }
KERNEL(decode_h96_r8_f16_kvf16, DecodeParams, Shape::kThreads, Shape::kBlocks) { gaze::decode<gaze::f16, 96, 8>(p); }
KERNEL(decode_h96_r16_f16_kvf16, DecodeParams, Shape::kThreads, Shape::kBlocks) { gaze::decode<gaze::f16, 96, 16>(p); }
KERNEL(decode_h96_r32_f16_kvf16, DecodeParams, Shape::kThreads, Shape::kBlocks) { gaze::decode<gaze::f16, 96, 32>(p); }
