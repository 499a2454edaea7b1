//go:build darwin || dragonfly || freebsd || netbsd || openbsd

package main

import (
	"runtime"
	"syscall"
)

// peakMemory returns the most memory that the process had resident, the model's mapped file included.
func peakMemory() (n uint64, what string) {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return heapMemory()
	}
	n = uint64(usage.Maxrss)
	if runtime.GOOS != "darwin" { // which counts bytes, the others KiB
		n <<= 10
	}
	return n, "peak, resident"
}
