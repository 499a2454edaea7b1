package simd

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

const (
	seed = 1
	eps  = 1.0 / (1 << 24) // half a unit in the last place
)

// eachISA runs f under every instruction set of this machine, with the same random numbers.
func eachISA(t *testing.T, f func(t *testing.T, r *rand.Rand)) {
	for _, isa := range Available() {
		t.Run("isa="+isa.String(), func(t *testing.T) {
			defer Use(isa)()
			t.Logf("seed %d", seed)
			f(t, rand.New(rand.NewPCG(seed, 0)))
		})
	}
}

// A guarded matrix [rows, cols] of leading dimension ld lies in a larger array, from any 4-byte boundary on; what does not belong
// to it is NaN. So reading there shows in the results, and writing there shows in intact.
type guarded struct {
	array         []float32
	v             []float32 // from the first element to the last
	off, cols, ld int
}

const guardBits = 0x7fc0dead

func matrix(r *rand.Rand, rows, cols, ld int) guarded {
	n := max(0, (rows-1)*ld+cols)
	g := guarded{array: make([]float32, n+96), off: 32 + r.IntN(16), cols: cols, ld: ld}
	g.v = g.array[g.off : g.off+n : g.off+n]
	for i := range g.array {
		g.array[i] = math.Float32frombits(guardBits)
		if g.has(i) {
			g.array[i] = float32(r.NormFloat64())
		}
	}
	return g
}

func vector(r *rand.Rand, n int) guarded { return matrix(r, 1, n, n+1) }

func (g guarded) has(i int) bool {
	i -= g.off
	return i >= 0 && i < len(g.v) && i%g.ld < g.cols
}

func (g guarded) at(row, col int) float64 { return float64(g.v[row*g.ld+col]) }

func (g guarded) intact(t *testing.T) {
	t.Helper()
	for i, x := range g.array {
		if !g.has(i) && math.Float32bits(x) != guardBits {
			t.Fatalf("element %d of a matrix with %d of %d columns: guard overwritten with %v", i-g.off, g.cols, g.ld, x)
		}
	}
}

// near checks got against the exact want; size is Σ|terms| and n their number: each of at most n roundings is relative to at most size.
func near(t *testing.T, what string, got float32, want, size float64, n int) {
	t.Helper()
	if d := math.Abs(float64(got) - want); !(d <= float64(n+2)*eps*size) {
		t.Fatalf("%s: got %v, want %v: off by %.3g of Σ|terms| = %v", what, got, want, d/size, size)
	}
}

// lengths covers every tail of every vector width and unrolling.
func lengths(yield func(int) bool) {
	for n := range 150 {
		if !yield(n) {
			return
		}
	}
	yield(1000)
}

func TestDot(t *testing.T) {
	eachISA(t, func(t *testing.T, r *rand.Rand) {
		for n := range lengths {
			a, b := vector(r, n), vector(r, n)
			var want, size float64
			for i := range n {
				want += a.at(0, i) * b.at(0, i)
				size += math.Abs(a.at(0, i) * b.at(0, i))
			}
			near(t, "Dot", Dot(a.v, b.v), want, size, n)
		}
	})
}

func TestAxpyAndScale(t *testing.T) {
	eachISA(t, func(t *testing.T, r *rand.Rand) {
		for n := range lengths {
			x, y, alpha := vector(r, n), vector(r, n), float32(r.NormFloat64())
			before := slices.Clone(y.v)
			Axpy(alpha, x.v, y.v)
			for i, y0 := range before {
				term := float64(alpha) * x.at(0, i)
				near(t, "Axpy", y.v[i], float64(y0)+term, math.Abs(float64(y0))+math.Abs(term), 2)
			}
			y.intact(t)
			before = slices.Clone(x.v)
			Scale(alpha, x.v)
			for i, x0 := range before {
				if x.v[i] != alpha*x0 {
					t.Fatalf("Scale: n=%d: element %d is %v, want %v", n, i, x.v[i], alpha*x0)
				}
			}
			x.intact(t)
		}
	})
}

func TestMax(t *testing.T) {
	inf := float32(math.Inf(1))
	eachISA(t, func(t *testing.T, r *rand.Rand) {
		if got := Max(nil); got != -inf {
			t.Fatalf("Max of nothing is %v", got)
		}
		for n := range lengths {
			for i := range n { // the maximum, and a NaN, at every place
				x := vector(r, n)
				x.v[i] = 100
				if got := Max(x.v); got != 100 {
					t.Fatalf("n=%d: maximum 100 at %d: got %v", n, i, got)
				}
				for j := range x.v {
					x.v[j] = -200
				}
				x.v[i] = -100
				if got := Max(x.v); got != -100 {
					t.Fatalf("n=%d: maximum -100 at %d: got %v", n, i, got)
				}
				x.v[i] = float32(math.NaN())
				if got := Max(x.v); got == got {
					t.Fatalf("n=%d: NaN at %d: got %v", n, i, got)
				}
				x.v[i] = inf
				if got := Max(x.v); got != inf {
					t.Fatalf("n=%d: Inf at %d: got %v", n, i, got)
				}
				for j := range x.v {
					x.v[j] = -inf
				}
				if got := Max(x.v); got != -inf {
					t.Fatalf("n=%d: all -Inf: got %v", n, got)
				}
			}
		}
	})
}

