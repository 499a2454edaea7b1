#include "prefill.cuh"

typedef gaze::PrefillShape<192, 192> Shape;
static_assert(LAUNCH_FACTS(PREFILL_192).are(Shape::kThreads, Shape::kBytes, gaze::kTileRows, Shape::kBlocks), "launch.h");

KERNEL(prefill_h192_bf16, PrefillParams, Shape::kThreads, Shape::kBlocks) { gaze::prefill<gaze::bf16, 192, 192>(p); }
KERNEL(prefill_h192_f16, PrefillParams, Shape::kThreads, Shape::kBlocks) { gaze::prefill<gaze::f16, 192, 192>(p); }
