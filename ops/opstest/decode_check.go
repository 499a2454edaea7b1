package opstest

import (
	"fmt"
	"math"

	"github.com/gaze-ml/gaze/internal/attn"
)

// attention compares one attention output, [rows, hq, dvo] floats, with the solution. at maps a row of the problem to a row of
// the output.
type attention struct {
	p         *problem
	want      *solution
	tol       tolerance
	out       *operand
	at        func(row int) int
	lse, lse2 *operand
	lseAt     func(row, h int) int // flat index of a row's LSE
}

func (s *session) tolerance(dt, q attn.DType) tolerance {
	return tolerance{class: s.target.Accuracy, dt: dt, e4m3Q: q == attn.E4M3}
}

// checkRows compares the solved rows and, where only some were solved, asks the others to be finite.
func (s *session) checkRows(a attention) {
	got, shape := a.out.floats(), a.out.desc.Shape[:3]
	d := diff{name: "out"}
	each(a.p, func(row, h int) {
		want := a.want.row(row, h)
		base := (a.at(row)*shape[1] + h) * shape[2]
		if a.p.only != nil && !a.p.only(row, h) {
			for x := range want {
				if g := got[base+x]; math.IsNaN(g) || math.IsInf(g, 0) {
					s.failf("out: element %s is %v", indexOf(shape)(base+x), g)
					return
				}
			}
			return
		}
		rowMax := largest(want)
		t := a.tol
		t.scale = a.want.maxV[row*a.p.hq+h]
		for x, w := range want {
			d.add(base+x, got[base+x], w, t.bound(w, rowMax), t.dt)
		}
	})
	s.fail(d.report(indexOf(shape), a.tol.dt))
	s.nmse = math.Max(s.nmse, d.nmse())
	s.checkLSE(a, a.lse, 1)
	s.checkLSE(a, a.lse2, math.Log2E)
}

func (s *session) checkLSE(a attention, o *operand, factor float64) {
	if o == nil {
		return
	}
	got := o.floats()
	d := diff{name: o.arg}
	each(a.p, func(row, h int) {
		if a.p.only == nil || a.p.only(row, h) {
			w := a.want.lse[row*a.p.hq+h]
			n := a.lseAt(row, h)
			d.add(n, got[n], w*factor, a.tol.lseBound(w*factor), attn.F32)
		}
	})
	if d.bad > 0 {
		s.fail(d.report(indexOf(o.desc.Shape[:o.desc.Rank]), attn.F32))
	}
}

func each(p *problem, f func(row, h int)) {
	for _, r := range p.reqs {
		for i := range r.l {
			for h := range p.hq {
				f(r.row0+i, h)
			}
		}
	}
}

// checkRule holds a solution against hand-worked values: in the run it guards the oracle.
func checkRule(p *problem, want *solution, rule func(b, i, h int) (out, lse float64)) error {
	for b, r := range p.reqs {
		for i := range r.l {
			for h := range p.hq {
				o, l := rule(b, i, h)
				row := r.row0 + i
				for d, w := range want.row(row, h) {
					if !math.IsNaN(o) && math.Abs(w-o) > 1e-9*(1+math.Abs(o)) {
						return fmt.Errorf("oracle: request %d row %d head %d dim %d is %v, by hand %v", b, i, h, d, w, o)
					}
				}
				if w := want.lse[row*p.hq+h]; !math.IsNaN(l) && w != l && !(math.Abs(w-l) <= 1e-9*(1+math.Abs(l))) {
					return fmt.Errorf("oracle: LSE of request %d row %d head %d is %v, by hand %v", b, i, h, w, l)
				}
			}
		}
	}
	return nil
}

func (c *decodeCase) checkFloats(s *session) {
	p := c.problem()
	want := p.solve()
	if c.spec.rule != nil {
		s.fail(checkRule(p, want, c.spec.rule))
	}
	s.checkRows(attention{
		p: p, want: want, tol: s.tolerance(c.out.desc.DType, c.spec.q), out: c.out, at: func(row int) int { return row },
		lse: c.lse, lse2: c.lse2, lseAt: func(row, h int) int { return row*c.spec.hq + h },
	})
}

