//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package gguf

import (
	"io/fs"
	"os"
	"syscall"
)

// mapFile maps a file read-only, so that its pages are shared and are read when first touched.
func mapFile(path string) (data []byte, unmap func() error, err error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	defer file.Close() // the mapping stays
	size, err := sizeOf(file)
	if err != nil {
		return nil, nil, err
	}
	if size == 0 { // can't be mapped, and is no GGUF file: Parse says so
		return nil, func() error { return nil }, nil
	}
	data, err = syscall.Mmap(int(file.Fd()), 0, size, syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil {
		return nil, nil, &fs.PathError{Op: "mmap", Path: path, Err: err}
	}
	return data, func() error { return syscall.Munmap(data) }, nil
}
