#include "prefill.cuh"

typedef gaze::PrefillShape<192, 128> Shape;
static_assert(LAUNCH_FACTS(PREFILL_192X128).are(Shape::kThreads, Shape::kBytes, gaze::kTileRows, Shape::kBlocks), "launch.h");

KERNEL(prefill_h192x128_bf16, PrefillParams, Shape::kThreads, Shape::kBlocks) { gaze::prefill<gaze::bf16, 192, 128>(p); }
KERNEL(prefill_h192x128_f16, PrefillParams, Shape::kThreads, Shape::kBlocks) { gaze::prefill<gaze::f16, 192, 128>(p); }
