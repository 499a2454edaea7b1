// Package testmodel finds the model file that the tests of examples/llama run on.
package testmodel

import (
	"os"
	"path/filepath"
	"testing"
)

// The model of the golden data; scripts/fetch_model.py fetches it and checks its SHA-256.
const (
	name = "SmolLM2-135M-Instruct.Q4_1.gguf"
	size = 98_362_432
)

// SmolLM2 returns the path of SmolLM2-135M-Instruct.Q4_1: $GAZE_MODEL if that is it, else the fetched one. Without it the
// test is skipped; if $GAZE_REQUIRE_MODEL is set, as in make test, it fails, unless $GAZE_MODEL is another model.
func SmolLM2(t testing.TB) string {
	t.Helper()
	given := os.Getenv("GAZE_MODEL")
	fetched := filepath.Join(moduleRoot(t), ".cache", "models", name)
	for _, path := range []string{given, fetched} {
		if info, err := os.Stat(path); err == nil && info.Size() == size {
			return path
		}
	}
	if _, err := os.Stat(given); err == nil {
		t.Skipf("this test needs %s; $GAZE_MODEL is %s", name, given)
	}
	missing := "no model at " + fetched + ": run make test, or scripts/fetch_model.py"
	if os.Getenv("GAZE_REQUIRE_MODEL") != "" {
		t.Fatal(missing)
	}
	t.Skip(missing)
	return ""
}

// moduleRoot is the nearest folder above the test with a go.mod.
func moduleRoot(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			t.Fatal("no go.mod above the test's folder")
		}
		dir = parent
	}
}
