package cudaops

// Option changes how a Runtime works.
type Option func(*Runtime)

// WithoutCuBLAS makes Linear run on gaze's own kernels where cuBLASLt is installed too.
func WithoutCuBLAS() Option { return func(rt *Runtime) { rt.blas.off = true } }
