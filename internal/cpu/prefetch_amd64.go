//go:build !purego

package cpu

import "unsafe"

// prefetchLines asks for lines > 0 cache lines from p on. It may name memory that doesn't exist.
//
//go:noescape
func prefetchLines(p unsafe.Pointer, lines int)
