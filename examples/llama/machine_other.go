//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package main

// The standard library can't ask these systems.

// peakMemory returns what Go has taken from the system.
func peakMemory() (n uint64, what string) { return heapMemory() }

// availableMemory knows nothing, so that nothing is refused.
func availableMemory() (n int64, source string) { return 0, "" }

// cpuName is the processor's.
func cpuName() string { return "unknown" }
