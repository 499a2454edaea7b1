//go:build gpu && linux && amd64 && cgo

package driver

// #include "calls.h"
import "C"

// Graph is a recorded run of the stream, ready to be launched.
type Graph struct{ c C.CUgraphExec }

// Capture starts recording: what follows in the stream is not run but noted, from whatever thread it comes.
func (c *Context) Capture() error {
	return c.within("cuStreamBeginCapture", func() error {
		return check("cuStreamBeginCapture", C.cuStreamBeginCapture(c.s, C.CU_STREAM_CAPTURE_MODE_RELAXED))
	})
}

// EndCapture ends recording and makes a graph of it. After an error the stream records no longer.
func (c *Context) EndCapture() (*Graph, error) {
	g := new(Graph)
	err := c.within("cuStreamEndCapture", func() error {
		var recorded C.CUgraph
		if r := C.cuStreamEndCapture(c.s, &recorded); r != C.CUDA_SUCCESS {
			return failed("cuStreamEndCapture", r)
		}
		defer C.cuGraphDestroy(recorded)
		return check("cuGraphInstantiate", C.cuGraphInstantiateWithFlags(&g.c, recorded, 0))
	})
	if err != nil {
		return nil, err
	}
	return g, nil
}

// Replay puts the recorded run into the stream.
func (c *Context) Replay(g *Graph) error { return check("cuGraphLaunch", C.gaze_replay(c.c, c.s, g.c)) }

// Discard gives g back.
func (c *Context) Discard(g *Graph) error {
	return c.within("cuGraphExecDestroy", func() error { return check("cuGraphExecDestroy", C.cuGraphExecDestroy(g.c)) })
}
