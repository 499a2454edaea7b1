/* One driver function: its name and where its trampoline jumps. */
struct gaze_cuda_slot {
	const char *name;
	void **target;
};

extern struct gaze_cuda_slot gaze_cuda_slots[]; /* ends with a null name */

/* What every slot holds until it is filled: a function that returns gaze_cuda_absent_result. */
int gaze_cuda_absent(void);

/* Gives every slot what find returns for its name, or the absent function; calls cuInit, which find knows too, and returns its
   result. */
int gaze_cuda_fill(void *(*find)(void *, const char *), void *ctx);

/* gaze_cuda_fill from a shared library. A null return is success; else the text of the error, which the caller frees, with the
   result of cuInit or -1 where the library itself could not be opened. */
char *gaze_cuda_open(const char *library, int *result);
