package attn

import (
	"errors"
	"math"
	"strings"
	"testing"
	"unsafe"
)

// in gives t memory at a byte offset of buf.
func in(t Tensor, buf []byte, offset int) Tensor {
	t.Ptr = unsafe.Pointer(&buf[offset])
	return t
}

func TestOutputsAreApart(t *testing.T) {
	buf := make([]byte, 1<<16)
	decode := NewDecodeCall()
	decode.Query = in(Of(F32, 2, 4, 8), buf, 0)
	decode.Key = in(Of(F32, 3, 2, 4, 8), buf, 4096)
	decode.Value = in(Of(F32, 3, 2, 4, 8), buf, 8192)
	decode.BlockTables, decode.SeqLens = in(Of(I32, 2, 3), buf, 12288), in(Of(I32, 2), buf, 12544)
	decode.LSE = in(Of(F32, 2, 4), buf, 13056)
	norm := RMSNormCall{X: in(Of(F32, 2, 8), buf, 0), Residual: in(Of(F32, 2, 8), buf, 256), Weight: in(Of(F32, 8), buf, 512),
		Eps: 1e-5, Sum: in(Of(F32, 2, 8), buf, 1024)}
	rope := RoPECall{X: in(Of(F32, 2, 1, 8), buf, 0), Positions: in(Of(I32, 2), buf, 256), RoPEConfig: RoPEConfig{Base: 1e4}}
	linear := LinearCall{X: in(Of(F32, 2, 8), buf, 0), Weight: in(Of(F32, 8, 8), buf, 256)}

	for _, c := range []struct {
		name   string
		offset int
		with   string // the operand in the way; "": fine
	}{
		{"decode apart", 16384, ""},
		{"decode out is query", 0, "query"},
		{"decode out in V", 8192 + 764, "kv_cache"},
		{"decode out behind V", 8192 + 768, ""},
		{"decode out before V", 8192 - 256, ""},
		{"decode out over seq_lens", 12544 - 4, "seq_lens"},
		{"decode out over lse", 13056 + 28, "out"},
		{"norm apart", 2048, ""},
		{"norm out is x", 0, ""},
		{"norm out is residual", 256, ""},
		{"norm out crosses x", 4, "x"},
		{"norm out is sum", 1024, "sum"},
		{"norm out over weight", 512 - 60, "weight"},
		{"rope out is x", 0, ""},
		{"rope out crosses x", 60, "x"},
		{"rope out over positions", 252, "positions"},
		{"linear out is x", 0, "x"},
		{"linear out in weight", 300, "weight"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var err error
			switch {
			case strings.HasPrefix(c.name, "decode"):
				d := decode
				d.Out = in(Of(F32, 2, 4, 8), buf, c.offset)
				err = d.Infer()
			case strings.HasPrefix(c.name, "norm"):
				n := norm
				n.Out = in(Of(F32, 2, 8), buf, c.offset)
				err = n.Infer()
			case strings.HasPrefix(c.name, "rope"):
				r := rope
				r.Out = in(Of(F32, 2, 1, 8), buf, c.offset)
				err = r.Infer()
			default:
				l := linear
				l.Out = in(Of(F32, 2, 8), buf, c.offset)
				err = l.Infer()
			}
			if c.with == "" {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			var e *Error
			if !errors.As(err, &e) || e.Kind != ErrArgument || !strings.Contains(e.Want, "apart from "+c.with) {
				t.Fatalf("got %v, want a refusal of memory shared with %s", err, c.with)
			}
		})
	}
}

func TestShapesThatNoMemoryHolds(t *testing.T) {
	for _, shape := range [][]int{{1 << 40, 1 << 30, 8}, {math.MaxInt, 1, 8}, {1 << 62, 2, 8}} {
		c := NewDecodeCall()
		c.Query = Of(F32, shape...)
		c.Key, c.Value = Of(F32, 3, 1, 4, 8), Of(F32, 3, 1, 4, 8)
		c.BlockTables, c.SeqLens = Of(I32, 2, 3), Of(I32, 2)
		if err := c.Infer(); !errors.Is(err, ErrShape) {
			t.Errorf("query %v: got %v, want ErrShape", shape, err)
		}
	}
}
