//go:build gpu && linux && amd64 && cgo

#define _GNU_SOURCE
#include "lazycuda.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

enum { NOT_INITIALIZED = 3, NO_DEVICE = 100, NOT_SUPPORTED = 801 }; /* CUresult */

static int absent_result = NOT_INITIALIZED;

int gaze_cuda_absent(void) { return absent_result; }

/* gorgonia.org/cu calls cuInit at init and ends the process unless it succeeds. The driver's own runs in gaze_cuda_fill. */
__attribute__((visibility("hidden"))) int cuInit(unsigned flags) {
	(void)flags;
	return 0;
}

int gaze_cuda_fill(void *(*find)(void *, const char *), void *ctx) {
	for (struct gaze_cuda_slot *s = gaze_cuda_slots; s->name; s++) {
		void *f = find(ctx, s->name);
		*s->target = f ? f : (void *)gaze_cuda_absent;
	}
	int (*init)(unsigned) = (int (*)(unsigned))find(ctx, "cuInit");
	absent_result = NOT_SUPPORTED;
	return init ? init(0) : NOT_SUPPORTED;
}

static void *find_in_library(void *library, const char *name) { return dlsym(library, name); }

char *gaze_cuda_open(const char *library, int *result) {
	void *l = dlopen(library, RTLD_NOW | RTLD_LOCAL);
	if (!l) {
		const char *why = dlerror();
		absent_result = NO_DEVICE;
		*result = -1;
		return strdup(why ? why : library);
	}
	*result = gaze_cuda_fill(find_in_library, l);
	if (*result == 0) return 0;
	char text[64];
	snprintf(text, sizeof text, "cuInit returned %d", *result);
	return strdup(text);
}
