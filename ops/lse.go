package ops

import (
	"gorgonia.org/gorgonia"

	"github.com/gaze-ml/gaze/internal/attn"
)

// Base is the base of a log-sum-exp.
type Base int

// The bases. FlashInfer's trtllm-gen and its merge kernels use base 2: natural = base 2 · ln 2.
const (
	Natural Base = iota
	Base2
)

// LSE names the log-sum-exp of an attention node, FlashInfer's return_lse: ln Σ_j exp(s[j]) over the visible keys, the sink
// included, float32 [T,Hq] for decode and [B,maxQLen,Hq] for prefill. A row without a visible key has the sink if that is
// finite, else -inf. The attention op writes it in the same pass; this node only names it.
func LSE(out *gorgonia.Node, base ...Base) (*gorgonia.Node, error) {
	i := resultLSE
	switch {
	case len(base) > 1, len(base) == 1 && base[0] != Natural && base[0] != Base2:
		return nil, attn.Errorf(ErrArgument, "lse", "base", "Natural or Base2", "%v", base)
	case len(base) == 1 && base[0] == Base2:
		i = resultLSE2
	}
	if err := attentionNode("lse", out); err != nil {
		return nil, err
	}
	return project("lse", out, i)
}

// attentionNode wants the node of BatchDecode or BatchPrefill itself.
func attentionNode(name string, n *gorgonia.Node) error {
	if n == nil {
		return attn.Errorf(ErrArgument, name, "out", "a node of BatchDecode or BatchPrefill", "nil")
	}
	switch n.Op().(type) {
	case *op[attn.DecodeCall, *attn.DecodeCall], *op[attn.PrefillCall, *attn.PrefillCall]:
		return nil
	}
	return attn.Errorf(ErrArgument, name, "out", "a node of BatchDecode or BatchPrefill", "%v", n)
}

// FP4Scale names the block scales of a decode node with an [NVFP4] output: Float8E4M3, swizzled 128×4.
func FP4Scale(out *gorgonia.Node) (*gorgonia.Node, error) {
	if out != nil {
		if o, ok := out.Op().(*op[attn.DecodeCall, *attn.DecodeCall]); ok && len(o.out) > resultFP4Scale {
			return project("fp4_scale", out, resultFP4Scale)
		}
	}
	return nil, attn.Errorf(ErrArgument, "fp4_scale", "out", "a BatchDecode node with an NVFP4 output", "%v", out)
}
