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
// A Float8E4M3 cache stores x/scale, saturated ([WithKVScales]). Positions and requests are checked before anything is written.
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

// WithKVScales gives the scales of a Float8E4M3 cache, which stores x/scale: k_scale, v_scale, 1 by default.
func WithKVScales(k, v float64) Option {
	return scalar("k_scale", []string{"append_kv"}, func(s *settings) { s.append.KScale, s.append.VScale = k, v })
}

// AppendArgs holds the tensors of a direct call of [Append]. Positions with Requests, or CumSeqLens with StartPositions.
type AppendArgs struct {
	KV                         KV[*tensor.Dense]
	Key, Value                 *tensor.Dense
	BlockTables                *tensor.Dense
	Positions, Requests        *tensor.Dense
	CumSeqLens, StartPositions *tensor.Dense
}

// Append is [AppendKV] or [AppendKVRanges] on tensors, now.
func Append(a AppendArgs, opts ...Option) error {
	s, err := settleDirect("append_kv", opts)
	if err != nil {
		return err
	}
	c := s.append
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
	return d.run(&c)
}
