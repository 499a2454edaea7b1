#include "prefill.cuh"

typedef gaze::PrefillShape<192, 128> Shape;
static_assert(LAUNCH_FACTS(PREFILL_E4M3_192X128).are(Shape::kThreads, Shape::kBytes, gaze::kTileRows, Shape::kBlocks), "launch.h");

KERNEL(prefill_h192x128_e4m3, PrefillParams, Shape::kThreads, Shape::kBlocks) { gaze::prefill<gaze::e4m3, 192, 128>(p); }
