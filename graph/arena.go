package graph

import "slices"

// buffer is one result's memory and the steps between which nothing else may lie there.
type buffer struct {
	place       place
	bytes       int
	first, last int // the step that writes it, the last step that reads it
	offset      int
}

// arrange gives each buffer of a place an offset so that buffers in use at the same step don't overlap, and returns the arena's
// size. It places the largest first, each at the lowest offset that is free during its life. Pisarchyk and Lee, "Efficient Memory
// Management for Deep Neural Net Inference", 2020, greedy by size.
func arrange(buffers []buffer, in place) (bytes int) {
	order := make([]*buffer, 0, len(buffers))
	for i := range buffers {
		if buffers[i].place == in {
			order = append(order, &buffers[i])
		}
	}
	slices.SortStableFunc(order, func(a, b *buffer) int { return b.bytes - a.bytes })
	var placed []*buffer // by offset
	for _, b := range order {
		size := aligned(b.bytes)
		at := 0
		for _, p := range placed {
			if p.first > b.last || b.first > p.last {
				continue
			}
			if at+size <= p.offset {
				break
			}
			at = max(at, p.offset+aligned(p.bytes))
		}
		b.offset = at
		i, _ := slices.BinarySearchFunc(placed, at, func(p *buffer, at int) int { return p.offset - at })
		placed = slices.Insert(placed, i, b)
		bytes = max(bytes, at+size)
	}
	return bytes
}

// aligned rounds up to the alignment.
func aligned(n int) int { return (n + alignment - 1) / alignment * alignment }
