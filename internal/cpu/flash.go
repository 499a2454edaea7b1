package cpu

import (
	"math"

	"github.com/gaze-ml/gaze/internal/simd"
)

// flash is the running softmax of one tile and KV head. Row i·G+g is query i of the tile, head g of the group.
type flash struct {
	rows, dqk, dvo int
	factor         float32   // of scores
	block          int       // keys between two looks at the maximum
	q              []float32 // [rows, dqk]
	o              []float32 // [rows, dvo] Σ exp((s-m)·factor)·v so far
	m, l           []float32 // [rows] largest s, Σ exp((s-m)·factor)
	s              []float32 // [rows, block] s, then exp((s-m)·factor)
	kv             []float32 // [block, dqk or dvo] K or V as float32

	end     int // of the keys
	settled bool
	oSum    []float32 // what settle took from o and l
	lSum    []float32
}

// blockKeys makes a block of K or V in float32 fit in a core's first cache beside the rest.
func blockKeys(d int) int { return min(max(8192/d/16*16, 16), 128) }

func (f *flash) init(s *scratch, a *attention, t *tile) {
	f.rows, f.dqk, f.dvo, f.factor = t.tokens*a.group, a.dqk, a.dvo, a.factor
	f.block = blockKeys(max(a.dqk, a.dvo))
	f.q, f.o = s.floats(f.rows*f.dqk), s.floats(f.rows*f.dvo)
	f.m, f.l = s.floats(f.rows), s.floats(f.rows)
	f.s = s.floats(f.rows * f.block)
	f.kv = s.floats(f.block * max(f.dqk, f.dvo))
	f.settled = false
	clear(f.o)
	clear(f.l)
	for i := range f.m {
		f.m[i] = float32(math.Inf(-1))
	}
}

func (f *flash) loadQueries(a *attention, r *request, t *tile, head int) {
	q := &a.query
	for i := range t.tokens {
		at := r.q + (t.first+i)*q.Stride[0] + head*a.group*q.Stride[1]
		loadRows(f.q[i*a.group*f.dqk:], q.DType, q.At(at), q.Stride[1], a.group, f.dqk)
	}
}

// walk takes in the keys from ≤ j < to.
func (f *flash) walk(s *scratch, a *attention, r *request, t *tile, head, from, to int) {
	f.end = to
	next := from + settleLen
	for j := from; j < to; j += f.block {
		if j >= next {
			f.settle(s)
			next += settleLen
		}
		f.step(a, r, t, head, j, min(f.block, to-j))
	}
	if f.settled {
		f.settle(s)
		f.o, f.l = f.oSum, f.lSum
	}
}

// settle moves the sums so far aside, so that none has more terms than some hundreds and float32 stays exact enough over a
// hundred thousand keys. Both parts share m.
func (f *flash) settle(s *scratch) {
	if !f.settled {
		f.settled = true
		f.oSum, f.lSum = s.floats(len(f.o)), s.floats(len(f.l))
		copy(f.oSum, f.o)
		copy(f.lSum, f.l)
	} else {
		simd.Axpy(1, f.o, f.oSum)
		simd.Axpy(1, f.l, f.lSum)
	}
	clear(f.o)
	clear(f.l)
}

// step takes in n keys from j on: scores, weights, P·V. The memory is asked for V before K is used and for the next K before V is.
func (f *flash) step(a *attention, r *request, t *tile, head, j, n int) {
	keys, values := a.places(&a.key, t.request, r.k, head, j, n), a.places(&a.value, t.request, r.v, head, j, n)
	values.prefetch(f.dvo)
	k, ld := keys.rows(f.kv, f.dqk)
	simd.DotRows(f.s, f.block, f.q, f.dqk, f.rows, k, ld, n, f.dqk)
	whole := f.weigh(a, r, t, j, n)
	if next := min(f.block, f.end-j-n); next > 0 {
		ahead := a.places(&a.key, t.request, r.k, head, j+n, next)
		ahead.prefetch(f.dqk)
	}
	v, ld := values.rows(f.kv, f.dvo)
	if whole || finite(v, ld, n, f.dvo) {
		simd.AxpyRows(f.o, f.dvo, f.rows, f.s, f.block, v, ld, n, f.dvo)
	} else {
		f.addVisible(a, r, t, v, ld, j, n)
	}
}

