#include "decode.cuh"

typedef gaze::DecodeShape<192, 2> Shape;
static_assert(LAUNCH_FACTS(DECODE_192).are(Shape::kThreads, Shape::kBytes, 8 * Shape::kMaxTiles, Shape::kBlocks), "launch.h");

KERNEL(decode_h192_r8_bf16_kvbf16, DecodeParams, Shape::kThreads, Shape::kBlocks) { gaze::decode<gaze::bf16, 192, 8>(p); }
KERNEL(decode_h192_r16_bf16_kvbf16, DecodeParams, Shape::kThreads, Shape::kBlocks) { gaze::decode<gaze::bf16, 192, 16>(p); }
KERNEL(decode_h192_r8_f16_kvf16, DecodeParams, Shape::kThreads, Shape::kBlocks) { gaze::decode<gaze::f16, 192, 8>(p); }
KERNEL(decode_h192_r16_f16_kvf16, DecodeParams, Shape::kThreads, Shape::kBlocks) { gaze::decode<gaze::f16, 192, 16>(p); }
