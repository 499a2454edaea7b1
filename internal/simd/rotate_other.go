//go:build !amd64 || purego

package simd

func rotateAdjacent(_, _, _, _ []float32) int { return 0 }
func rotateHalves(_, _, _, _ []float32) int   { return 0 }
