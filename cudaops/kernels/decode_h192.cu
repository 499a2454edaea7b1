#include "decode.cuh"

DECODE_KERNELS(192, 8)
DECODE_KERNELS(192, 16)
