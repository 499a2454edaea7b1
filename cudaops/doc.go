// Package cudaops is gaze's CUDA backend: devices, their memory, the engine for Gorgonia's own ops on device tensors, the choice of a
// kernel for each call, and the launches.
//
//	rt, err := cudaops.Open(0)
//	defer rt.Close()
//	m, err := graph.NewMachine(g, graph.On(rt))
//
// CUDA is behind the build tag gpu and opened at run time: without the tag, a driver or a GPU, [Open] gives ErrNoDevice with what to do,
// and everything else of the program works. The kernels are compiled ahead and embedded; no CUDA toolkit is needed at run time.
//
// Linear runs by cuBLASLt where that is installed, and by a kernel of our own elsewhere. The library is looked for as libcublasLt.so.13
// and .12; the environment's GAZE_CUBLASLT names its file where the loader does not find it.
//
// A [Runtime] owns one stream, so work runs in the order of the calls; it waits only where a result comes to the host. A device can't
// refuse bad values in lengths, tables or ids before it has written anything else: rows of such a request become 0, and the next call
// that waits returns the ErrArgument that the CPU backend would have given.
package cudaops
