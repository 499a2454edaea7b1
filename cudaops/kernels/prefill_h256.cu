#include "prefill.cuh"

typedef gaze::PrefillShape<256, 256> Shape;
static_assert(LAUNCH_FACTS(PREFILL_256).are(Shape::kThreads, Shape::kBytes, gaze::kTileRows, Shape::kBlocks), "launch.h");

KERNEL(prefill_h256_bf16, PrefillParams, Shape::kThreads, Shape::kBlocks) { gaze::prefill<gaze::bf16, 256, 256>(p); }
KERNEL(prefill_h256_f16, PrefillParams, Shape::kThreads, Shape::kBlocks) { gaze::prefill<gaze::f16, 256, 256>(p); }