// weigh turns the scores of n keys from j on into weights, 0 where a row doesn't see a key. It tells whether all see all.
func (f *flash) weigh(a *attention, r *request, t *tile, j, n int) (whole bool) {
	drafts := n // the first of the keys that the mask rules
	if a.masked() {
		drafts = min(max(r.keys-r.queries-j, 0), n)
	}
	whole = drafts == n
	for i := range t.tokens {
		from, to := a.sees(r, t.first+i)
		from, to = min(max(from-j, 0), n), min(max(to-j, 0), n)
		whole = whole && from == 0 && to == n
		for g := range a.group {
			row := i*a.group + g
			p := f.s[row*f.block:][:n]
			if from >= to {
				clear(p)
				continue
			}
			clear(p[:from])
			clear(p[to:])
			if a.turn != 1 {
				simd.Scale(a.turn, p[from:to])
			}
			for c := max(drafts, from); c < to; c++ {
				if !a.allowed(t.request, r, t.first+i, j+c) {
					p[c] = float32(math.Inf(-1))
				}
			}
			f.softmax(row, p[from:to])
		}
	}
	return whole
}

// addVisible is P·V for values that hold NaN or Inf: a weight of 0 does not undo them, so each row may only touch what it sees.
func (f *flash) addVisible(a *attention, r *request, t *tile, v []float32, ld, j, n int) {
	for i := range t.tokens {
		from, to := a.sees(r, t.first+i)
		at := i * a.group
		for k := max(from, j); k < min(to, j+n); k++ {
			if !a.masked() || a.allowed(t.request, r, t.first+i, k) {
				simd.AxpyRows(f.o[at*f.dvo:], f.dvo, a.group, f.s[at*f.block+k-j:], f.block, v[(k-j)*ld:], ld, 1, f.dvo)
			}
		}
	}
}

// softmax turns a row's scores s into weights and brings its sums to the new maximum.
func (f *flash) softmax(row int, s []float32) {
	old := f.m[row]
	m := max(old, simd.Max(s))
	if math.IsInf(float64(m), -1) { // no key so far
		clear(s)
		return
	}
	if m != old {
		f.m[row] = m
		if !math.IsInf(float64(old), -1) {
			w := f.shrink(old, m)
			f.l[row] *= w
			simd.Scale(w, f.o[row*f.dvo:][:f.dvo])
			if f.settled {
				f.lSum[row] *= w
				simd.Scale(w, f.oSum[row*f.dvo:][:f.dvo])
			}
		}
	}
	off := m * f.factor
	if far(off) {
		for i, x := range s {
			s[i] = x - m
		}
		off = 0
	}
	simd.Scale(f.factor, s)
	f.l[row] += simd.ExpSumInPlace(s, off)
}

// far tells whether a product of a score and the factor is rounded by so much that exponents are taken from differences of scores instead.
func far(product float32) bool { return !(product >= -64 && product <= 64) }

// shrink is what sums with the maximum old are multiplied with when it becomes m.
func (f *flash) shrink(old, m float32) float32 {
	if far(m * f.factor) {
		return exp((old - m) * f.factor)
	}
	return exp(old*f.factor - m*f.factor)
}

// finite tells whether n rows hold neither NaN nor Inf; huge values may count as such.
func finite(v []float32, ld, n, d int) bool {
	var sum float32
	if ld == d {
		sum = simd.Dot(v[:n*d], v)
	} else {
		for i := range n {
			sum += simd.Dot(v[i*ld:][:d], v[i*ld:])
		}
	}
	return !math.IsNaN(float64(sum)) && !math.IsInf(float64(sum), 0)
}
