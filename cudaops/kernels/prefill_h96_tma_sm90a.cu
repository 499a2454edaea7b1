#include "prefill_tma.cuh"

typedef gaze::PrefillTmaShape<96, 96> Shape;
static_assert(LAUNCH_FACTS(PREFILL_TMA_96).are(Shape::kThreads, Shape::kBytes, Shape::kKeys, 1), "launch.h");

KERNEL(prefill_h96_bf16_tma, PrefillParams, Shape::kThreads, 1) { gaze::prefill_tma<gaze::bf16, 96, 96>(p); }
KERNEL(prefill_h96_f16_tma, PrefillParams, Shape::kThreads, 1) { gaze::prefill_tma<gaze::f16, 96, 96>(p); }
