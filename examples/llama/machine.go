package main

import "runtime"

// heapMemory returns what Go's runtime has taken from the system, which it gives back late if at all.
func heapMemory() (n uint64, what string) {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.Sys, "taken by Go"
}
