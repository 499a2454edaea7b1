package cpu

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/gaze-ml/gaze/internal/attn"
)

// badCall is a call with one wrong value. Its error names arg and holds every word of want; nothing is written before it.
type badCall struct {
	name string
	call attn.Call
	arg  string
	want []string
}

func (bad badCall) run(t *testing.T, b *Backend, outputs ...attn.Tensor) {
	t.Run(bad.name, func(t *testing.T) {
		var before [][]byte
		for _, o := range outputs {
			before = append(before, bytes.Clone(slice[byte](o.Ptr, o.Bytes())))
		}
		infer(t, bad.call)
		err := bad.call.Run(b)
		var e *attn.Error
		if !errors.As(err, &e) || !errors.Is(err, attn.ErrArgument) || e.Arg != bad.arg || e.Op != bad.call.Op() {
			t.Fatalf("got %v, want ErrArgument of %s: %s", err, bad.call.Op(), bad.arg)
		}
		for _, w := range bad.want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%q does not say %q", err, w)
			}
		}
		for i, o := range outputs {
			if !bytes.Equal(before[i], slice[byte](o.Ptr, o.Bytes())) {
				t.Errorf("output %d was written before the error", i)
			}
		}
	})
}

func TestDecodeChecksValues(t *testing.T) {
	b := backend(t, 2)
	out := fresh(attn.F32, 3, 4, 8)
	lse := fresh(attn.F32, 3, 4)
	store(out.Ptr, attn.F32, filled(out.Len(), 5))
	store(lse.Ptr, attn.F32, filled(lse.Len(), 5))
	good := func() *attn.DecodeCall {
		c := attn.NewDecodeCall()
		c.Query, c.Key, c.Value = fresh(attn.F32, 3, 4, 8), fresh(attn.F32, 6, 2, 16, 8), fresh(attn.F32, 6, 2, 16, 8)
		c.BlockTables, c.SeqLens = reshape(ints(0, 1, 2, 3, 4, 5), 3, 2), ints(20, 5, 32)
		c.Out, c.LSE = out, lse
		return &c
	}
	edit := func(name, arg string, f func(c *attn.DecodeCall), want ...string) {
		c := good()
		f(c)
		badCall{name, c, arg, want}.run(t, b, out, lse)
	}
	edit("negative length", "seq_lens", func(c *attn.DecodeCall) { c.SeqLens = ints(20, -1, 32) }, "request 1", "-1")
	edit("length beyond the table", "seq_lens", func(c *attn.DecodeCall) { c.SeqLens = ints(20, 5, 33) }, "request 2", "33", "32")
	edit("length beyond max_seq_len", "seq_lens", func(c *attn.DecodeCall) { c.MaxSeqLen = 31 }, "request 2", "max_seq_len", "31")
	edit("huge uint32 length", "seq_lens", func(c *attn.DecodeCall) {
		c.SeqLens = fresh(attn.U32, 3)
		slice[uint32](c.SeqLens.Ptr, 3)[0] = 1<<32 - 1
	}, "request 0", "4294967295")
	edit("page beyond the pool", "block_tables", func(c *attn.DecodeCall) { c.BlockTables = reshape(ints(0, 1, 2, 3, 4, 6), 3, 2) }, "request 2", "page 6", "column 1")
	edit("negative page", "block_tables", func(c *attn.DecodeCall) { c.BlockTables = reshape(ints(0, -1, 2, 3, 4, 5), 3, 2) }, "request 0", "page -1")
	cum := func(v ...int32) func(c *attn.DecodeCall) {
		return func(c *attn.DecodeCall) { c.CumSeqLensQ, c.MaxQLen = ints(v...), 2 }
	}
	edit("prefix sums not from 0", "cum_seq_lens_q", cum(1, 1, 2, 3), "1")
	edit("falling prefix sums", "cum_seq_lens_q", cum(0, 2, 1, 3), "request 1")
	edit("prefix sums that end early", "cum_seq_lens_q", cum(0, 1, 2, 2), "3")
	edit("query length beyond max_q_len", "max_q_len", cum(0, 0, 0, 3), "request 2", "3")
	edit("no memory", "out", func(c *attn.DecodeCall) { c.Out.Ptr = nil }, "nil")

	for name, f := range map[string]func(c *attn.DecodeCall){
		"entry behind the length": func(c *attn.DecodeCall) { c.BlockTables = reshape(ints(0, 1, 2, 1<<30, 4, 5), 3, 2) },
		"entry before the window": func(c *attn.DecodeCall) {
			c.BlockTables, c.WindowLeft = reshape(ints(-1, 1, 2, 3, -1, 5), 3, 2), 3
		},
		"table of an empty request": func(c *attn.DecodeCall) {
			c.BlockTables, c.SeqLens = reshape(ints(0, 1, -1, -1, 4, 5), 3, 2), ints(20, 0, 32)
		},
		"workspace": func(c *attn.DecodeCall) { c.Workspace = fresh(attn.U8, 3) },
	} {
		c := good()
		f(c)
		infer(t, c)
		if err := c.Run(b); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestPrefillChecksValues(t *testing.T) {
	b := backend(t, 2)
	out, lse := fresh(attn.F32, 5, 4, 8), fresh(attn.F32, 2, 3, 4)
	store(out.Ptr, attn.F32, filled(out.Len(), 5))
	store(lse.Ptr, attn.F32, filled(lse.Len(), 5))
	good := func(paged bool) *attn.PrefillCall {
		c := attn.PrefillCall{Query: fresh(attn.F32, 5, 4, 8), QLens: ints(3, 2), KVLens: ints(6, 2), MaxQLen: 3, MaxKVLen: 8, Out: out, LSE: lse}
		if paged {
			c.Key, c.Value = fresh(attn.F32, 4, 2, 4, 8), fresh(attn.F32, 4, 2, 4, 8)
			c.BlockTables = reshape(ints(0, 1, 2, 99), 2, 2)
		} else {
			c.Key, c.Value = fresh(attn.F32, 8, 2, 8), fresh(attn.F32, 8, 2, 8)
		}
		return &c
	}
	edit := func(name, arg string, paged bool, f func(c *attn.PrefillCall), want ...string) {
		c := good(paged)
		f(c)
		badCall{name, c, arg, want}.run(t, b, out, lse)
	}
	edit("negative query length", "actual_seq_lens_q", true, func(c *attn.PrefillCall) { c.QLens = ints(3, -1) }, "request 1", "-1")
	edit("query length beyond its maximum", "actual_seq_lens_q", true, func(c *attn.PrefillCall) { c.QLens = ints(4, 1) }, "request 0", "4")
	edit("more queries than rows", "actual_seq_lens_q", true, func(c *attn.PrefillCall) { c.QLens = ints(3, 3) }, "request 1", "6", "5")
	edit("length beyond its maximum", "actual_seq_lens_kv", true, func(c *attn.PrefillCall) { c.MaxKVLen = 5 }, "request 0", "6")
	edit("length beyond the table", "actual_seq_lens_kv", true, func(c *attn.PrefillCall) { c.KVLens, c.MaxKVLen = ints(6, 9), 100 }, "request 1", "9")
	edit("length beyond the table and its maximum", "actual_seq_lens_kv", true, func(c *attn.PrefillCall) { c.KVLens = ints(6, 9) }, "request 1", "9", "block table")
	edit("page beyond the pool", "block_tables", true, func(c *attn.PrefillCall) { c.BlockTables = reshape(ints(0, 4, 2, 3), 2, 2) }, "request 0", "page 4")
	edit("more keys than rows", "actual_seq_lens_kv", false, func(c *attn.PrefillCall) { c.KVLens = ints(6, 3) }, "request 1", "9", "8")
	edit("q beyond the tensor", "batch_offsets_q", true, func(c *attn.PrefillCall) { c.OffsetsQ = ints(0, 97) }, "request 1", "97")
	edit("negative q offset", "batch_offsets_q", true, func(c *attn.PrefillCall) { c.OffsetsQ = ints(-32, 0) }, "request 0", "-32")
	edit("o beyond the tensor", "batch_offsets_o", true, func(c *attn.PrefillCall) { c.OffsetsO = ints(65, 0, 0) }, "request 0", "65")
	edit("k beyond the tensor", "batch_offsets_k", false, func(c *attn.PrefillCall) { c.OffsetsK = ints(33, 0) }, "request 0", "33")
	edit("shared keys, but not values", "actual_seq_lens_kv", false, func(c *attn.PrefillCall) { c.KVLens, c.OffsetsK = ints(6, 6), ints(0, 32) }, "request 1", "12", "8")
	edit("v beyond the tensor", "batch_offsets_v", false, func(c *attn.PrefillCall) { c.OffsetsV = ints(0, 97) }, "request 1", "97")
	edit("stats beyond the buffer", "batch_offsets_stats", false, func(c *attn.PrefillCall) { c.OffsetsStats = ints(0, 17) }, "request 1", "17")
	edit("offset near the end of int64", "batch_offsets_q", false, func(c *attn.PrefillCall) {
		c.OffsetsQ = fresh(attn.I64, 2)
		slice[int64](c.OffsetsQ.Ptr, 2)[1] = 1<<63 - 5
	}, "request 1")
	for name, f := range map[string]func(c *attn.PrefillCall){
		"the last places that fit": func(c *attn.PrefillCall) {
			c.OffsetsQ, c.OffsetsO, c.OffsetsK, c.OffsetsV, c.OffsetsStats = ints(0, 96), ints(64, 0), ints(32, 96), ints(0, 96), ints(0, 16)
		},
		"keys that two requests share": func(c *attn.PrefillCall) {
			c.KVLens, c.OffsetsK, c.OffsetsV = ints(6, 6), ints(0, 32), ints(0, 32)
		},
		"offset of a request without queries": func(c *attn.PrefillCall) { c.QLens, c.OffsetsQ = ints(0, 2), ints(-1, 0) },
	} {
		c := good(false)
		f(c)
		infer(t, c)
		if err := c.Run(b); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestLayersCheckValues(t *testing.T) {
	b := backend(t, 2)
	k := fresh(attn.F32, 2, 1, 8)
	good := func() *attn.AppendCall {
		c := attn.NewAppendCall()
		c.Key, c.Value, c.KeyCache, c.ValueCache = k, k, fresh(attn.F32, 3, 1, 4, 8), fresh(attn.F32, 3, 1, 4, 8)
		store(c.KeyCache.Ptr, attn.F32, filled(c.KeyCache.Len(), 5)) // k is 0: a write would show
		c.BlockTables = reshape(ints(0, 1, 2, 3), 2, 2)
		return &c
	}
	rows := func(name, arg string, positions, requests attn.Tensor, want ...string) {
		c := good()
		c.Positions, c.Requests = positions, requests
		badCall{name, c, arg, want}.run(t, b, c.KeyCache, c.ValueCache)
	}
	rows("position below -1", "positions", ints(0, -2), ints(0, 0), "row 1", "-2")
	rows("position beyond the table", "positions", ints(0, 8), ints(0, 0), "row 1", "8")
	rows("no such request", "requests", ints(0, 1), ints(0, 2), "row 1", "2")
	rows("page beyond the pool", "block_tables", ints(0, 4), ints(0, 1), "request 1", "page 3")
	ranges := func(name, arg string, cum, start attn.Tensor, want ...string) {
		c := good()
		c.CumSeqLens, c.StartPositions = cum, start
		badCall{name, c, arg, want}.run(t, b, c.KeyCache, c.ValueCache)
	}
	ranges("falling prefix sums", "cum_seq_lens", ints(0, 3, 2), ints(0, 0), "request 1")
	ranges("prefix sums that end early", "cum_seq_lens", ints(0, 1, 1), ints(0, 0), "2")
	ranges("negative start", "start_positions", ints(0, 1, 2), ints(0, -1), "request 1", "-1")
	ranges("no room", "start_positions", ints(0, 2, 2), ints(7, 0), "request 0", "7")

	table := fresh(attn.F32, 4, 8)
	out := fresh(attn.F32, 2, 8)
	store(out.Ptr, attn.F32, filled(16, 5))
	for name, ids := range map[string]attn.Tensor{"negative id": ints(0, -1), "id beyond the table": ints(0, 4)} {
		badCall{name, &attn.EmbeddingCall{IDs: ids, Weight: table, Out: out}, "ids", []string{"row 1"}}.run(t, b, out)
	}
	x := fresh(attn.F32, 2, 1, 8)
	badCall{"position below -1", &attn.RoPECall{X: x, Positions: ints(0, -2), RoPEConfig: attn.RoPEConfig{Base: 1e4}, Out: reshape(out, 2, 1, 8)}, "positions",
		[]string{"row 1"}}.run(t, b, out)
}

// Every method refuses a call whose operands have no memory, instead of following a nil pointer.
func TestNoMemory(t *testing.T) {
	b := backend(t, 1)
	x := attn.Of(attn.F32, 2, 8)
	h := attn.Of(attn.F32, 2, 1, 8)
	pool := attn.Of(attn.F32, 2, 1, 4, 8)
	l := attn.Of(attn.F32, 2, 1)
	i := attn.Of(attn.I32, 2)
	d := attn.NewDecodeCall()
	d.Query, d.Key, d.Value, d.BlockTables, d.SeqLens = h, pool, pool, attn.Of(attn.I32, 2, 2), i
	a := attn.NewAppendCall()
	a.Key, a.Value, a.KeyCache, a.ValueCache, a.BlockTables, a.Positions, a.Requests = h, h, pool, pool, attn.Of(attn.I32, 2, 2), i, i
	for _, c := range []attn.Call{&d, &a,
		&attn.PrefillCall{Query: h, Key: h, Value: h, QLens: i, KVLens: i, MaxQLen: 2, MaxKVLen: 2},
		&attn.MergeLSECall{OutA: h, OutB: h, LSEA: l, LSEB: l},
		&attn.RMSNormCall{X: x, Weight: attn.Of(attn.F32, 8), Eps: 1},
		&attn.RoPECall{X: h, Positions: i, RoPEConfig: attn.RoPEConfig{Base: 1e4}},
		&attn.LinearCall{X: x, Weight: x}, &attn.SiLUMulCall{Gate: x, Up: x}, &attn.EmbeddingCall{IDs: i, Weight: x}, &attn.CastCall{X: x}, &attn.ArgmaxCall{X: x},
		&attn.SoftmaxCall{Logits: x, Temperature: 1}, &attn.TopKCall{Logits: x, K: 2},
	} {
		if err := c.Run(b); !errors.Is(err, attn.ErrArgument) {
			t.Errorf("%s before Infer: got %v, want ErrArgument", c.Op(), err)
		}
		infer(t, c)
		if err := c.Run(b); !errors.Is(err, attn.ErrArgument) {
			t.Errorf("%s without memory: got %v, want ErrArgument", c.Op(), err)
		}
		if reasons := b.Supports(c); reasons != nil {
			t.Errorf("%s is not supported: %v", c.Op(), reasons)
		}
	}
}
