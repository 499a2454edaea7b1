#include "prefill_tma.cuh"

typedef gaze::PrefillTmaShape<128, 128> Shape;
static_assert(LAUNCH_FACTS(PREFILL_TMA_128).are(Shape::kThreads, Shape::kBytes, Shape::kKeys, 1), "launch.h");

KERNEL(prefill_h128_bf16_tma, PrefillParams, Shape::kThreads, 1) { gaze::prefill_tma<gaze::bf16, 128, 128>(p); }
KERNEL(prefill_h128_f16_tma, PrefillParams, Shape::kThreads, 1) { gaze::prefill_tma<gaze::f16, 128, 128>(p); }
