package opstest

import (
	"math"
	"slices"
)

// compare checks the requests' rows, the rows that belong to nobody and the padding of the LSE.
func (c *prefillCase) compare(ses *session) {
	s, p := c.spec, c.problem()
	want := p.solve()
	if s.rule != nil {
		ses.fail(checkRule(p, want, s.rule))
	}
	outRow := make([]int, 0, c.tokens) // row of the problem → row of out
	lseRow := make([]int, 0, c.tokens) // row of the problem → flat index of its first LSE
	owned := make([]bool, c.tokens)
	for b, l := range s.qLens {
		for i := range l {
			outRow = append(outRow, c.oStart[b]+i)
			owned[c.oStart[b]+i] = true
			at := (b*c.call.MaxQLen + i) * s.hq
			if s.stats {
				at = (len(outRow) - 1) * s.hq
			}
			lseRow = append(lseRow, at)
		}
	}
	ses.checkRows(attention{
		p: p, want: want, tol: ses.tolerance(c.out.desc.DType, s.in), out: c.out, at: func(row int) int { return outRow[row] },
		lse: c.lse, lse2: c.lse2, lseAt: func(row, h int) int { return lseRow[row] + h },
	})
	c.checkUnowned(ses, owned)
	for _, o := range []*operand{c.lse, c.lse2} {
		if o == nil {
			continue
		}
		addressed := make([]bool, o.desc.Len())
		for _, at := range lseRow {
			for h := range s.hq {
				addressed[at+h] = true
			}
		}
		for i, x := range o.floats() {
			if !addressed[i] && !math.IsInf(x, -1) {
				ses.failf("%s: padding element %s is %v, want -inf", o.arg, indexOf(o.desc.Shape[:3])(i), x)
				break
			}
		}
	}
}

// checkUnowned asks rows between requests to be untouched, and rows past the last one to be 0.
func (c *prefillCase) checkUnowned(ses *session, owned []bool) {
	width, last := c.spec.hq*c.spec.dvo, slices.Index(reversed(owned), true)
	got, raw, size := c.out.floats(), c.out.bytesAfter(), c.out.desc.DType.Size()
	for row, mine := range owned {
		past := last < 0 || row >= len(owned)-last
		for n := row * width; !mine && n < (row+1)*width; n++ {
			where := indexOf(c.out.desc.Shape[:3])(n)
			if past && got[n] != 0 {
				ses.failf("out: element %s past the last request is %v, want 0", where, got[n])
				return
			}
			if !past && raw[n*size] != poisonByte {
				ses.failf("out: element %s between two requests was written", where)
				return
			}
		}
	}
}

func reversed(s []bool) []bool {
	r := slices.Clone(s)
	slices.Reverse(r)
	return r
}
