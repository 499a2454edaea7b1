#include "decode.cuh"

KERNEL(decode_h128_bf16_kvbf16, DecodeParams, gaze::DecodeShape<128>::kThreads, 1) { gaze::decode<gaze::bf16, 128>(p); }
KERNEL(decode_h128_f16_kvf16, DecodeParams, gaze::DecodeShape<128>::kThreads, 1) { gaze::decode<gaze::f16, 128>(p); }
