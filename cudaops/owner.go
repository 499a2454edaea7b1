package cudaops

import (
	"slices"
	"sync"

	"github.com/gaze-ml/gaze/cudaops/internal/driver"
)

// running are the open Runtimes.
var running struct {
	mu  sync.RWMutex
	rts []*Runtime
}

// Owner is the open Runtime in whose memory p lies, nil where there is none: the one to ask for a backend when all that is known of a
// tensor is its address.
func Owner(p driver.Pointer) *Runtime {
	running.mu.RLock()
	defer running.mu.RUnlock()
	for _, rt := range running.rts {
		if rt.Owns(p, 1) {
			return rt
		}
	}
	return nil
}

func (rt *Runtime) enlist() {
	running.mu.Lock()
	defer running.mu.Unlock()
	running.rts = append(running.rts, rt)
}

func (rt *Runtime) retire() {
	running.mu.Lock()
	defer running.mu.Unlock()
	running.rts = slices.DeleteFunc(running.rts, func(o *Runtime) bool { return o == rt })
}
