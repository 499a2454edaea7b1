#include "prefill.cuh"

typedef gaze::PrefillShape<256, 256> Shape;
static_assert(LAUNCH_FACTS(PREFILL_E4M3_256).are(Shape::kThreads, Shape::kBytes, gaze::kTileRows, Shape::kBlocks), "launch.h");

KERNEL(prefill_h256_e4m3, PrefillParams, Shape::kThreads, Shape::kBlocks) { gaze::prefill<gaze::e4m3, 256, 256>(p); }
