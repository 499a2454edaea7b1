#include <stdint.h>

/* The entry of the fake's table for a driver function, or null. */
void *fake_find(void *ctx, const char *name);

/* The same, but the functions of the launch path succeed at once without leaving C. */
void *fake_find_idle(void *ctx, const char *name);

/* The same for the functions of cuBLASLt. */
void *fake_find_lt(void *ctx, const char *name);

/* Nothing. */
void *fake_find_none(void *ctx, const char *name);

/* The calling thread's current context. */
uintptr_t fake_current(void);
