//go:build gpu && linux && amd64 && cgo

package lazycuda_test

import (
	"debug/elf"
	"os"
	"strings"
	"testing"

	"gorgonia.org/cu"

	"github.com/gaze-ml/gaze/cudaops/internal/lazycuda"
)

// TestNothingLinked: that this process runs shows that cu's init did not end it; the binary must not name the driver's library,
// so every function that cu refers to has its trampoline.
func TestNothingLinked(t *testing.T) {
	f, err := elf.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	libs, err := f.ImportedLibraries()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range libs {
		if strings.HasPrefix(l, "libcuda") {
			t.Errorf("the binary needs %s (of %v): a function in symbols.txt is missing", l, libs)
		}
	}
	syms, err := f.ImportedSymbols()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range syms {
		if strings.HasPrefix(s.Name, "cu") {
			t.Errorf("%s is looked for in a library", s.Name)
		}
	}
}

// TestAbsent: without a driver the loader's words come back each time, and cu reports errors instead of ending the process.
func TestAbsent(t *testing.T) {
	if n, err := cu.NumDevices(); err != cu.NotInitialized {
		t.Errorf("before Load: %d devices, error %v, want %v", n, err, cu.NotInitialized)
	}
	if _, err := os.Stat("/dev/nvidiactl"); err == nil {
		t.Skip("this machine has a driver")
	}
	first := lazycuda.Load()
	if first == nil || !strings.Contains(first.Error(), lazycuda.Library) {
		t.Fatalf("Load: %v, want an error that names %s", first, lazycuda.Library)
	}
	if again := lazycuda.Load(); again != first {
		t.Errorf("Load again: %v, want the first error", again)
	}
	if _, err := cu.NumDevices(); err != cu.NoDevice {
		t.Errorf("after Load: %v, want %v", err, cu.NoDevice)
	}
}