// checkExp holds an approximation of exp(x) to its promise: 2e-7 relative, or one unit of the subnormal range.
func checkExp(t *testing.T, x, got float32) {
	t.Helper()
	want := math.Exp(float64(x))
	switch {
	case want > math.MaxFloat32*(1+eps):
		if !math.IsInf(float64(got), 1) {
			t.Fatalf("exp(%v) = %v, want +Inf", x, got)
		}
	case x != x:
		if got == got {
			t.Fatalf("exp(NaN) = %v", got)
		}
	default:
		if d := math.Abs(float64(got) - want); !(d <= 2e-7*want+math.SmallestNonzeroFloat32) {
			t.Fatalf("exp(%v) = %v, want %v: %.3g relative", x, got, want, d/want)
		}
	}
}

func TestExpSumInPlace(t *testing.T) {
	inf := float32(math.Inf(1))
	special := []float32{0, float32(math.Copysign(0, -1)), -inf, inf, float32(math.NaN()), -87.3, -87.4, -88, -103, -103.9, -104, -105,
		-106, -1000, -math.MaxFloat32, 88.7, 88.72, 88.73, 89, 90, 1000, math.MaxFloat32, 1e-20, -1e-20, math.SmallestNonzeroFloat32}
	eachISA(t, func(t *testing.T, r *rand.Rand) {
		for n := range lengths {
			s := vector(r, n)
			m := float32(3 * r.NormFloat64())
			for i := range s.v {
				s.v[i] *= 12
			}
			before := slices.Clone(s.v)
			var want float64
			sum := ExpSumInPlace(s.v, m)
			for i, x := range before {
				checkExp(t, x-m, s.v[i])
				want += float64(s.v[i])
			}
			near(t, "sum", sum, want, want, n)
			s.intact(t)
		}
		for i, x := range special { // in a full vector and in the rest of one
			s := vector(r, 19)
			s.v[i%19], s.v[18] = x, x
			sum := ExpSumInPlace(s.v, 0)
			checkExp(t, x, s.v[i%19])
			checkExp(t, x, s.v[18])
			if x != x && sum == sum {
				t.Fatalf("the sum of a row with a NaN is %v", sum)
			}
			s.intact(t)
		}
		for range 1 << 12 { // the whole range of exponents
			s := vector(r, 40)
			for i := range s.v {
				s.v[i] = float32(-110 + 200*r.Float64())
			}
			before := slices.Clone(s.v)
			ExpSumInPlace(s.v, 0)
			for i, x := range before {
				checkExp(t, x, s.v[i])
			}
		}
		if s := []float32{-inf}; ExpSumInPlace(s, -inf) == 0 {
			t.Fatal("exp(-Inf - -Inf) is not NaN")
		}
	})
}

func TestDotRows(t *testing.T) {
	eachISA(t, func(t *testing.T, r *rand.Rand) {
		check := func(nq, nk, d int) {
			q, k, dst := matrix(r, nq, d, d+r.IntN(3)), matrix(r, nk, d, d+r.IntN(20)), matrix(r, nq, nk, nk+r.IntN(5))
			DotRows(dst.v, dst.ld, q.v, q.ld, nq, k.v, k.ld, nk, d)
			for i := range nq {
				for j := range nk {
					var want, size float64
					for c := range d {
						want += q.at(i, c) * k.at(j, c)
						size += math.Abs(q.at(i, c) * k.at(j, c))
					}
					near(t, "DotRows", dst.v[i*dst.ld+j], want, size, d)
				}
			}
			dst.intact(t)
		}
		for nq := 1; nq <= 17; nq++ {
			for nk := 1; nk <= 13; nk++ {
				check(nq, nk, 1+r.IntN(100))
			}
		}
		for d := 1; d <= 70; d++ {
			check(7, 5, d)
			check(3, 8, d)
		}
		check(13, 40, 576)
		dst := []float32{1, 2, 3}
		DotRows(dst, 2, nil, 0, 2, nil, 0, 1, 0)
		if !slices.Equal(dst, []float32{0, 2, 0}) {
			t.Fatalf("d = 0: %v, want zeros in column 0", dst)
		}
		DotRows(nil, 1, nil, 1, 0, dst, 1, 3, 1)
		DotRows(nil, 1, dst, 1, 3, nil, 1, 0, 1)
	})
}

