#include "decode.cuh"

DECODE_KERNELS(256, 8)
DECODE_KERNELS(256, 16)
