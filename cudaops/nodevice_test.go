//go:build !(gpu && linux && amd64 && cgo)

package cudaops

import (
	"errors"
	"runtime"
	"strings"
	"testing"

	"github.com/gaze-ml/gaze/ops"
)

// TestWithoutTag: a program built without CUDA gets ErrNoDevice that says how to build it with.
func TestWithoutTag(t *testing.T) {
	hint := "-tags gpu"
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		hint = "Linux"
	}
	rt, err := Open(0)
	if rt != nil || !errors.Is(err, ops.ErrNoDevice) || !strings.Contains(err.Error(), hint) {
		t.Errorf("Open: %v, %v, want ErrNoDevice with %q", rt, err, hint)
	}
	if ps, err := Devices(); len(ps) != 0 || !errors.Is(err, ops.ErrNoDevice) || !strings.Contains(err.Error(), hint) {
		t.Errorf("Devices: %v, %v, want ErrNoDevice with %q", ps, err, hint)
	}
	var call *CallError
	if !errors.As(err, &call) || call.Op != "devices" {
		t.Errorf("%v is no CallError of devices", err)
	}
}

// forReal does nothing here: only the tests on a recording driver have other kernels than programs.
func forReal(*testing.T) {}
