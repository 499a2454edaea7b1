//go:build !amd64 || purego

package cpu

import "unsafe"

func prefetchLines(unsafe.Pointer, int) {}
