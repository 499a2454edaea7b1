#include "append.cuh"

KERNEL(append_bf16_bf16, AppendParams, 256, 1) { gaze::append<gaze::bf16, gaze::bf16>(p); }
KERNEL(append_bf16_f16, AppendParams, 256, 1) { gaze::append<gaze::bf16, gaze::f16>(p); }
KERNEL(append_bf16_f32, AppendParams, 256, 1) { gaze::append<gaze::bf16, float>(p); }
KERNEL(append_f16_bf16, AppendParams, 256, 1) { gaze::append<gaze::f16, gaze::bf16>(p); }
KERNEL(append_f16_f16, AppendParams, 256, 1) { gaze::append<gaze::f16, gaze::f16>(p); }
KERNEL(append_f16_f32, AppendParams, 256, 1) { gaze::append<gaze::f16, float>(p); }
KERNEL(append_f32_bf16, AppendParams, 256, 1) { gaze::append<float, gaze::bf16>(p); }
KERNEL(append_f32_f16, AppendParams, 256, 1) { gaze::append<float, gaze::f16>(p); }
KERNEL(append_f32_f32, AppendParams, 256, 1) { gaze::append<float, float>(p); }
