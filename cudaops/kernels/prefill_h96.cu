#include "prefill.cuh"

typedef gaze::PrefillShape<96, 96> Shape;
static_assert(LAUNCH_FACTS(PREFILL_96).are(Shape::kThreads, Shape::kBytes, gaze::kTileRows, Shape::kBlocks), "launch.h");

KERNEL(prefill_h96_bf16, PrefillParams, Shape::kThreads, Shape::kBlocks) { gaze::prefill<gaze::bf16, 96, 96>(p); }
KERNEL(prefill_h96_f16, PrefillParams, Shape::kThreads, Shape::kBlocks) { gaze::prefill<gaze::f16, 96, 96>(p); }
