#include "prefill.cuh"

typedef gaze::PrefillShape<64, 64> Shape;
static_assert(LAUNCH_FACTS(PREFILL_E4M3_64).are(Shape::kThreads, Shape::kBytes, gaze::kTileRows, Shape::kBlocks), "launch.h");

KERNEL(prefill_h64_e4m3, PrefillParams, Shape::kThreads, Shape::kBlocks) { gaze::prefill<gaze::e4m3, 64, 64>(p); }
