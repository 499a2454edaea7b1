package main

import (
	"errors"
	"strings"
	"testing"

	"github.com/gaze-ml/gaze/cudaops"
	"github.com/gaze-ml/gaze/ops"
)

// Without a GPU, or CUDA in the program, -device cuda fails at once and says what to do.
func TestNoGPU(t *testing.T) {
	if _, err := cudaops.Devices(); err == nil {
		t.Skip("there is a GPU")
	}
	_, _, err := openDevice("cuda")
	if !errors.Is(err, ops.ErrNoDevice) {
		t.Fatalf("%v, want ErrNoDevice", err)
	}
	got := runWith(t.Context(), &fake{script: said("ok")}, "", "-model", writeModel(t, nil), "-p", "x", "-device", "cuda")
	if got.status != exitFailed || got.stdout != "" || !strings.Contains(got.stderr, err.Error()) {
		t.Errorf("status %d, %q, want to be told that %v", got.status, got.stderr, err)
	}
}
