//go:build linux || darwin

package opstest

import "syscall"

// reserve maps n bytes that cost memory only where they are written.
func reserve(n int) ([]byte, error) {
	return syscall.Mmap(-1, 0, n, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE|syscall.MAP_NORESERVE)
}

func release(b []byte) { _ = syscall.Munmap(b) }
