package cpu

import (
	"unsafe"

	"github.com/gaze-ml/gaze/internal/attn"
	"github.com/gaze-ml/gaze/internal/simd"
)

// linearTask is x·Wᵀ + bias, a share of the rows of W (columns of out) an item.
type linearTask struct {
	c     *attn.LinearCall
	items int
	x     []float32 // [T, In] as float32
	ldx   int
	wide  []float32 // memory for x where it has to be converted
}

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
	l.c, l.items = c, b.pieces(n, t*max(in, 1))
	defer func() { l.c, l.x = nil, nil }()
	if c.X.DType == attn.F32 && c.X.Stride[0] >= in {
		l.x, l.ldx = f32(&c.X, 0, (t-1)*c.X.Stride[0]+in), c.X.Stride[0]
	} else {
		l.wide = resize(l.wide, t*in)
		loadRows(l.wide, c.X.DType, c.X.Ptr, c.X.Stride[0], t, in)
		l.x, l.ldx = l.wide, in
	}
	return b.loop(c.Op(), l, l.items, n*t*in, &f.scratch)
}

const (
	weightRows = 64 // of W widened at a time, and tokens that go with them: both stay in a core's second cache
	linearRows = 64
)

func (l *linearTask) run(s *scratch, item int) {
	c := l.c
	t, in, n := c.X.Shape[0], c.X.Shape[1], c.Weight.Shape[0]
	from, to := share(n, l.items, item)
	s.reset()
	bias := s.floats(weightRows)
	w := s.floats(weightRows * in)
	out := s.floats(linearRows * weightRows)
	for ; from < to; from += weightRows {
		m := min(weightRows, to-from)
		rows, ld := w, in
		if c.Weight.DType == attn.F32 {
			rows, ld = f32(&c.Weight, from*c.Weight.Stride[0], (m-1)*c.Weight.Stride[0]+in), c.Weight.Stride[0]
		} else {
			for i := range m {
				loadWeights(w[i*in:][:in], &c.Weight, from+i)
			}
		}
		var plus []float32
		if c.Bias.Valid() {
			plus = row(bias, &c.Bias, from, m)
		}
		for i := 0; i < t; i += linearRows {
			k := min(linearRows, t-i)
			dst, ldd := out, m
			if c.Out.DType == attn.F32 {
				dst, ldd = f32(&c.Out, i*n+from, (k-1)*n+m), n
			}
			simd.DotRows(dst, ldd, l.x[i*l.ldx:], l.ldx, k, rows, ld, m, in)
			for j := range k {
				y := dst[j*ldd:][:m]
				if plus != nil {
					simd.Axpy(1, plus, y)
				}
				if c.Out.DType != attn.F32 {
					store(c.Out.At((i+j)*n+from), c.Out.DType, y)
				}
			}
		}
	}
}

// loadWeights widens row i of a weight matrix.
func loadWeights(dst []float32, w *attn.Tensor, i int) {
	p := unsafe.Add(w.Ptr, i*w.Stride[0]*w.DType.Size())
	load(dst, w.DType, p)
}
