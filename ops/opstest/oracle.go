package opstest

import (
	"math"
	"runtime"
	"sync"
)

// problem is attention as the formula sees it, in float64: no pages, no strides, no dtypes.
type problem struct {
	hq, hkv, dqk, dvo int

	c1, c2 float64
	window int       // window_left
	causal bool      // key j visible to a row at position p only if j ≤ p
	sinks  []float64 // per query head, nil: none
	reqs   []request
	only   func(row, h int) bool // which rows to solve, nil: all
}

// request is one request's rows and keys.
type request struct {
	row0, l, s int
	q          func(i, h int, dst []float64)
	k, v       func(j, h int, dst []float64)
	mask       func(i, c int) bool // draft row i sees draft token c; nil: causal decides
}

// visible is the mask rule of the contract: the padding, then causality or the draft mask, then the window.
func (p *problem) visible(r *request, i, j int) bool {
	pos := r.s - r.l + i
	if j < 0 || j >= r.s {
		return false
	}
	switch {
	case r.mask != nil:
		if c := j - (r.s - r.l); c >= 0 && !r.mask(i, c) {
			return false
		}
	case p.causal && j > pos:
		return false
	}
	return p.window < 0 || pos-j <= p.window
}

// gain is how much c2 may enlarge the values' errors.
func (p *problem) gain() float64 { return math.Max(1, math.Abs(finite(p.c2))) }

// work is the number of multiplications in the scores.
func (p *problem) work() int {
	n := 0
	for _, r := range p.reqs {
		n += r.l * r.s * p.hq * p.dqk
	}
	return n
}

// solution is a problem's answer, rows of all requests in order.
type solution struct {
	hq, dvo int
	out     []float64 // [rows, hq, dvo]
	lse     []float64 // [rows, hq], natural log
	maxV    []float64 // [rows, hq] max|c2'·V| over the row's visible keys, c2' = max(1, |c2|)
}

func (p *problem) newSolution() *solution {
	rows := 0
	for _, r := range p.reqs {
		rows = max(rows, r.row0+r.l)
	}
	return &solution{hq: p.hq, dvo: p.dvo, out: make([]float64, rows*p.hq*p.dvo), lse: make([]float64, rows*p.hq), maxV: make([]float64, rows*p.hq)}
}

func (s *solution) row(row, h int) []float64 {
	n := (row*s.hq + h) * s.dvo
	return s.out[n : n+s.dvo]
}

// solve is the naive oracle: for every row the scores of its visible keys, their maximum, the sum, the weighted values.
//
//	s_j = c1·q·k_j,  o = c2·Σ exp(s_j-m)·v_j / l,  l = Σ exp(s_j-m) + exp(sink-m),  lse = m + ln l
func (p *problem) solve() *solution {
	out := p.newSolution()
	parallel(len(p.reqs)*p.hkv, func(n int) {
		p.solveHead(&p.reqs[n/p.hkv], n%p.hkv, out)
	})
	return out
}

func (p *problem) solveHead(r *request, hkv int, out *solution) {
	var k, v, top []float64 // this head's keys and values, read when a row first needs them, and the largest |v| of each
	q, scores := make([]float64, p.dqk), make([]float64, r.s)
	for i := range r.l {
		for h := range p.hq {
			if h/(p.hq/p.hkv) != hkv || p.only != nil && !p.only(r.row0+i, h) {
				continue
			}
			if k == nil {
				k, v, top = make([]float64, r.s*p.dqk), make([]float64, r.s*p.dvo), make([]float64, r.s)
				for j := range r.s {
					r.k(j, hkv, k[j*p.dqk:(j+1)*p.dqk])
					r.v(j, hkv, v[j*p.dvo:(j+1)*p.dvo])
					top[j] = largest(v[j*p.dvo : (j+1)*p.dvo])
				}
			}
			r.q(i, h, q)
			m := math.Inf(-1)
			for j := range r.s {
				scores[j] = math.Inf(-1)
				if p.visible(r, i, j) {
					scores[j] = p.c1 * dot(q, k[j*p.dqk:(j+1)*p.dqk])
					m = math.Max(m, scores[j])
				}
			}
			o, l, keys := out.row(r.row0+i, h), 0.0, 0
			if p.sinks != nil {
				m = math.Max(m, p.sinks[h])
			}
			maxV := 0.0
			for j := range r.s {
				if !p.visible(r, i, j) {
					continue
				}
				keys++
				w := math.Exp(scores[j] - m)
				l += w
				for d, x := range v[j*p.dvo : (j+1)*p.dvo] {
					o[d] += w * x
				}
				maxV = math.Max(maxV, top[j])
			}
			if p.sinks != nil && !math.IsInf(p.sinks[h], -1) {
				l += math.Exp(p.sinks[h] - m)
			}
			n := (r.row0+i)*p.hq + h
			out.maxV[n] = maxV * p.gain()
			if out.lse[n] = m + math.Log(l); keys == 0 {
				if math.IsInf(m, 0) || math.IsNaN(m) { // only a finite sink counts
					out.lse[n] = math.Inf(-1)
				}
				continue // zeros
			}
			for d := range o {
				o[d] *= p.c2 / l
			}
		}
	}
}

// largest is the largest finite |x|.
func largest(x []float64) float64 {
	top := 0.0
	for _, a := range x {
		if a = math.Abs(a); a > top && !math.IsInf(a, 0) {
			top = a
		}
	}
	return top
}

func dot(a, b []float64) float64 {
	var s0, s1, s2, s3 float64
	b = b[:len(a)]
	i := 0
	for ; i+4 <= len(a); i += 4 {
		s0 += a[i] * b[i]
		s1 += a[i+1] * b[i+1]
		s2 += a[i+2] * b[i+2]
		s3 += a[i+3] * b[i+3]
	}
	for ; i < len(a); i++ {
		s0 += a[i] * b[i]
	}
	return (s0 + s1) + (s2 + s3)
}

// parallel calls f(0) … f(n-1), spread over the processors. A panic in one of them is the caller's.
func parallel(n int, f func(int)) {
	workers := min(n, runtime.GOMAXPROCS(0))
	var wg sync.WaitGroup
	panics := make(chan any, workers)
	for w := range workers {
		wg.Go(func() {
			defer func() {
				if p := recover(); p != nil {
					panics <- p
				}
			}()
			for i := w; i < n; i += workers {
				f(i)
			}
		})
	}
	wg.Wait()
	select {
	case p := <-panics:
		panic(p)
	default:
	}
}
