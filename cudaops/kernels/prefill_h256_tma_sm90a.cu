#include "prefill_tma.cuh"

typedef gaze::PrefillTmaShape<256, 256> Shape;
static_assert(LAUNCH_FACTS(PREFILL_TMA_256).are(Shape::kThreads, Shape::kBytes, Shape::kKeys, 1), "launch.h");

KERNEL(prefill_h256_bf16_tma, PrefillParams, Shape::kThreads, 1) { gaze::prefill_tma<gaze::bf16, 256, 256>(p); }
KERNEL(prefill_h256_f16_tma, PrefillParams, Shape::kThreads, 1) { gaze::prefill_tma<gaze::f16, 256, 256>(p); }
