//go:build !(gpu && linux && amd64 && cgo)

package driver

import "runtime"

func unbuilt(call string) *Error {
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		return absent(call, "CUDA needs Linux on x86-64, this is %s/%s", runtime.GOOS, runtime.GOARCH)
	}
	return absent(call, "this program was built without CUDA: build it with cgo and -tags gpu (in gaze's checkout: make toolchain; eval \"$(scripts/toolchain.py env)\"; go build -tags gpu)")
}

// Count is the number of devices.
func Count() (int, error) { return 0, unbuilt("cuDeviceGetCount") }

// Query describes device n.
func Query(n int) (Properties, error) { return Properties{}, unbuilt("cuDeviceGet") }

// Context is a device with one stream.
type Context struct{}

// Module is loaded code, Function a kernel in it, Event a mark in the stream, Graph a recorded run of the stream.
type (
	Module   struct{}
	Function struct{}
	Event    struct{}
	Graph    struct{}
)

// Open makes a context on device n.
func Open(n int) (*Context, error) { return nil, unbuilt("cuDevicePrimaryCtxRetain") }

// The methods are never reached: no Context comes into being in this build.

func (c *Context) Close() error                             { return unbuilt("cuDevicePrimaryCtxRelease") }
func (c *Context) OnHost(Pointer) bool                      { return true }
func (c *Context) Sync() error                              { return unbuilt("cuStreamSynchronize") }
func (c *Context) MemInfo() (free, total int, err error)    { return 0, 0, unbuilt("cuMemGetInfo") }
func (c *Context) Alloc(n int) (Addr, error)                { return 0, unbuilt("cuMemAlloc") }
func (c *Context) Free(a Addr) error                        { return unbuilt("cuMemFree") }
func (c *Context) AllocPinned(n int) ([]byte, error)        { return nil, unbuilt("cuMemHostAlloc") }
func (c *Context) FreePinned(b []byte) error                { return unbuilt("cuMemFreeHost") }
func (c *Context) ToDevice(dst Addr, src []byte) error      { return unbuilt("cuMemcpyHtoDAsync") }
func (c *Context) ToHost(dst []byte, src Addr) error        { return unbuilt("cuMemcpyDtoHAsync") }
func (c *Context) OnDevice(dst, src Addr, n int) error      { return unbuilt("cuMemcpyDtoDAsync") }
func (c *Context) Fill(dst Addr, b byte, n int) error       { return unbuilt("cuMemsetD8Async") }
func (c *Context) NewEvent() (*Event, error)                { return nil, unbuilt("cuEventCreate") }
func (c *Context) Record(e *Event) error                    { return unbuilt("cuEventRecord") }
func (c *Context) Wait(e *Event) error                      { return unbuilt("cuEventSynchronize") }
func (c *Context) Destroy(e *Event) error                   { return unbuilt("cuEventDestroy") }
func (c *Context) Elapsed(from, to *Event) (float64, error) { return 0, unbuilt("cuEventElapsedTime") }
func (c *Context) Load(image []byte) (*Module, error)       { return nil, unbuilt("cuModuleLoadDataEx") }
func (c *Context) Function(m *Module, s string) (*Function, error) {
	return nil, unbuilt("cuModuleGetFunction")
}
func (c *Context) Unload(m *Module) error               { return unbuilt("cuModuleUnload") }
func (c *Context) AllowShared(f *Function, n int) error { return unbuilt("cuFuncSetAttribute") }
func (c *Context) Capture() error                       { return unbuilt("cuStreamBeginCapture") }
func (c *Context) EndCapture() (*Graph, error)          { return nil, unbuilt("cuStreamEndCapture") }
func (c *Context) Replay(g *Graph) error                { return unbuilt("cuGraphLaunch") }
func (c *Context) Discard(g *Graph) error               { return unbuilt("cuGraphExecDestroy") }

// Encode makes two maps.
func (c *Context) Encode(first, second *Map, t *[2]Tiled) error {
	return unbuilt("cuTensorMapEncodeTiled")
}

// Run launches f with one argument, the struct at p, by value.
func Run[P any](c *Context, f *Function, l *Launch, p *P) error { return unbuilt("cuLaunchKernelEx") }

// Handles are the context and the stream as C has them.
func (c *Context) Handles() (ctx, stream Pointer) { return nil, nil }
