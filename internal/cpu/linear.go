package cpu

import (
	"github.com/gaze-ml/gaze/internal/attn"
	"github.com/gaze-ml/gaze/internal/quant"
	"github.com/gaze-ml/gaze/internal/simd"
)

// linearTask is x·Wᵀ + bias, a share of the rows of W (columns of out) an item.
type linearTask struct {
	c     *attn.LinearCall
	w     quant.Weights
	items int
	x     []float32 // [T, In] as float32
	ldx   int
	wide  []float32 // memory for x where it has to be widened
}

const (
	linearUnit   = 32  // rows of W that stay together
	linearTokens = 256 // tokens at a time where out is not float32
)

// Linear multiplies by a weight matrix of any float dtype or GGUF block format.
func (b *Backend) Linear(c *attn.LinearCall) error {
	if err := required(c.Op(), operand{"x", &c.X}, operand{"weight", &c.Weight}, operand{"out", &c.Out}); err != nil {
		return err
	}
	if err := present(c.Op(), operand{"bias", &c.Bias}); err != nil {
		return err
	}
	t, in, n := c.X.Shape[0], c.X.Shape[1], c.Weight.Shape[0]
	if t == 0 || n == 0 {
		return nil
	}
	f := b.take()
	defer b.give(f)
	l := &f.linear
	defer func() { l.c, l.x, l.w = nil, nil, quant.Weights{} }()
	l.c = c
	l.w = quant.Weights{DType: c.Weight.DType, Stride: c.Weight.Stride[0] * c.Weight.DType.Size(), In: in}
	l.w.Data = slice[byte](c.Weight.Ptr, extent(&c.Weight)*c.Weight.DType.Size())
	l.items = b.pieces((n+linearUnit-1)/linearUnit, linearUnit*t*in)
	if c.X.DType == attn.F32 && c.X.Stride[0] >= in {
		l.x, l.ldx = f32(&c.X, 0, (t-1)*c.X.Stride[0]+in), c.X.Stride[0]
	} else {
		l.wide = resize(l.wide, t*in)
		loadRows(l.wide, c.X.DType, c.X.Ptr, c.X.Stride[0], t, in)
		l.x, l.ldx = l.wide, in
	}
	return b.loop(c.Op(), l, l.items, n*t*in, &f.scratch)
}

func (l *linearTask) run(s *scratch, item int) {
	c := l.c
	t, n := c.X.Shape[0], c.Weight.Shape[0]
	from, to := share((n+linearUnit-1)/linearUnit, l.items, item)
	from, to = from*linearUnit, min(to*linearUnit, n)
	s.reset()
	own := s.floats(quant.ScratchLen(l.w.In))
	if c.Out.DType != attn.F32 {
		l.narrow(s, own, from, to)
		return
	}
	y := f32(&c.Out, 0, t*n)
	quant.MatMul(y, n, l.x, l.ldx, t, &l.w, from, to, own)
	if c.Bias.Valid() {
		bias := row(s.floats(to-from), &c.Bias, from, to-from)
		for i := range t {
			simd.Axpy(1, bias, y[i*n+from:])
		}
	}
}

// narrow is run for an output of 16 bits: results pass through float32 in pieces.
func (l *linearTask) narrow(s *scratch, own []float32, from, to int) {
	c := l.c
	t, n := c.X.Shape[0], c.Weight.Shape[0]
	y := s.floats(min(t, linearTokens) * linearUnit)
	buf := s.floats(linearUnit)
	w := l.w
	for ; from < to; from += linearUnit {
		m := min(linearUnit, to-from)
		w.Data = l.w.Data[from*w.Stride:]
		var bias []float32
		if c.Bias.Valid() {
			bias = row(buf, &c.Bias, from, m)
		}
		for i := 0; i < t; i += linearTokens {
			k := min(linearTokens, t-i)
			quant.MatMul(y, m, l.x[i*l.ldx:], l.ldx, k, &w, 0, m, own)
			for j := range k {
				simd.Axpy(1, bias, y[j*m:])
				store(c.Out.At((i+j)*n+from), c.Out.DType, y[j*m:][:m])
			}
		}
	}
}
