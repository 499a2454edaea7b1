#include "prefill.cuh"

typedef gaze::PrefillShape<64, 64> Shape;
static_assert(LAUNCH_FACTS(PREFILL_64).are(Shape::kThreads, Shape::kBytes, gaze::kTileRows, Shape::kBlocks), "launch.h");

KERNEL(prefill_h64_bf16, PrefillParams, Shape::kThreads, Shape::kBlocks) { gaze::prefill<gaze::bf16, 64, 64>(p); }
KERNEL(prefill_h64_f16, PrefillParams, Shape::kThreads, Shape::kBlocks) { gaze::prefill<gaze::f16, 64, 64>(p); }
