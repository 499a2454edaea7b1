#include "prefill.cuh"

typedef gaze::PrefillShape<96, 96> Shape;
static_assert(LAUNCH_FACTS(PREFILL_E4M3_96).are(Shape::kThreads, Shape::kBytes, gaze::kTileRows, Shape::kBlocks), "launch.h");

KERNEL(prefill_h96_e4m3, PrefillParams, Shape::kThreads, Shape::kBlocks) { gaze::prefill<gaze::e4m3, 96, 96>(p); }
