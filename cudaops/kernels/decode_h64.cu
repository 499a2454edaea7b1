#include "decode.cuh"

KERNEL(decode_h64_bf16_kvbf16, DecodeParams, gaze::DecodeShape<64>::kThreads, 1) { gaze::decode<gaze::bf16, 64>(p); }
KERNEL(decode_h64_f16_kvf16, DecodeParams, gaze::DecodeShape<64>::kThreads, 1) { gaze::decode<gaze::f16, 64>(p); }
