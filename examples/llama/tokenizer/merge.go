package tokenizer

// symbol is a stretch of text that merging grows, a node of a list.
type symbol struct {
	start, end int   // in the text; end is −1 once it has been merged into its left neighbour
	id         int32 // its token, or None
	prev, next int   // neighbours, −1 at the ends
}

// candidate is a pair of neighbours that could be merged.
type candidate struct {
	order             float64 // lowest first
	left, right       int
	leftEnd, rightEnd int // both symbols as they were, to tell when the pair is out of date
	id                int32
}

// before orders candidates: the best first, the leftmost of equals.
func (c candidate) before(d candidate) bool {
	if c.order != d.order {
		return c.order < d.order
	}
	return c.left < d.left
}

// merger joins neighbouring symbols, best pair first, until no pair can be joined. Its slices are reused from one text to
// the next. A heap of candidates makes the time n·log n where a search for the best pair in each round would be n².
type merger struct {
	symbols []symbol
	heap    []candidate
	// join says whether two neighbours form a token, which, and the order in which it is made (lowest first).
	join func(left, right symbol) (id int32, order float64, ok bool)
}

func (m *merger) reset() { m.symbols, m.heap = m.symbols[:0], m.heap[:0] }

// add appends a symbol at the end of the list.
func (m *merger) add(start, end int, id int32) {
	i := len(m.symbols)
	m.symbols = append(m.symbols, symbol{start: start, end: end, id: id, prev: i - 1, next: -1})
	if i > 0 {
		m.symbols[i-1].next = i
	}
}

// run merges; what is left is the list from symbol 0 along next.
func (m *merger) run() {
	for i := 1; i < len(m.symbols); i++ {
		m.propose(i-1, i)
	}
	for len(m.heap) > 0 {
		c := m.pop()
		left, right := &m.symbols[c.left], &m.symbols[c.right]
		if left.end != c.leftEnd || right.end != c.rightEnd {
			continue
		}
		left.id, left.end, left.next = c.id, right.end, right.next
		right.end = -1
		if left.next >= 0 {
			m.symbols[left.next].prev = c.left
			m.propose(c.left, left.next)
		}
		if left.prev >= 0 {
			m.propose(left.prev, c.left)
		}
	}
}

func (m *merger) propose(left, right int) {
	l, r := m.symbols[left], m.symbols[right]
	if id, order, ok := m.join(l, r); ok {
		m.push(candidate{order: order, left: left, right: right, leftEnd: l.end, rightEnd: r.end, id: id})
	}
}

func (m *merger) push(c candidate) {
	m.heap = append(m.heap, c)
	h := m.heap
	for i := len(h) - 1; i > 0; {
		parent := (i - 1) / 2
		if !h[i].before(h[parent]) {
			break
		}
		h[i], h[parent] = h[parent], h[i]
		i = parent
	}
}

func (m *merger) pop() candidate {
	h := m.heap
	top, last := h[0], len(h)-1
	h[0] = h[last]
	h = h[:last]
	m.heap = h
	for i := 0; ; {
		child := 2*i + 1
		if child >= last {
			break
		}
		if child+1 < last && h[child+1].before(h[child]) {
			child++
		}
		if !h[child].before(h[i]) {
			break
		}
		h[i], h[child] = h[child], h[i]
		i = child
	}
	return top
}