// A row's result must not depend on what it is computed with: a batch gives each request the bits it gets alone.
func TestRowsDoNotDependOnTheBatch(t *testing.T) {
	eachISA(t, func(t *testing.T, r *rand.Rand) {
		for _, d := range []int{1, 33, 64, 100} {
			const nq, nk = 17, 11
			q, k, v := matrix(r, nq, d, d).v, matrix(r, nk, d, d).v, matrix(r, nk, d, d).v
			all, out := make([]float32, nq*nk), make([]float32, nq*d)
			DotRows(all, nk, q, d, nq, k, d, nk, d)
			AxpyRows(out, d, nq, all, nk, v, d, nk, d)
			for n := 1; n <= nq; n++ {
				for m := 1; m <= nk; m++ {
					part := make([]float32, n*m)
					DotRows(part, m, q[(nq-n)*d:], d, n, k[(nk-m)*d:], d, m, d)
					for i, x := range part {
						if want := all[(nq-n+i/m)*nk+nk-m+i%m]; x != want {
							t.Fatalf("d=%d: element %d of DotRows %d×%d is %v, %v in %d×%d", d, i, n, m, x, want, nq, nk)
						}
					}
					row := make([]float32, n*d)
					AxpyRows(row, d, n, all[(nq-n)*nk:], nk, v, d, m, d)
					AxpyRows(row, d, n, all[(nq-n)*nk+m:], nk, v[m*d:], d, nk-m, d)
					if !slices.Equal(row, out[(nq-n)*d:]) {
						t.Fatalf("d=%d: AxpyRows of %d rows, %d and %d keys at a time, differs from %d rows, %d keys", d, n, m, nk-m, nq, nk)
					}
				}
			}
		}
	})
}

func TestAxpyRows(t *testing.T) {
	eachISA(t, func(t *testing.T, r *rand.Rand) {
		check := func(nq, nk, d int) {
			p, v, o := matrix(r, nq, nk, nk+r.IntN(5)), matrix(r, nk, d, d+r.IntN(20)), matrix(r, nq, d, d+1+r.IntN(3))
			before := slices.Clone(o.v)
			AxpyRows(o.v, o.ld, nq, p.v, p.ld, v.v, v.ld, nk, d)
			for i := range nq {
				for c := range d {
					want := float64(before[i*o.ld+c])
					size := math.Abs(want)
					for j := range nk {
						want += p.at(i, j) * v.at(j, c)
						size += math.Abs(p.at(i, j) * v.at(j, c))
					}
					near(t, "AxpyRows", o.v[i*o.ld+c], want, size, nk+1)
				}
			}
			o.intact(t)
		}
		for nq := 1; nq <= 17; nq++ {
			for nk := 1; nk <= 13; nk++ {
				check(nq, nk, 1+r.IntN(150))
			}
		}
		for d := 1; d <= 140; d++ {
			check(7, 5, d)
			check(3, 8, d)
		}
		AxpyRows(nil, 1, 0, nil, 1, nil, 1, 1, 1)
	})
}

// Slices shorter than the dimensions say must panic before the assembly touches memory.
func TestShortSlicesPanic(t *testing.T) {
	v := make([]float32, 8)
	short := v[:7:7]
	for name, f := range map[string]func(){
		"Dot":         func() { Dot(v, short) },
		"Axpy":        func() { Axpy(1, v, short) },
		"DotRows dst": func() { DotRows(short, 4, v, 4, 2, v, 2, 4, 2) },
		"DotRows q":   func() { DotRows(v, 1, short, 4, 2, v, 4, 1, 4) },
		"DotRows k":   func() { DotRows(v, 2, v, 4, 1, short, 4, 2, 4) },
		"AxpyRows o":  func() { AxpyRows(short, 4, 2, v, 1, v, 4, 1, 4) },
		"AxpyRows p":  func() { AxpyRows(v, 1, 2, short, 4, v, 1, 4, 1) },
		"AxpyRows v":  func() { AxpyRows(v, 4, 1, v, 2, short, 4, 2, 4) },
		"negative":    func() { DotRows(v, 1, v, -4, 2, v, 4, 1, 4) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			f()
		}()
	}
}

func TestNoAllocations(t *testing.T) {
	eachISA(t, func(t *testing.T, r *rand.Rand) {
		a, b, c := vector(r, 400).v, vector(r, 400).v, vector(r, 400).v
		if n := testing.AllocsPerRun(10, func() {
			Dot(a, b)
			Axpy(1, a, b)
			Scale(1, a)
			ExpSumInPlace(a, Max(a))
			DotRows(c, 20, a, 20, 20, b, 20, 20, 20)
			AxpyRows(c, 20, 20, a, 20, b, 20, 20, 20)
		}); n != 0 {
			t.Errorf("%v allocations", n)
		}
	})
}
