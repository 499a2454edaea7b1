package cpu

// scratch is the memory of one worker, or of the caller of one call. Nobody else touches it, it grows to the largest item it has
// seen and is kept, so that a second call of the same size allocates nothing.
type scratch struct {
	mem  []float32
	used int
}

// line is the number of float32 in a cache line; every slice that floats gives starts on one.
const line = lineBytes / 4

// reset takes back everything that was given out. Each item starts with it.
func (s *scratch) reset() { s.used = 0 }

// floats gives n values of any content.
func (s *scratch) floats(n int) []float32 {
	start := s.used
	s.used += (n + line - 1) / line * line
	if s.used > len(s.mem) {
		// Slices given out before live on in the old array. Allocations of whole pages are aligned.
		s.mem = make([]float32, (s.used+s.used/4+16383)/16384*16384)
	}
	return s.mem[start : start+n : start+n]
}

// resize gives s with n elements of any content, in the old memory where that is large enough.
func resize[T any](s []T, n int) []T {
	if n > cap(s) {
		return make([]T, n, n+n/4)
	}
	return s[:n]
}