// swizzled is the place of the scale of row m, block k in a tensor of so many columns: 128×4 tiles of 512 bytes.
func swizzled(m, k, columns int) int {
	return (m/128*(columns/4)+k/4)*512 + m%32*16 + m%128/32*4 + k%4
}

// encodeNVFP4 quantises one block of 16: its scale and its codes.
//
//	sf = e4m3(sfScale·max|x|/6), code = e2m1(clamp(x·sfScale/sf, ±6)), 0 where sf is 0
func encodeNVFP4(x []float64, sfScale float64) (sf byte, codes []byte) {
	top := 0.0
	for _, v := range x {
		top = math.Max(top, math.Abs(v))
	}
	sf = byte(formats[attn.E4M3].encode(sfScale * top / 6))
	codes = make([]byte, len(x))
	if s := formats[attn.E4M3].decode(uint32(sf)); s != 0 {
		for i, v := range x {
			codes[i] = byte(e2m1.encode(v * sfScale / s))
		}
	}
	return sf, codes
}

// checkNVFP4 compares codes and scales, and asks the scale tensor's other rows to be untouched.
func (c *decodeCase) checkNVFP4(s *session) {
	p := c.problem()
	want := p.solve()
	columns := c.scales.desc.Shape[1]
	gotCodes, gotScales := c.out.bytesAfter(), c.scales.bytesAfter()
	mine := make([]bool, len(gotScales))
	for row := range c.out.desc.Shape[0] {
		for k := range columns {
			mine[swizzled(c.spec.startRow+row, k, columns)] = true
		}
	}
	codes, scales := diff{name: "out codes"}, diff{name: "out scale"}
	exact := s.target.Accuracy == Exact
	perHead := c.spec.d / 16
	each(p, func(row, h int) {
		x := want.row(row, h)
		for k := range perHead {
			sf, blk := encodeNVFP4(x[16*k:16*k+16], c.spec.osfScale)
			at := swizzled(c.spec.startRow+row, h*perHead+k, columns)
			w, g := formats[attn.E4M3].decode(uint32(sf)), formats[attn.E4M3].decode(uint32(gotScales[at]))
			bound := 0.2 + 0.2*math.Abs(w)
			if exact {
				bound = formats[attn.E4M3].step(w)
			}
			scales.add(at, g, w, bound, attn.F32)
			for i, code := range blk {
				n := (row*c.spec.hq+h)*c.spec.d + 16*k + i
				b := gotCodes[n/2] >> (4 * (n % 2)) & 15
				w, g := e2m1.decode(uint32(code)), e2m1.decode(uint32(b))
				bound := 1 + 0.3*math.Abs(w)
				if exact {
					bound = e2m1.step(w)
				}
				codes.add(n, g, w, bound, attn.F32)
			}
		}
	})
	s.fail(onlyBad(&codes))
	s.fail(onlyBad(&scales))
	if rmse := math.Sqrt(codes.num / math.Max(1, float64(codes.compared))); rmse >= 0.3 {
		s.failf("out codes: RMSE %.3g, want below 0.3", rmse)
	}
	for i, b := range gotScales {
		if !mine[i] && b != poisonByte {
			s.failf("out scale: byte %d outside rows %d to %d was written", i, c.spec.startRow, c.spec.startRow+c.out.desc.Shape[0])
			break
		}
	}
	s.checkLSE(attention{p: p, want: want, tol: s.tolerance(attn.F32, c.spec.q), lseAt: func(row, h int) int { return row*c.spec.hq + h }}, c.lse, 1)
}

func onlyBad(d *diff) error {
	if d.bad == 0 {
		return nil
	}
	return d.report(func(i int) string { return fmt.Sprint(i) }, attn.F32)
}
