#include "append.cuh"

KERNEL(append_bf16_e4m3, AppendParams, 256, 1) { gaze::append<gaze::bf16, gaze::e4m3>(p, gaze::Scaled{p.k_scale}, gaze::Scaled{p.v_scale}); }
KERNEL(append_f16_e4m3, AppendParams, 256, 1) { gaze::append<gaze::f16, gaze::e4m3>(p, gaze::Scaled{p.k_scale}, gaze::Scaled{p.v_scale}); }
KERNEL(append_f32_e4m3, AppendParams, 256, 1) { gaze::append<float, gaze::e4m3>(p, gaze::Scaled{p.k_scale}, gaze::Scaled{p.v_scale}); }
KERNEL(append_e4m3_e4m3, AppendParams, 256, 1) { gaze::append<gaze::e4m3, gaze::e4m3>(p, gaze::Scaled{p.k_scale}, gaze::Scaled{p.v_scale}); }
