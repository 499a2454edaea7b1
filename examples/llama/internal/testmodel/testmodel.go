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

// SmolLM2 returns the path of SmolLM2-135M-Instruct.Q4_1: $MODEL, relative to the module's root, if that is it, else the
// fetched one. Without it the test is skipped, or in CI ($CI is set) fails.
func SmolLM2(t testing.TB) string {
	t.Helper()
	root := moduleRoot(t)
	fetched := filepath.Join(root, ".cache", "models", name)
	for _, path := range []string{os.Getenv("MODEL"), fetched} {
		if path == "" {
			continue
		}
		if !filepath.IsAbs(path) {
			path = filepath.Join(root, path)
		}
		if info, err := os.Stat(path); err == nil && info.Size() == size {
			return path
		}
	}
	missing := "no model at " + fetched + " nor in $MODEL: run scripts/fetch_model.py or make test"
	if os.Getenv("CI") != "" {
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
