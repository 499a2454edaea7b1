//go:build darwin || dragonfly || freebsd || netbsd || openbsd

package main

import (
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
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

// availableMemory returns the machine's whole memory: what of it others use changes with what they could do without.
func availableMemory() (n int64, source string) {
	for _, name := range []string{"hw.memsize", "hw.physmem64", "hw.physmem"} {
		if n, err := unix.SysctlUint64(name); err == nil {
			return int64(n), "the machine's " + name
		}
	}
	return 0, ""
}

// cpuName is the processor's.
func cpuName() string {
	for _, name := range []string{"machdep.cpu.brand_string", "hw.model"} {
		if s, err := unix.Sysctl(name); err == nil && s != "" {
			return s
		}
	}
	return "unknown"
}
