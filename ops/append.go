package ops

import (
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/gaze-ml/gaze/internal/attn"
)

// AppendKV writes new keys and values into a paged cache, in place, and returns the cache as it is afterwards: attention must
// take what is returned, since only a data edge orders the two.
//
//	kv           StackedKV (axis 1 of size 2) or PairKV
//	k, v         [T,Hkv,D] in the cache's dtype, or float32, Float16, BFloat16 that are converted
//	blockTables  [B,maxPages] int32
//	positions    [T] int32: the position of each row in its request; -1 skips the row
//	requests     [T] int32: the request of each row
//
// A Float8E4M3 cache stores x/scale, saturated ([WithKVScales]). Positions and requests are checked before anything is written
// (on a GPU under [WithValueChecks]; else a wrong row is skipped and the next call that waits tells).
// [WithRoPE] turns keys on the way, and with [WithRotatedQuery] queries too.
func AppendKV(kv KV[*gorgonia.Node], k, v, blockTables, positions, requests *gorgonia.Node, opts ...Option) (KV[*gorgonia.Node], error) {
	type C = attn.AppendCall
	return appendKV(kv, k, v, blockTables, opts,
		[]*gorgonia.Node{positions, requests},
		field("positions", func(c *C) *attn.Tensor { return &c.Positions }),
		field("requests", func(c *C) *attn.Tensor { return &c.Requests }))
}

// AppendKVRanges is [AppendKV] for rows that lie one request after the other: rows cumSeqLens[b] … cumSeqLens[b+1]-1 go to
// request b from position startPositions[b] on; [B+1] and [B] int32.
func AppendKVRanges(kv KV[*gorgonia.Node], k, v, blockTables, cumSeqLens, startPositions *gorgonia.Node, opts ...Option) (KV[*gorgonia.Node], error) {
	type C = attn.AppendCall
	return appendKV(kv, k, v, blockTables, opts,
		[]*gorgonia.Node{cumSeqLens, startPositions},
		field("cum_seq_lens", func(c *C) *attn.Tensor { return &c.CumSeqLens }),
		field("start_positions", func(c *C) *attn.Tensor { return &c.StartPositions }))
}

func appendKV(kv KV[*gorgonia.Node], k, v, blockTables *gorgonia.Node, opts []Option, where []*gorgonia.Node, at ...operand[attn.AppendCall]) (KV[*gorgonia.Node], error) {
	type C = attn.AppendCall
	none := KV[*gorgonia.Node]{}
	s, err := settle("append_kv", opts)
	if err != nil {
		return none, err
	}
	var b builder[C, *C]
	b.proto = s.append
	b.proto.RoPEConfig = s.rope.RoPEConfig
	in, err := appendOperands(kv)
	if err != nil {
		return none, err
	}
	for i, n := range kv.Tensors() {
		b.out = append(b.out, result[C]{alias: len(b.in)})
		b.need(n, in[i])
	}
	b.need(k, field("k", func(c *C) *attn.Tensor { return &c.Key }))
	b.need(v, field("v", func(c *C) *attn.Tensor { return &c.Value }))
	b.need(blockTables, field("block_tables", func(c *C) *attn.Tensor { return &c.BlockTables }))
	for i, n := range where {
		b.need(n, at[i])
	}
	b.may(s.factors, field("factors", func(c *C) *attn.Tensor { return &c.Factors }))
	if s.query != nil {
		b.need(s.query, field("query", func(c *C) *attn.Tensor { return &c.Query }))
		b.output("query_out", nil, func(c *C) *attn.Tensor { return &c.QueryOut })
	}
	after := kv
	if after.k, err = b.build(); err != nil {
		return none, err
	}
	if kv.form == kvPair {
		if after.v, err = project("v_cache", after.k, 1); err != nil {
			return none, err
		}
	}
	return after, nil
}

// appendOperands are the operands of a cache that K and V can be written to: not ragged, not one memory for both.
func appendOperands[T Operand](kv KV[T]) ([]operand[attn.AppendCall], error) {
	type C = attn.AppendCall
	if kv.form == kvRagged {
		return nil, attn.Errorf(ErrArgument, "append_kv", "kv_cache", "StackedKV or PairKV", "RaggedKV")
	}
	in, err := kvOperands("append_kv", kv, "kv_cache", "kv_cache", func(c *C) (*attn.Tensor, *attn.Tensor) { return &c.KeyCache, &c.ValueCache })
	if err != nil || kv.form != kvStacked {
		return in, err
	}
	split := in[0].set
	in[0].set = func(c *C, t attn.Tensor) error {
		if t.Rank == 5 && t.Shape[1] == 1 {
			return attn.Errorf(ErrShape, "append_kv", "kv_cache", "K and V in memory of their own, axis 1 of size 2", "%s", t.String())
		}
		return split(c, t)
	}
	return in, nil
}

