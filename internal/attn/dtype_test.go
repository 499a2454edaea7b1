package attn

import (
	"errors"
	"slices"
	"testing"
)

// Every triple of query, cache and output dtypes, whether the output is asked for by name or given, is accepted as the rules here say, or ErrDType.
func TestDTypeTriples(t *testing.T) {
	decode := func(q, kv, out DType) bool {
		switch {
		case q == E4M3:
			return kv == E4M3 && slices.Contains([]DType{E4M3, F16, BF16, U8}, out)
		case kv == E4M3:
			return q.Half() && (out == q || out == E4M3)
		}
		return q.Float() && kv == q && out == q
	}
	prefill := func(q, kv, out DType) bool {
		return kv == q && (q.Float() && out == q || q == E4M3 && slices.Contains([]DType{E4M3, F16, BF16}, out))
	}
	check := func(op string, want bool, err error, q, kv, out DType) {
		if want != (err == nil) || err != nil && !errors.Is(err, ErrDType) {
			t.Errorf("%s of %v over %v to %v: %v, want accepted: %v", op, q, kv, out, err, want)
		}
	}
	for q := F32; q < numDTypes; q++ {
		for kv := F32; kv < numDTypes; kv++ {
			for out := F32; out < numDTypes; out++ {
				for _, given := range []bool{false, true} {
					width := 64
					if out == U8 {
						width = 32 // two codes a byte
					}
					d := NewDecodeCall()
					d.Query, d.Key, d.BlockTables, d.SeqLens = Of(q, 2, 4, 64), Of(kv, 3, 2, 16, 64), Of(I32, 2, 2), Of(I32, 2)
					d.Value = d.Key
					if out == U8 {
						d.OSFScale = 1
					}
					p := PrefillCall{Query: Of(q, 2, 4, 64), Key: d.Key, Value: d.Key, BlockTables: d.BlockTables, QLens: Of(I32, 2), KVLens: Of(I32, 2), Scale: 1, MaxQLen: 1, MaxKVLen: 9}
					if q == E4M3 {
						p.QScale, p.KScale, p.VScale = Of(F32), Of(F32, 1), Of(F32, 1, 1, 1, 1)
					}
					if given {
						d.Out, p.Out = Of(out, 2, 4, width), Of(out, 2, 4, 64)
					} else {
						d.OutDType, p.OutDType = out, out
					}
					check("decode", decode(q, kv, out), d.Infer(), q, kv, out)
					check("prefill", prefill(q, kv, out), p.Infer(), q, kv, out)
				}
			}
		}
	}
}
