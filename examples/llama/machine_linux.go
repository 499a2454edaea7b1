package main

import (
	"bytes"
	"os"
	"strconv"
)

// peakMemory returns the most memory that the process had resident, the model's mapped file included.
func peakMemory() (n uint64, what string) {
	if n, ok := kib("/proc/self/status", "VmHWM:"); ok {
		return uint64(n), "peak, resident"
	}
	return heapMemory()
}

// availableMemory returns what the machine can give without swapping, or what the process's group may take where that is less.
func availableMemory() (n int64, source string) {
	n, ok := kib("/proc/meminfo", "MemAvailable:")
	if source = "available"; !ok {
		n, source = 0, ""
	}
	for _, limit := range []string{"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"} {
		text, err := os.ReadFile(limit)
		if err != nil {
			continue
		}
		if most, err := strconv.ParseInt(string(bytes.TrimSpace(text)), 10, 64); err == nil && (n == 0 || most < n) {
			n, source = most, "the control group's limit"
		}
	}
	return n, source
}

// cpuName is the processor's.
func cpuName() string {
	text, err := os.ReadFile("/proc/cpuinfo")
	if err == nil {
		for line := range bytes.Lines(text) {
			if key, name, ok := bytes.Cut(line, []byte(":")); ok && string(bytes.TrimSpace(key)) == "model name" {
				return string(bytes.TrimSpace(name))
			}
		}
	}
	return "unknown"
}

// kib reads a line such as "MemAvailable:   22508748 kB" as bytes.
func kib(file, key string) (n int64, ok bool) {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, false
	}
	for line := range bytes.Lines(text) {
		if rest, ok := bytes.CutPrefix(line, []byte(key)); ok {
			if fields := bytes.Fields(rest); len(fields) > 0 {
				n, err := strconv.ParseInt(string(fields[0]), 10, 64)
				return n << 10, err == nil
			}
		}
	}
	return 0, false
}
