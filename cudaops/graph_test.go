package cudaops_test

import (
	"github.com/gaze-ml/gaze/cudaops"
	"github.com/gaze-ml/gaze/graph"
	"github.com/gaze-ml/gaze/ops"
)

// A Runtime is a device for graphs, and its backend one for ops.
var (
	_ graph.Device = (*cudaops.Runtime)(nil)
	_ ops.Backend  = (*cudaops.Backend)(nil)
)
