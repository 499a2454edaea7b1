#include "prefill_tma.cuh"

typedef gaze::PrefillTmaShape<192, 192> Shape;
static_assert(LAUNCH_FACTS(PREFILL_TMA_192).are(Shape::kThreads, Shape::kBytes, Shape::kKeys, 1), "launch.h");

KERNEL(prefill_h192_bf16_tma, PrefillParams, Shape::kThreads, 1) { gaze::prefill_tma<gaze::bf16, 192, 192>(p); }
KERNEL(prefill_h192_f16_tma, PrefillParams, Shape::kThreads, 1) { gaze::prefill_tma<gaze::f16, 192, 192>(p); }
