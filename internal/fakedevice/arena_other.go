//go:build !unix

package fakedevice

import (
	"runtime"

	"github.com/gaze-ml/gaze/internal/attn"
	"github.com/gaze-ml/gaze/ops"
)

func reserve(int) ([]byte, error) {
	return nil, attn.Errorf(ops.ErrNoDevice, "fake_device", "system", "one with mmap and mprotect", "%s", runtime.GOOS)
}

func protect([]byte, bool) {}
