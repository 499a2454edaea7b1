// Launch facts that the host must know. Every kernel checks its own with a static_assert.
//
// DECODE(D, threads on sm90a, shared bytes, threads on sm80, shared bytes, largest tile_rows)
#ifndef GAZE_LAUNCH_H
#define GAZE_LAUNCH_H

#define GAZE_DECODE_64_SM90A 256, 222976, 32
#define GAZE_DECODE_128_SM90A 256, 227072, 32
#define GAZE_DECODE_64_SM80 128, 93000, 32
#define GAZE_DECODE_128_SM80 128, 93000, 32

#endif
