//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package main

// peakMemory returns what Go has taken from the system: the standard library can't ask this system for more.
func peakMemory() (n uint64, what string) { return heapMemory() }
