//go:build gpu && linux && amd64 && cgo

#define _GNU_SOURCE
#include "lt.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

/* cublasLt.h's numbers. */
enum { COMPUTE_32F = 68, R_32F = 0 };                                                   /* cublasComputeType_t, cudaDataType_t */
enum { DESC_TRANSA = 3, DESC_EPILOGUE = 7, DESC_BIAS_POINTER = 8 };                     /* cublasLtMatmulDescAttributes_t */
enum { EPILOGUE_BIAS = 4, OP_T = 1 };                                                   /* cublasLtEpilogue_t, cublasOperation_t */
enum { PREF_WORKSPACE = 1, PREF_ALIGN_A = 5, PREF_ALIGN_B = 6, PREF_ALIGN_C = 7, PREF_ALIGN_D = 8 }; /* cublasLtMatmulPreferenceAttributes_t */
enum { NOT_SUPPORTED = 15 };                                                            /* cublasStatus_t */

typedef struct { /* cublasLtMatmulHeuristicResult_t */
	uint64_t algo[8];
	size_t workspace;
	int state;
	float waves;
	int reserved[4];
} heuristic;

#define FUNCTIONS(X) \
	X(Create, (void **)) \
	X(Destroy, (void *)) \
	X(MatmulDescCreate, (void **, int compute, int scale)) \
	X(MatmulDescDestroy, (void *)) \
	X(MatmulDescSetAttribute, (void *, int attribute, const void *, size_t)) \
	X(MatrixLayoutCreate, (void **, int type, uint64_t rows, uint64_t cols, int64_t ld)) \
	X(MatrixLayoutDestroy, (void *)) \
	X(MatmulPreferenceCreate, (void **)) \
	X(MatmulPreferenceDestroy, (void *)) \
	X(MatmulPreferenceSetAttribute, (void *, int attribute, const void *, size_t)) \
	X(MatmulAlgoGetHeuristic, (void *, void *op, void *a, void *b, void *c, void *d, void *preference, int wanted, heuristic *, int *found)) \
	X(Matmul, (void *, void *op, const void *alpha, const void *a, void *la, const void *b, void *lb, const void *beta, const void *c, void *lc, \
		void *d, void *ld, const uint64_t *algo, void *workspace, size_t bytes, CUstream))

#define POINTER(name, args) static int(*lt##name) args;
FUNCTIONS(POINTER)

const char *gaze_lt_use(void *(*find)(void *, const char *), void *ctx) {
	const char *missing = 0;
#define FILL(name, args) \
	if (!(*(void **)&lt##name = find(ctx, "cublasLt" #name)) && !missing) missing = "cublasLt" #name;
	FUNCTIONS(FILL)
	return missing;
}

static void *find_in_library(void *library, const char *name) { return dlsym(library, name); }

char *gaze_lt_open(const char *const *libraries) {
	char *why = 0;
	for (; *libraries; libraries++) {
		void *l = dlopen(*libraries, RTLD_NOW | RTLD_LOCAL);
		if (l) {
			free(why);
			const char *missing = gaze_lt_use(find_in_library, l);
			return missing ? strdup(missing) : 0;
		}
		if (!why) why = strdup(dlerror());
	}
	return why;
}

int gaze_lt_create(CUcontext ctx, void **handle) {
	cuCtxSetCurrent(ctx);
	return ltCreate(handle);
}

int gaze_lt_destroy(CUcontext ctx, void *handle) {
	cuCtxSetCurrent(ctx);
	return ltDestroy(handle);
}

#define TRY(call) \
	if (!r) r = (call)

int gaze_lt_make(CUcontext ctx, void *handle, const gaze_lt_product *p, gaze_lt_plan *plan) {
	int r = 0, transposed = OP_T, epilogue = EPILOGUE_BIAS, found = 0;
	void *preference = 0;
	heuristic best;
	memset(plan, 0, sizeof *plan);
	memset(&best, 0, sizeof best);
	cuCtxSetCurrent(ctx);
	TRY(ltMatmulDescCreate(&plan->op, COMPUTE_32F, R_32F));
	TRY(ltMatmulDescSetAttribute(plan->op, DESC_TRANSA, &transposed, sizeof transposed));
	if (p->bias) TRY(ltMatmulDescSetAttribute(plan->op, DESC_EPILOGUE, &epilogue, sizeof epilogue));
	TRY(ltMatrixLayoutCreate(&plan->a, p->type, p->k, p->m, p->lda));
	TRY(ltMatrixLayoutCreate(&plan->b, p->type, p->k, p->n, p->ldb));
	TRY(ltMatrixLayoutCreate(&plan->d, p->type, p->m, p->n, p->ldd));
	TRY(ltMatmulPreferenceCreate(&preference));
	TRY(ltMatmulPreferenceSetAttribute(preference, PREF_WORKSPACE, &p->workspace, sizeof p->workspace));
	TRY(ltMatmulPreferenceSetAttribute(preference, PREF_ALIGN_A, &p->align_a, sizeof p->align_a));
	TRY(ltMatmulPreferenceSetAttribute(preference, PREF_ALIGN_B, &p->align_b, sizeof p->align_b));
	TRY(ltMatmulPreferenceSetAttribute(preference, PREF_ALIGN_C, &p->align_d, sizeof p->align_d));
	TRY(ltMatmulPreferenceSetAttribute(preference, PREF_ALIGN_D, &p->align_d, sizeof p->align_d));
	TRY(ltMatmulAlgoGetHeuristic(handle, plan->op, plan->a, plan->b, plan->d, plan->d, preference, 1, &best, &found));
	if (!r && (!found || best.state)) r = NOT_SUPPORTED;
	if (preference) ltMatmulPreferenceDestroy(preference);
	memcpy(plan->algo, best.algo, sizeof plan->algo);
	if (r) gaze_lt_free(plan);
	return r;
}

void gaze_lt_free(gaze_lt_plan *p) {
	if (p->op) ltMatmulDescDestroy(p->op);
	if (p->a) ltMatrixLayoutDestroy(p->a);
	if (p->b) ltMatrixLayoutDestroy(p->b);
	if (p->d) ltMatrixLayoutDestroy(p->d);
	memset(p, 0, sizeof *p);
}

int gaze_lt_run(CUcontext ctx, CUstream stream, void *handle, const gaze_lt_plan *p, CUdeviceptr a, CUdeviceptr b, CUdeviceptr bias,
	CUdeviceptr d, CUdeviceptr workspace, size_t workspace_bytes) {
	static const float one = 1, zero = 0;
	int r = 0;
	cuCtxSetCurrent(ctx);
	if (bias) TRY(ltMatmulDescSetAttribute(p->op, DESC_BIAS_POINTER, &bias, sizeof bias));
	TRY(ltMatmul(handle, p->op, &one, (void *)a, p->a, (void *)b, p->b, &zero, (void *)d, p->d, (void *)d, p->d, p->algo, (void *)workspace,
		workspace_bytes, stream));
	return r;
}
