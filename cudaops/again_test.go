//go:build gpu && linux && amd64 && cgo

package cudaops

import (
	"math"
	"testing"

	"github.com/gaze-ml/gaze/cudaops/internal/driver"
	"github.com/gaze-ml/gaze/cudaops/internal/fakecuda"
	"github.com/gaze-ml/gaze/internal/attn"
	"github.com/gaze-ml/gaze/ops"
)

// TestMemoryBetweenCalls: a call that ran before is refused once the memory of an operand is gone, and again while something smaller is in
// its place; with something as large there it runs.
func TestMemoryBetweenCalls(t *testing.T) {
	rt := fake(t, fakecuda.Hopper)
	c := decodeOf(t, rt)
	decode := func() error { return rt.Backend().Decode(c) }
	for arg, x := range map[string]*attn.Tensor{"query": &c.Query, "kv_cache": &c.Value, "seq_lens": &c.SeqLens, "out": &c.Out} {
		must(t, decode(), decode(), rt.Free(x.Ptr))
		if arg != "seq_lens" { // the address of a table that nobody owns is the host's
			want(t, arg+" freed", decode(), ops.ErrDevice, "decode: "+arg)
		}
		for _, n := range []int{x.Bytes() - 1, x.Bytes()} {
			p, err := rt.Alloc(n)
			must(t, err)
			if p != x.Ptr {
				t.Fatalf("%s: new memory at %v, want %v", arg, p, x.Ptr)
			}
			if n < x.Bytes() {
				want(t, arg+" in less memory", decode(), ops.ErrDevice, "decode: "+arg, "past the end")
				must(t, rt.Free(p))
			} else {
				must(t, decode())
			}
		}
	}
}

// TestCallChanges: a call struct that is used again is looked at again: shapes, dtypes and memory of another device.
func TestCallChanges(t *testing.T) {
	rt := fake(t, fakecuda.Hopper)
	other, err := Open(1)
	must(t, err)
	c := decodeOf(t, rt)
	must(t, rt.Backend().Decode(c))

	long := *c
	long.BlockTables.Shape[1], long.BlockTables.Stride[0] = 400, 400
	want(t, "more columns", rt.Backend().Decode(&long), ops.ErrDevice, "block_tables", "past the end")
	long = *c
	long.Key.Stride[0] *= 2
	want(t, "pages further apart", rt.Backend().Decode(&long), ops.ErrDevice, "kv_cache", "past the end")

	half := *c
	half.Query.DType, half.Key.DType, half.Value.DType, half.Out.DType = attn.F16, attn.F16, attn.F16, attn.F16
	for _, k := range []*attn.DecodeCall{&half, c} {
		fakecuda.Launches()
		must(t, rt.Backend().Decode(k))
		if l := fakecuda.Launches(); l[0].Symbol != "decode_h64_r8_"+names[k.Query.DType]+"_kv"+names[k.Query.DType]+"_sm90a" {
			t.Errorf("%v: %s", k.Query.DType, l[0].Symbol)
		}
	}

	theirs := decodeOf(t, other)
	must(t, other.Backend().Decode(theirs))
	for what, run := range map[string]func() error{
		"a call of cuda:1 on cuda:0": func() error { return rt.Backend().Decode(theirs) },
		"one operand of cuda:1":      func() error { mixed := *c; mixed.Key = theirs.Key; return rt.Backend().Decode(&mixed) },
	} {
		want(t, what, run(), ops.ErrDevice, "memory of cuda:0")
	}
	must(t, other.Close())
	want(t, "a call of a closed Runtime", rt.Backend().Decode(theirs), ops.ErrDevice, "memory of cuda:0")
	want(t, "its own", other.Backend().Decode(theirs), ErrClosed)
	must(t, rt.Backend().Decode(c))
}

// TestRecordedCallChanges: a recording has what its call was, whatever the same struct launches afterwards.
func TestRecordedCallChanges(t *testing.T) {
	rt := fake(t, fakecuda.Hopper)
	c := decodeOf(t, rt)
	must(t, rt.Backend().Decode(c))
	rec, err := rt.Record(func() error { return rt.Backend().Decode(c) })
	must(t, err)
	was := *c
	c.Query, c.Out = device(t, rt, attn.BF16, 2, 8, 64), device(t, rt, attn.BF16, 2, 8, 64)
	must(t, rt.Backend().Decode(c), rt.Sync())
	fakecuda.Launches()
	must(t, rec.Run(), rt.Sync(), rt.Backend().Decode(c), rt.Sync())
	l := fakecuda.Launches()
	for i, of := range []*attn.DecodeCall{&was, c} {
		if p := fakecuda.As[decodeParams](&l[i]); p.Q != driver.Of(of.Query.Ptr) || p.Out != driver.Of(of.Out.Ptr) {
			t.Errorf("launch %d: from %#x to %#x, want from %v to %v", i, p.Q, p.Out, of.Query.Ptr, of.Out.Ptr)
		}
	}
}

// TestTurns: every launch has the frequencies of its own RoPE, and an append without RoPE turns nothing, whatever was launched before.
func TestTurns(t *testing.T) {
	rt := fake(t, fakecuda.Hopper)
	d := decodeOf(t, rt)
	rope := &attn.RoPECall{X: d.Query, Positions: d.SeqLens, Out: d.Out}
	app := attn.NewAppendCall()
	app.KeyCache, app.ValueCache, app.BlockTables = d.Key, d.Value, d.BlockTables
	app.Key, app.Value = device(t, rt, attn.BF16, 2, 2, 64), device(t, rt, attn.BF16, 2, 2, 64)
	app.Positions, app.Requests = d.SeqLens, int32s(t, rt, []int{2}, 0, 1)
	check := func(what string, turns []float64, rotary int32, of attn.RoPEConfig) {
		t.Helper()
		if int(rotary) != of.Rotary(64) {
			t.Errorf("%s: %d elements turn, want %d", what, rotary, of.Rotary(64))
		}
		for i, got := range turns[:rotary/2] {
			if want := of.Frequency(i, 64) / (2 * math.Pi); got != want {
				t.Errorf("%s: pair %d turns by %v, want %v", what, i, got, want)
			}
		}
	}
	slow, part := attn.RoPEConfig{Base: 10000}, attn.RoPEConfig{Base: 10000, RotaryDim: 32}
	far := attn.RoPEConfig{Base: 10000, Scaling: attn.RoPEScaling{Factor: 8}}
	for i, pair := range [][2]attn.RoPEConfig{{slow, slow}, {slow, slow}, {far, part}, {part, far}, {part, far}, {slow, {}}, {far, slow}} {
		fakecuda.Launches()
		rope.RoPEConfig, app.RoPEConfig = pair[0], pair[1]
		app.Query, app.QueryOut = attn.Tensor{}, attn.Tensor{}
		if app.RoPE() {
			app.Query, app.QueryOut = d.Query, d.Out
		}
		must(t, rope.Infer(), app.Infer(), rt.Backend().RoPE(rope), rt.Backend().Append(&app), rt.Sync())
		l := fakecuda.Launches()
		r, a := fakecuda.As[ropeParams](&l[0]), fakecuda.As[appendParams](&l[1])
		check("rope", r.Turns[:], r.Rotary, pair[0])
		if app.RoPE() {
			check("append_kv", a.Turns[:], a.Rotary, pair[1])
		} else if a.Rotary != 0 || a.Q != 0 || a.QOut != 0 || a.QHeads != 0 {
			t.Errorf("launch %d turns %d elements of a query at %#x without RoPE", i, a.Rotary, a.Q)
		}
	}
}
