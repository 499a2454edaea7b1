package main

import (
	"bytes"
	"os"
	"strconv"
)

// peakMemory returns the most memory that the process had resident, the model's mapped file included.
func peakMemory() (n uint64, what string) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return heapMemory()
	}
	_, rest, _ := bytes.Cut(status, []byte("VmHWM:"))
	fields := bytes.Fields(rest)
	if len(fields) == 0 {
		return heapMemory()
	}
	kib, err := strconv.ParseUint(string(fields[0]), 10, 64)
	if err != nil {
		return heapMemory()
	}
	return kib << 10, "peak, resident"
}
