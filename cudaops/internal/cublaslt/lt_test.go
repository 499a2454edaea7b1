//go:build gpu && linux && amd64 && cgo

package cublaslt

import (
	"strings"
	"testing"

	"github.com/gaze-ml/gaze/cudaops/internal/driver"
)

// TestAbsent: a library that is not there is an error with the loader's words, each time.
func TestAbsent(t *testing.T) {
	t.Setenv(Variable, "/nowhere/libcublasLt.so.13")
	for range 2 {
		if err := load(); err == nil || !strings.Contains(err.Error(), "/nowhere/libcublasLt.so.13") {
			t.Errorf("%v, want an error that names the file", err)
		}
	}
}

func TestAlignment(t *testing.T) {
	for a, want := range map[uint64]uint32{1: 1, 2: 2, 24: 8, 256: 256, 4096: 256, 4096 + 32: 32} {
		if got := Alignment(driver.Addr(a)); got != want {
			t.Errorf("%d: %d, want %d", a, got, want)
		}
	}
}
