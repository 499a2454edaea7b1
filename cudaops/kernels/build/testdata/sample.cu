// A kernel for the tests of the build itself.
#define PASTE(a, b) a##_##b
#define NAME(a, b) PASTE(a, b)

struct Params {
	unsigned long long x;
	int n;
	float scale;
};

extern "C" __global__ void __launch_bounds__(128) NAME(scale_f32, GAZE_TARGET)(const __grid_constant__ Params p) {
	int i = blockIdx.x * blockDim.x + threadIdx.x;
	if (i < p.n) reinterpret_cast<float *>(p.x)[i] *= p.scale;
}
