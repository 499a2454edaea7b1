//go:build !amd64 || purego

package half

func decodeF16([]float32, []F16) int   { return 0 }
func decodeBF16([]float32, []BF16) int { return 0 }
func decodeE4M3([]float32, []E4M3) int { return 0 }
func encodeF16([]F16, []float32) int   { return 0 }
func encodeBF16([]BF16, []float32) int { return 0 }
func encodeE4M3([]E4M3, []float32) int { return 0 }
