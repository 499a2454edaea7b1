//go:build unix

package fakedevice

import (
	"syscall"

	"github.com/gaze-ml/gaze/internal/attn"
	"github.com/gaze-ml/gaze/ops"
)

// reserve maps pages that nobody may touch.
func reserve(bytes int) ([]byte, error) {
	mem, err := syscall.Mmap(-1, 0, bytes, syscall.PROT_NONE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		return nil, attn.Errorf(ops.ErrOutOfMemory, "fake_device", "bytes", "an arena that the system maps", "%d: %v", bytes, err)
	}
	return mem, nil
}

func protect(mem []byte, open bool) {
	prot := syscall.PROT_NONE
	if open {
		prot = syscall.PROT_READ | syscall.PROT_WRITE
	}
	if err := syscall.Mprotect(mem, prot); err != nil {
		panic(err)
	}
}
