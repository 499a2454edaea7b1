#include "prefill.cuh"

typedef gaze::PrefillShape<128, 128> Shape;
static_assert(LAUNCH_FACTS(PREFILL_128).are(Shape::kThreads, Shape::kBytes, gaze::kTileRows, Shape::kBlocks), "launch.h");

KERNEL(prefill_h128_bf16, PrefillParams, Shape::kThreads, Shape::kBlocks) { gaze::prefill<gaze::bf16, 128, 128>(p); }
KERNEL(prefill_h128_f16, PrefillParams, Shape::kThreads, Shape::kBlocks) { gaze::prefill<gaze::f16, 128, 128>(p); }
