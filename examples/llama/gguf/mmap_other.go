//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package gguf

import (
	"io"
	"os"
)

// mapFile reads the whole file: this system has no mmap in the standard library.
func mapFile(path string) (data []byte, unmap func() error, err error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	defer file.Close()
	size, err := sizeOf(file)
	if err != nil {
		return nil, nil, err
	}
	data = make([]byte, size)
	if _, err := io.ReadFull(file, data); err != nil {
		return nil, nil, err
	}
	return data, func() error { return nil }, nil
}
