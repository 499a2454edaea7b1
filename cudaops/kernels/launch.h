// Launch facts that the host must know. Every kernel checks its own with a static_assert.
#ifndef GAZE_LAUNCH_H
#define GAZE_LAUNCH_H

// GAZE_DECODE_{D}_{target}: threads, bytes of dynamic shared memory, largest tile_rows
#define GAZE_DECODE_64_SM90A 256, 224456, 32
#define GAZE_DECODE_128_SM90A 256, 228552, 32
#define GAZE_DECODE_64_SM80 128, 90088, 32
#define GAZE_DECODE_128_SM80 128, 94184, 32

// GAZE_PREFILL_{Dqk}[X{Dvo}]_{target}: threads, bytes of dynamic shared memory, blocks a multiprocessor
#define GAZE_PREFILL_64_SM90A 128, 51288, 2
#define GAZE_PREFILL_128_SM90A 128, 100440, 2
#define GAZE_PREFILL_64_SM80 128, 51288, 2
#define GAZE_PREFILL_128_SM80 128, 100440, 2

// GAZE_PREFILL_TMA_{Dqk}[X{Dvo}]_SM90A: threads, bytes of dynamic shared memory, blocks a multiprocessor
#define GAZE_PREFILL_TMA_64_SM90A 384, 98608, 1
#define GAZE_PREFILL_TMA_128_SM90A 384, 196912, 1

#endif
