//go:build gpu && linux && amd64 && cgo

#include "table.h"

#include "_cgo_export.h"

#include <string.h>

static _Thread_local uintptr_t current;

uintptr_t fake_current(void) { return current; }

static CUresult set_current(CUcontext ctx) {
	current = (uintptr_t)ctx;
	return CUDA_SUCCESS;
}

static CUresult get_current(CUcontext *ctx) {
	*ctx = (CUcontext)current;
	return CUDA_SUCCESS;
}

static CUresult init(unsigned flags) {
	(void)flags;
	return CUDA_SUCCESS;
}

static const struct {
	const char *name;
	void *f;
} table[] = {
	{"cuInit", init},
	{"cuDriverGetVersion", fakeDriverGetVersion},
	{"cuGetErrorName", fakeGetErrorName},
	{"cuGetErrorString", fakeGetErrorString},
	{"cuDeviceGetCount", fakeDeviceGetCount},
	{"cuDeviceGet", fakeDeviceGet},
	{"cuDeviceGetName", fakeDeviceGetName},
	{"cuDeviceGetUuid", fakeDeviceGetUuid},
	{"cuDeviceGetAttribute", fakeDeviceGetAttribute},
	{"cuDeviceTotalMem_v2", fakeDeviceTotalMem},
	{"cuDevicePrimaryCtxRetain", fakeDevicePrimaryCtxRetain},
	{"cuDevicePrimaryCtxRelease_v2", fakeDevicePrimaryCtxRelease},
	{"cuCtxSetCurrent", set_current},
	{"cuCtxGetCurrent", get_current},
	{"cuMemGetInfo_v2", fakeMemGetInfo},
	{"cuMemAlloc_v2", fakeMemAlloc},
	{"cuMemFree_v2", fakeMemFree},
	{"cuPointerGetAttribute", fakePointerGetAttribute},
	{"cuMemHostAlloc", fakeMemHostAlloc},
	{"cuMemFreeHost", fakeMemFreeHost},
	{"cuStreamCreate", fakeStreamCreate},
	{"cuStreamDestroy_v2", fakeStreamDestroy},
	{"cuStreamSynchronize", fakeStreamSynchronize},
	{"cuStreamBeginCapture_v2", fakeStreamBeginCapture},
	{"cuStreamEndCapture", fakeStreamEndCapture},
	{"cuGraphInstantiateWithFlags", fakeGraphInstantiate},
	{"cuGraphDestroy", fakeGraphDestroy},
	{"cuGraphExecDestroy", fakeGraphExecDestroy},
	{"cuGraphLaunch", fakeGraphLaunch},
	{"cuEventCreate", fakeEventCreate},
	{"cuEventDestroy_v2", fakeEventDestroy},
	{"cuEventRecord", fakeEventRecord},
	{"cuEventSynchronize", fakeEventSynchronize},
	{"cuEventElapsedTime", fakeEventElapsedTime},
	{"cuMemcpyHtoDAsync_v2", fakeMemcpyHtoDAsync},
	{"cuMemcpyDtoHAsync_v2", fakeMemcpyDtoHAsync},
	{"cuMemcpyDtoDAsync_v2", fakeMemcpyDtoDAsync},
	{"cuMemsetD8Async", fakeMemsetD8Async},
	{"cuModuleLoadDataEx", fakeModuleLoadDataEx},
	{"cuModuleUnload", fakeModuleUnload},
	{"cuModuleGetFunction", fakeModuleGetFunction},
	{"cuFuncGetParamInfo", fakeFuncGetParamInfo},
	{"cuFuncGetAttribute", fakeFuncGetAttribute},
	{"cuFuncSetAttribute", fakeFuncSetAttribute},
	{"cuTensorMapEncodeTiled", fakeTensorMapEncodeTiled},
	{"cuLaunchKernelEx", fakeLaunchKernelEx},
};

void *fake_find(void *ctx, const char *name) {
	(void)ctx;
	for (unsigned i = 0; i < sizeof table / sizeof *table; i++)
		if (!strcmp(table[i].name, name)) return table[i].f;
	return 0;
}

static CUresult idle(void) { return CUDA_SUCCESS; }

void *fake_find_idle(void *ctx, const char *name) {
	static const char *const idlers[] = {"cuLaunchKernelEx", "cuMemcpyHtoDAsync_v2", "cuMemcpyDtoHAsync_v2",
		"cuMemcpyDtoDAsync_v2", "cuTensorMapEncodeTiled", "cuMemsetD8Async", "cuEventRecord", "cuEventSynchronize", "cuStreamSynchronize", "cuGraphLaunch"};
	for (unsigned i = 0; i < sizeof idlers / sizeof *idlers; i++)
		if (!strcmp(idlers[i], name)) return idle;
	return fake_find(ctx, name);
}

void *fake_find_lt(void *ctx, const char *name) {
	(void)ctx;
	static const struct {
		const char *name;
		void *f;
	} lt[] = {
		{"cublasLtCreate", fakeLtCreate},
		{"cublasLtDestroy", fakeLtDestroy},
		{"cublasLtMatmulDescCreate", fakeLtDescCreate},
		{"cublasLtMatmulDescDestroy", fakeLtDestroy},
		{"cublasLtMatmulDescSetAttribute", fakeLtSetAttribute},
		{"cublasLtMatrixLayoutCreate", fakeLtLayoutCreate},
		{"cublasLtMatrixLayoutDestroy", fakeLtDestroy},
		{"cublasLtMatmulPreferenceCreate", fakeLtPreferenceCreate},
		{"cublasLtMatmulPreferenceDestroy", fakeLtDestroy},
		{"cublasLtMatmulPreferenceSetAttribute", fakeLtSetAttribute},
		{"cublasLtMatmulAlgoGetHeuristic", fakeLtHeuristic},
		{"cublasLtMatmul", fakeLtMatmul},
	};
	for (unsigned i = 0; i < sizeof lt / sizeof *lt; i++)
		if (!strcmp(lt[i].name, name)) return lt[i].f;
	return 0;
}

void *fake_find_none(void *ctx, const char *name) {
	(void)ctx, (void)name;
	return 0;
}
