//go:build gpu && linux && amd64 && cgo

#include "calls.h"

#include <string.h>

static CUresult enter(CUcontext ctx) {
	CUcontext now;
	if (cuCtxGetCurrent(&now) == CUDA_SUCCESS && now == ctx) return CUDA_SUCCESS;
	return cuCtxSetCurrent(ctx);
}

#define WITHIN(ctx, call) \
	CUresult r = enter(ctx); \
	return r == CUDA_SUCCESS ? (call) : r

CUresult gaze_run(uintptr_t ctx, uintptr_t stream, uintptr_t f, const gaze_launch *l, uint64_t *params) {
	CUlaunchAttribute a[2];
	CUlaunchConfig c = {l->grid[0], l->grid[1], l->grid[2], l->block[0], l->block[1], l->block[2], l->shared, (CUstream)stream, a, 0};
	if (l->cluster) {
		CUlaunchAttribute *x = &a[c.numAttrs++];
		x->id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
		x->value.clusterDim.x = l->cluster;
		x->value.clusterDim.y = x->value.clusterDim.z = 1;
	}
	if (l->overlap) {
		CUlaunchAttribute *x = &a[c.numAttrs++];
		x->id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
		x->value.programmaticStreamSerializationAllowed = 1;
	}
	void *each[] = {params};
	WITHIN((CUcontext)ctx, cuLaunchKernelEx(&c, (CUfunction)f, each, 0));
}

CUresult gaze_to_device(CUcontext ctx, CUstream s, CUdeviceptr dst, const void *src, size_t n) {
	WITHIN(ctx, cuMemcpyHtoDAsync(dst, src, n, s));
}

CUresult gaze_to_host(CUcontext ctx, CUstream s, void *dst, CUdeviceptr src, size_t n) {
	WITHIN(ctx, cuMemcpyDtoHAsync(dst, src, n, s));
}

CUresult gaze_on_device(CUcontext ctx, CUstream s, CUdeviceptr dst, CUdeviceptr src, size_t n) {
	WITHIN(ctx, cuMemcpyDtoDAsync(dst, src, n, s));
}

CUresult gaze_fill(CUcontext ctx, CUstream s, CUdeviceptr dst, unsigned char b, size_t n) {
	WITHIN(ctx, cuMemsetD8Async(dst, b, n, s));
}

CUresult gaze_record(CUcontext ctx, CUstream s, CUevent e) { WITHIN(ctx, cuEventRecord(e, s)); }
CUresult gaze_wait(CUcontext ctx, CUevent e) { WITHIN(ctx, cuEventSynchronize(e)); }
CUresult gaze_sync(CUcontext ctx, CUstream s) { WITHIN(ctx, cuStreamSynchronize(s)); }
CUresult gaze_replay(CUcontext ctx, CUstream s, CUgraphExec g) { WITHIN(ctx, cuGraphLaunch(g, s)); }

CUresult gaze_kind(uintptr_t ctx, CUdeviceptr p, unsigned *kind) {
	WITHIN((CUcontext)ctx, cuPointerGetAttribute(kind, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p));
}

static CUresult encode(uint64_t *map, const gaze_tiled *t) {
	static const cuuint32_t each[4] = {1, 1, 1, 1};
	CUtensorMap aligned; /* to 64 bytes, which Go's is not */
	CUtensorMapDataType type = t->bf16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
	CUresult r = cuTensorMapEncodeTiled(&aligned, type, 4, (void *)t->address, (const cuuint64_t *)t->dims, (const cuuint64_t *)t->strides, t->box, each,
		CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
	if (r == CUDA_SUCCESS) memcpy(map, &aligned, sizeof aligned);
	return r;
}

CUresult gaze_encode(uintptr_t ctx, uint64_t *first, uint64_t *second, const gaze_tiled t[2]) {
	CUresult r = enter((CUcontext)ctx);
	if (r == CUDA_SUCCESS) r = encode(first, &t[0]);
	return r == CUDA_SUCCESS ? encode(second, &t[1]) : r;
}
