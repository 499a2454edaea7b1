package cpu

import (
	"unsafe"

	"github.com/gaze-ml/gaze/internal/attn"
)

// places is where the keys or the values of some consecutive positions of one request and KV head lie: runs of evenly spaced
// rows, one for each page, or a single one in a ragged tensor.
type places struct {
	t         *attn.Tensor
	table     []int32 // pages of the request; nil: ragged
	head      int
	at        int // element offset of the row of the first position
	page      int // in table
	room      int // rows from at to the end of the page
	stride, n int
}

// places finds positions j … j+n-1 of request b in t, the pool or the ragged tensor of K or V. base is where position 0 of a
// ragged request lies.
func (a *attention) places(t *attn.Tensor, b, base, head, j, n int) places {
	if !a.tables.Valid() {
		return places{t: t, at: base + j*t.Stride[0] + head*t.Stride[1], room: n, stride: t.Stride[0], n: n}
	}
	size := t.Shape[2]
	p := places{t: t, head: head, page: j / size, room: size - j%size, stride: t.Stride[2], n: n}
	p.table = slice[int32](a.tables.At(b*a.tables.Stride[0]), (j+n-1)/size+1)
	p.at = p.start(p.page) + j%size*p.stride
	return p
}

func (p *places) start(page int) int { return int(p.table[page])*p.t.Stride[0] + p.head*p.t.Stride[1] }

// rows gives the n rows of d elements as float32, and their distance: where they lie if they are float32 and in one run, else
// widened in buf.
func (p *places) rows(buf []float32, d int) (rows []float32, ld int) {
	if p.t.DType == attn.F32 && p.room >= p.n && p.stride >= d {
		return f32(p.t, p.at, (p.n-1)*p.stride+d), p.stride
	}
	page, at, m := p.page, p.at, min(p.room, p.n)
	for done := 0; ; {
		loadRows(buf[done*d:], p.t.DType, p.t.At(at), p.stride, m, d)
		if done += m; done == p.n {
			return buf[:p.n*d], d
		}
		page++
		at, m = p.start(page), min(p.t.Shape[2], p.n-done)
	}
}

// prefetch asks for the rows' cache lines. Pages lie anywhere, so the hardware cannot foresee the next one.
func (p *places) prefetch(d int) {
	page, at, m := p.page, p.at, min(p.room, p.n)
	bytes := d * p.t.DType.Size()
	for done := 0; ; {
		if p.stride == d {
			prefetch(p.t.At(at), m*bytes)
		} else {
			for i := range m {
				prefetch(p.t.At(at+i*p.stride), bytes)
			}
		}
		if done += m; done == p.n {
			return
		}
		page++
		at, m = p.start(page), min(p.t.Shape[2], p.n-done)
	}
}

const lineBytes = 64

func prefetch(p unsafe.Pointer, n int) {
	lines := (int(uintptr(p)%lineBytes) + n + lineBytes - 1) / lineBytes
	prefetchLines(p, lines)
}
