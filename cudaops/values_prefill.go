package cudaops

import "github.com/gaze-ml/gaze/internal/attn"

// prefillValues are the integer operands of a prefill call.
type prefillValues struct {
	queries, keys, tables                            integers
	offsetsQ, offsetsO, offsetsK, offsetsV, offsetsS integers
}

func (rt *Runtime) checkPrefill(c *attn.PrefillCall) error {
	v := rt.values(c.Op())
	p := prefillValues{
		queries: v.of("actual_seq_lens_q", &c.QLens), keys: v.of("actual_seq_lens_kv", &c.KVLens), tables: v.of("block_tables", &c.BlockTables),
		offsetsQ: v.of("batch_offsets_q", &c.OffsetsQ), offsetsO: v.of("batch_offsets_o", &c.OffsetsO),
		offsetsK: v.of("batch_offsets_k", &c.OffsetsK), offsetsV: v.of("batch_offsets_v", &c.OffsetsV),
		offsetsS: v.of("batch_offsets_stats", &c.OffsetsStats),
	}
	if v.err != nil {
		return v.err
	}
	return judge(opPrefill, prefillFault(c, &p))
}

func prefillFault(c *attn.PrefillCall, v *prefillValues) fault {
	tokens, keyRows := int64(0), int64(0)
	hq := c.Query.Shape[1]
	for b := range c.Batch() {
		l, s := v.queries.at(b), v.keys.at(b)
		switch {
		case l < 0:
			return fault{faultQLenNegative, 0, int64(b), l, 0}
		case l > int64(c.MaxQLen):
			return fault{faultQLenMax, 0, int64(b), l, int64(c.MaxQLen)}
		}
		room := int64(1<<31 - 1)
		if c.Paged() {
			room = int64(c.BlockTables.Shape[1] * c.Key.Shape[2])
		}
		if f := checkKeys(b, s, room, int64(c.MaxKVLen)); f.Reason != 0 {
			return f
		}
		if tokens += l; tokens > int64(c.Query.Shape[0]) {
			return fault{faultQRows, 0, int64(b), tokens, int64(c.Query.Shape[0])}
		}
		if f := checkOffset(faultOffsetQ, v.offsetsQ, &c.OffsetsQ, &c.Query, b, l); f.Reason != 0 {
			return f
		}
		if f := checkOffset(faultOffsetO, v.offsetsO, &c.OffsetsO, &c.Out, b, l); f.Reason != 0 {
			return f
		}
		if c.LSE.Valid() || c.LSE2.Valid() {
			stats := attn.Of(attn.F32, c.Batch()*c.MaxQLen, 1, hq)
			if f := checkOffset(faultOffsetStats, v.offsetsS, &c.OffsetsStats, &stats, b, l); f.Reason != 0 {
				return f
			}
		}
		if c.Paged() {
			if l > 0 {
				if f := checkPages(v.tables, b, 0, s, c.Key.Shape[2], c.Key.Shape[0]); f.Reason != 0 {
					return f
				}
			}
			continue
		}
		if keyRows += s; keyRows > int64(c.Key.Shape[0]) && !(c.OffsetsK.Valid() && c.OffsetsV.Valid()) {
			return fault{faultKVRows, 0, int64(b), keyRows, int64(c.Key.Shape[0])}
		}
		if l == 0 {
			s = 0 // nobody looks at them
		}
		if f := checkOffset(faultOffsetK, v.offsetsK, &c.OffsetsK, &c.Key, b, s); f.Reason != 0 {
			return f
		}
		if f := checkOffset(faultOffsetV, v.offsetsV, &c.OffsetsV, &c.Value, b, s); f.Reason != 0 {
			return f
		}
	}
	return fault{}
}

// checkOffset wants rows of t, [tokens, heads, width], from request b's element offset on to lie in t.
func checkOffset(reason uint32, offsets integers, given, t *attn.Tensor, b int, rows int64) fault {
	if !given.Valid() || rows == 0 {
		return fault{}
	}
	need := (rows-1)*int64(t.Stride[0]) + int64((t.Shape[1]-1)*t.Stride[1]+t.Shape[2])
	size, _ := span("", "", t)
	most := int64(size/t.DType.Size()) - need
	if at := offsets.at(b); at < 0 || at > most {
		return fault{reason, 0, int64(b), at, max(most, 0)}
	}
	return fault{}
}
