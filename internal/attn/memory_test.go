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

// Every operand of an attention is told by its name when it is in the way of what is written.
func TestWrittenMemoryIsApart(t *testing.T) {
	buf := make([]byte, 1<<16)
	d, p := NewDecodeCall(), PrefillCall{Scale: 1, MaxQLen: 2, MaxKVLen: 4}
	d.Query, d.Key, d.Value = Of(E4M3, 2, 4, 16), Of(E4M3, 3, 2, 4, 16), Of(E4M3, 3, 2, 4, 16)
	d.BlockTables, d.SeqLens, d.Sinks, d.CumSeqLensQ = Of(I32, 2, 3), Of(I32, 2), Of(F32, 4), Of(I32, 3)
	d.BMM1ScaleTensor, d.BMM2ScaleTensor, d.Workspace, d.MaxQLen = Of(F32, 1), Of(F32, 1), Of(U8, 64), 2
	d.OutDType, d.OSFScale, d.Out, d.OutScale, d.LSE, d.LSE2 = U8, 1, Of(U8, 2, 4, 8), Of(E4M3, 128, 4), Of(F32, 2, 4), Of(F32, 2, 4)
	masked := d
	masked.CumSeqLensQ, masked.MaxQLen, masked.QLenPerReq, masked.Mask = Tensor{}, 0, 1, Of(U16, 2, 1, 2)
	p.Query, p.Key, p.Value, p.Out = Of(E4M3, 4, 4, 8), Of(E4M3, 8, 2, 8), Of(E4M3, 8, 2, 8), Of(E4M3, 4, 4, 8)
	p.QLens, p.KVLens, p.QScale, p.KScale, p.VScale = Of(I32, 2), Of(I32, 2), Of(F32, 1), Of(F32, 1), Of(F32, 1)
	p.OffsetsQ, p.OffsetsO, p.OffsetsK, p.OffsetsV, p.OffsetsStats = Of(I64, 2), Of(I64, 2), Of(I64, 2), Of(I64, 2), Of(I64, 2)
	p.Workspace, p.LSE, p.LSE2 = Of(U8, 64), Of(F32, 2, 2, 4), Of(F32, 2, 2, 4)
	paged := p
	paged.Key, paged.Value, paged.BlockTables, paged.OffsetsK, paged.OffsetsV = Of(E4M3, 3, 2, 4, 8), Of(E4M3, 3, 2, 4, 8), Of(I32, 2, 3), Tensor{}, Tensor{}
	for name, c := range map[string]struct {
		call    Call
		written map[string]*Tensor
		read    map[string]*Tensor
	}{
		"decode": {&d, map[string]*Tensor{"out": &d.Out, "out scale": &d.OutScale, "lse": &d.LSE, "lse 2": &d.LSE2, "workspace_buffer": &d.Workspace},
			map[string]*Tensor{"query": &d.Query, "kv_cache": &d.Key, "kv_cache ": &d.Value, "block_tables": &d.BlockTables, "seq_lens": &d.SeqLens, "sinks": &d.Sinks,
				"cum_seq_lens_q": &d.CumSeqLensQ, "bmm1_scale": &d.BMM1ScaleTensor, "bmm2_scale": &d.BMM2ScaleTensor, "workspace_buffer": &d.Workspace}},
		"decode with a mask": {&masked, map[string]*Tensor{"out": &masked.Out}, map[string]*Tensor{"mask": &masked.Mask}},
		"prefill": {&p, map[string]*Tensor{"out": &p.Out, "lse": &p.LSE, "lse 2": &p.LSE2, "workspace_buffer": &p.Workspace},
			map[string]*Tensor{"q": &p.Query, "k_cache": &p.Key, "v_cache": &p.Value, "actual_seq_lens_q": &p.QLens, "actual_seq_lens_kv": &p.KVLens, "q_scale": &p.QScale,
				"k_scale": &p.KScale, "v_scale": &p.VScale, "batch_offsets_q": &p.OffsetsQ, "batch_offsets_o": &p.OffsetsO, "batch_offsets_k": &p.OffsetsK,
				"batch_offsets_v": &p.OffsetsV, "batch_offsets_stats": &p.OffsetsStats, "workspace_buffer": &p.Workspace}},
		"paged prefill": {&paged, map[string]*Tensor{"out": &paged.Out}, map[string]*Tensor{"block_tables": &paged.BlockTables}},
	} {
		at := 0
		for _, group := range []map[string]*Tensor{c.read, c.written} {
			for _, x := range group {
				*x = in(*x, buf, at)
				at += 2048
			}
		}
		if err := c.call.Infer(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for what, w := range c.written {
			for arg, r := range c.read {
				if w == r {
					continue
				}
				was := w.Ptr
				w.Ptr = r.Ptr
				err := c.call.Infer()
				if e, ok := errors.AsType[*Error](err); !ok || e.Kind != ErrArgument || e.Arg != strings.Fields(what)[0] || !strings.Contains(e.Want, "apart from "+strings.TrimSpace(arg)) {
					t.Errorf("%s, %s over %s: %v", name, what, arg, err)
				}
				w.Ptr = was
			}
		}
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
