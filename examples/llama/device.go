package main

import (
	"github.com/gaze-ml/gaze/cudaops"
	"github.com/gaze-ml/gaze/graph"
)

// openDevice gives the device of -device, nil for the CPU, and what closes it. Without a GPU, or without CUDA in this program, the error
// is ops.ErrNoDevice and says what to do.
func openDevice(name string) (graph.Device, func() error, error) {
	if name != "cuda" {
		return nil, func() error { return nil }, nil
	}
	rt, err := cudaops.Open(0)
	if err != nil {
		return nil, nil, err
	}
	return rt, rt.Close, nil
}
