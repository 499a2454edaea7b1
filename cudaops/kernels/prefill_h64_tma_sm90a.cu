#include "prefill_tma.cuh"

typedef gaze::PrefillTmaShape<64, 64> Shape;
static_assert(LAUNCH_FACTS(PREFILL_TMA_64).are(Shape::kThreads, Shape::kBytes, Shape::kKeys, 1), "launch.h");

KERNEL(prefill_h64_bf16_tma, PrefillParams, Shape::kThreads, 1) { gaze::prefill_tma<gaze::bf16, 64, 64>(p); }
KERNEL(prefill_h64_f16_tma, PrefillParams, Shape::kThreads, 1) { gaze::prefill_tma<gaze::f16, 64, 64>(p); }
