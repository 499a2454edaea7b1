#include <cuda.h>
#include <stddef.h>
#include <stdint.h>

/* What is used of cuBLASLt, by its documented binary interface: the library is opened at run time and its headers are not needed. */

/* d[m,n] = aᵀ·b + bias, column-major: a is [k,m], b [k,n], bias [m]. */
typedef struct {
	int32_t type; /* cudaDataType_t of all operands */
	int32_t bias; /* 1: with bias */
	int64_t m, n, k, lda, ldb, ldd;
	uint32_t align_a, align_b, align_d;
	uint32_t reserved;
	uint64_t workspace; /* bytes at most */
} gaze_lt_product;

typedef struct {
	void *op, *a, *b, *d;
	uint64_t algo[8]; /* cublasLtMatmulAlgo_t */
} gaze_lt_plan;

/* Opens the first library that there is. A null return is success; else the loader's words, which the caller frees. */
char *gaze_lt_open(const char *const *libraries);
/* Takes the functions from find instead. Returns the name of the first that is missing, or null. */
const char *gaze_lt_use(void *(*find)(void *, const char *), void *ctx);

/* These return a cublasStatus_t. */
int gaze_lt_create(CUcontext, void **handle);
int gaze_lt_destroy(CUcontext, void *handle);
int gaze_lt_make(CUcontext, void *handle, const gaze_lt_product *, gaze_lt_plan *);
void gaze_lt_free(gaze_lt_plan *);
int gaze_lt_run(CUcontext, CUstream, void *handle, const gaze_lt_plan *, CUdeviceptr a, CUdeviceptr b, CUdeviceptr bias, CUdeviceptr d,
	CUdeviceptr workspace, size_t workspace_bytes);
