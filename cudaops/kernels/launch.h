// Launch facts that the host must know. Every kernel checks its own with a static_assert.
#ifndef GAZE_LAUNCH_H
#define GAZE_LAUNCH_H

// GAZE_{op}_{Dqk}[X{Dvo}]_{target}: threads, bytes of dynamic shared memory, rows of a tile (decode: the most), blocks a multiprocessor
#define GAZE_DECODE_64_SM90A 128, 90088, 32, 2
#define GAZE_DECODE_128_SM90A 128, 94184, 32, 2
#define GAZE_DECODE_64_SM80 128, 90088, 32, 1
#define GAZE_DECODE_128_SM80 128, 94184, 32, 1

#define GAZE_PREFILL_64_SM90A 128, 51296, 128, 2
#define GAZE_PREFILL_96_SM90A 128, 75872, 128, 2
#define GAZE_PREFILL_128_SM90A 128, 100448, 128, 2
#define GAZE_PREFILL_192X128_SM90A 128, 91232, 128, 2
#define GAZE_PREFILL_192_SM90A 256, 149600, 128, 1
#define GAZE_PREFILL_256_SM90A 256, 198752, 128, 1
#define GAZE_PREFILL_64_SM80 128, 51296, 128, 2
#define GAZE_PREFILL_96_SM80 128, 75872, 128, 2
#define GAZE_PREFILL_128_SM80 128, 100448, 128, 2
#define GAZE_PREFILL_192X128_SM80 128, 91232, 128, 2
#define GAZE_PREFILL_192_SM80 256, 99424, 128, 1
#define GAZE_PREFILL_256_SM80 256, 98912, 128, 1

#define GAZE_PREFILL_TMA_64_SM90A 384, 98624, 128, 1
#define GAZE_PREFILL_TMA_128_SM90A 384, 196928, 128, 1

#endif
