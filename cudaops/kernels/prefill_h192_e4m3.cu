#include "prefill.cuh"

typedef gaze::PrefillShape<192, 192> Shape;
static_assert(LAUNCH_FACTS(PREFILL_E4M3_192).are(Shape::kThreads, Shape::kBytes, gaze::kTileRows, Shape::kBlocks), "launch.h");

KERNEL(prefill_h192_e4m3, PrefillParams, Shape::kThreads, Shape::kBlocks) { gaze::prefill<gaze::e4m3, 192, 192>(p); }