// WithKVScales gives the scales of a Float8E4M3 cache, which stores x/scale: k_scale, v_scale, 1 by default. Nothing of them is
// kept with the cache: [BatchDecode] needs k as a factor of bmm1_scale and v as one of bmm2_scale, [BatchPrefill] both in
// [WithScales].
func WithKVScales(k, v float64) Option {
	return scalar("k_scale", onAppend, func(s *settings) { s.append.KScale, s.append.VScale = k, v })
}

// WithRoPE makes [AppendKV] turn keys by their positions as [RoPE] does, rounded once, to the cache's dtype. [WithPairing],
// [WithRotaryDim], [WithRoPEScaling] and [WithRoPEFactors] say how.
func WithRoPE(base float64) Option {
	return scalar("base", onAppend, func(s *settings) {
		if s.rope.Base = base; base == 0 { // the call reads 0 as none
			s.refuse("base", "a finite number above 0", "0")
		}
	})
}

// WithRotatedQuery makes [AppendKV] turn the queries of the same rows too, q [T,Hq,D] in the dtype of k; [RotatedQuery] names the result.
// The query of a skipped row stays as it is.
func WithRotatedQuery(q *gorgonia.Node) Option {
	return node("query", q, onAppend, func(s *settings) **gorgonia.Node { return &s.query })
}

var onAppend = []string{"append_kv"}

// RotatedQuery names the queries [T,Hq,D] that the append which returned this cache has turned. It must be what [AppendKV] or
// [AppendKVRanges] returned under [WithRotatedQuery]. The append writes them in the same pass; this node only names them.
func RotatedQuery(after KV[*gorgonia.Node]) (*gorgonia.Node, error) {
	if i := len(after.Tensors()); i > 0 && after.k != nil {
		if o, ok := after.k.Op().(*op[attn.AppendCall, *attn.AppendCall]); ok && len(o.out) > i {
			return project("rotated_query", after.k, i)
		}
	}
	return nil, attn.Errorf(ErrArgument, "rotated_query", "kv_cache", "what AppendKV returned WithRotatedQuery", "another cache")
}

// AppendArgs holds the tensors of a direct call of [Append], shaped as for [AppendKV] and [AppendKVRanges]. Positions with Requests, or
// CumSeqLens with StartPositions. Factors, Query and QueryOut go with [WithRoPE]; QueryOut is required with Query and may be it.
type AppendArgs struct {
	KV                         KV[*tensor.Dense]
	Key, Value                 *tensor.Dense
	BlockTables                *tensor.Dense
	Positions, Requests        *tensor.Dense
	CumSeqLens, StartPositions *tensor.Dense
	Factors, Query, QueryOut   *tensor.Dense
}

// Append is [AppendKV] or [AppendKVRanges] on tensors, now.
func Append(a AppendArgs, opts ...Option) error {
	s, err := settleDirect("append_kv", opts)
	if err != nil {
		return err
	}
	c := s.append
	c.RoPEConfig = s.rope.RoPEConfig
	d := direct{op: "append_kv"}
	in, err := appendOperands(a.KV)
	if err != nil {
		return err
	}
	caches(&d, a.KV.Tensors(), in, &c)
	d.need("k", a.Key, &c.Key)
	d.need("v", a.Value, &c.Value)
	d.need("block_tables", a.BlockTables, &c.BlockTables)
	d.may("positions", a.Positions, &c.Positions)
	d.may("requests", a.Requests, &c.Requests)
	d.may("cum_seq_lens", a.CumSeqLens, &c.CumSeqLens)
	d.may("start_positions", a.StartPositions, &c.StartPositions)
	d.may("factors", a.Factors, &c.Factors)
	if a.Query != nil {
		d.need("query", a.Query, &c.Query)
		d.need("query_out", a.QueryOut, &c.QueryOut)
	} else if a.QueryOut != nil {
		d.errs = append(d.errs, attn.Errorf(ErrArgument, d.op, "query_out", "a query with it", "no query"))
	}
	return d.run(&c)
}
