#include <cuda.h>
#include <stdint.h>

/* The calls of the launch path. Each makes ctx the thread's current context first, so that it may come from any thread. */

typedef struct {
	unsigned grid[3], block[3], shared, cluster, overlap;
} gaze_launch; /* Launch in driver.go */

typedef struct {
	uint64_t address, dims[4], strides[3];
	uint32_t box[4], bf16, reserved;
} gaze_tiled; /* Tiled in driver.go */

CUresult gaze_kind(uintptr_t ctx, CUdeviceptr, unsigned *kind); /* a CUmemorytype */
CUresult gaze_encode(uintptr_t ctx, uint64_t *first, uint64_t *second, const gaze_tiled[2]);
/* Handles come as numbers, and parameters as words, because cgo looks for Go memory behind every pointer that may lead there. */
CUresult gaze_run(uintptr_t ctx, uintptr_t stream, uintptr_t function, const gaze_launch *, uint64_t *params);
CUresult gaze_to_device(CUcontext, CUstream, CUdeviceptr dst, const void *src, size_t n);
CUresult gaze_to_host(CUcontext, CUstream, void *dst, CUdeviceptr src, size_t n);
CUresult gaze_on_device(CUcontext, CUstream, CUdeviceptr dst, CUdeviceptr src, size_t n);
CUresult gaze_fill(CUcontext, CUstream, CUdeviceptr dst, unsigned char b, size_t n);
CUresult gaze_record(CUcontext, CUstream, CUevent);
CUresult gaze_wait(CUcontext, CUevent);
CUresult gaze_sync(CUcontext, CUstream);
CUresult gaze_replay(CUcontext, CUstream, CUgraphExec);
