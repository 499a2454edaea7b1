package ops

import (
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/gaze-ml/gaze/internal/attn"
)

// Layout is the order of the two middle dimensions of a paged cache, FlashInfer's kv_layout.
type Layout = attn.Layout

// The layouts of a page.
const (
	HND = attn.HND // [Hkv, P, D]
	NHD = attn.NHD // [P, Hkv, D]
)

// Operand is what stands for a tensor: a node when a graph is built, the tensor itself in a direct call.
type Operand interface{ *gorgonia.Node | *tensor.Dense }

// KV names the keys and values of an attention op: nodes for a graph, tensors for a direct call.
type KV[T Operand] struct {
	form   kvForm
	k, v   T // stacked: k alone
	layout Layout
}

type kvForm uint8

const (
	kvNone kvForm = iota
	kvStacked
	kvPair
	kvRagged
)

// StackedKV is one paged cache [N, 2, Hkv, P, D] (HND) or [N, 2, P, Hkv, D] (NHD), K before V; with axis 1 of size 1, K and V
// are the same memory.
func StackedKV[T Operand](kv T, layout Layout) KV[T] {
	return KV[T]{form: kvStacked, k: kv, layout: layout}
}

// PairKV is a paged cache in two tensors, each [N, Hkv, P, D] (HND) or [N, P, Hkv, D] (NHD), each with strides of its own.
func PairKV[T Operand](k, v T, layout Layout) KV[T] {
	return KV[T]{form: kvPair, k: k, v: v, layout: layout}
}

// RaggedKV is keys [Tkv, Hkv, Dqk] and values [Tkv, Hkv, Dvo] of all requests one after the other, for prefill only.
func RaggedKV[T Operand](k, v T) KV[T] {
	return KV[T]{form: kvRagged, k: k, v: v}
}

// Tensors gives the tensors or nodes: one for a stacked cache, else K and V.
func (kv KV[T]) Tensors() []T {
	switch kv.form {
	case kvStacked:
		return []T{kv.k}
	case kvPair, kvRagged:
		return []T{kv.k, kv.v}
	}
	return nil
}

// kvOperands makes the operands of a cache; at gives the call's K and V.
func kvOperands[C any, T Operand](op string, kv KV[T], karg, varg string, at func(*C) (k, v *attn.Tensor)) ([]operand[C], error) {
	switch kv.form {
	case kvStacked:
		return []operand[C]{{"kv_cache", func(c *C, t attn.Tensor) (err error) {
			k, v := at(c)
			*k, *v, err = attn.SplitStacked(op, t, kv.layout)
			return err
		}}}, nil
	case kvPair:
		return []operand[C]{
			{karg, func(c *C, t attn.Tensor) (err error) {
				k, _ := at(c)
				*k, err = attn.PagedView(op, karg, t, kv.layout)
				return err
			}},
			{varg, func(c *C, t attn.Tensor) (err error) {
				_, v := at(c)
				*v, err = attn.PagedView(op, varg, t, kv.layout)
				return err
			}},
		}, nil
	case kvRagged:
		ragged := func(arg string, pick func(*C) *attn.Tensor) operand[C] {
			return operand[C]{arg, func(c *C, t attn.Tensor) error {
				if t.Rank != 3 {
					return attn.Errorf(ErrShape, op, arg, "rank 3: [Tkv, Hkv, D]", "%s", t.String())
				}
				*pick(c) = t
				return nil
			}}
		}
		return []operand[C]{
			ragged(karg, func(c *C) *attn.Tensor { k, _ := at(c); return k }),
			ragged(varg, func(c *C) *attn.Tensor { _, v := at(c); return v }),
		}, nil
	}
	return nil, attn.Errorf(ErrArgument, op, "kv_cache", "StackedKV, PairKV or RaggedKV", "nothing")
}
