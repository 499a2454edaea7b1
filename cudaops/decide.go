package cudaops

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/gaze-ml/gaze/cudaops/internal/driver"
	"github.com/gaze-ml/gaze/internal/attn"
)

// decide picks the kernel for a call, or gives every reason why there is none. It looks at dtypes, shapes and scalars only, and
// allocates nothing when there is a kernel.
func (rt *Runtime) decide(c attn.Call) (*kernel, []error) {
	switch c := c.(type) {
	case *attn.DecodeCall:
		return rt.decideDecode(c)
	case *attn.PrefillCall:
		return rt.decidePrefill(c)
	case *attn.AppendCall:
		return rt.decideAppend(c)
	case *attn.MergeLSECall:
		return rt.decidePlain(c, key{Op: c.Op(), A: c.OutA.DType}, "out_a")
	case *attn.RMSNormCall:
		return rt.decidePlain(c, key{Op: c.Op(), A: c.X.DType}, "x")
	case *attn.RoPECall:
		return rt.decideRoPE(c)
	case *attn.SiLUMulCall:
		return rt.decidePlain(c, key{Op: c.Op(), A: c.Gate.DType}, "gate")
	case *attn.ArgmaxCall:
		return rt.decidePlain(c, key{Op: c.Op(), A: c.X.DType}, "x")
	case *attn.SoftmaxCall:
		return rt.decidePlain(c, key{Op: c.Op(), A: c.Logits.DType}, "logits")
	case *attn.TopKCall:
		return rt.decideTopK(c)
	case *attn.EmbeddingCall:
		return rt.decidePlain(c, key{Op: c.Op(), A: c.Weight.DType, B: c.Out.DType}, "weight and out_dtype")
	case *attn.CastCall:
		return rt.decidePlain(c, key{Op: c.Op(), A: c.X.DType, B: c.Out.DType}, "x and out_dtype")
	case *attn.LinearCall:
		k := key{Op: c.Op(), A: c.X.DType, B: c.Weight.DType}
		if c.X.Shape[0] <= smallRows {
			k.Variant = small
		}
		return rt.decidePlain(c, k, "x and weight")
	}
	return nil, attn.Unimplemented{}.Supports(c)
}

// smallRows is the most rows for which Linear's own kernel for few rows is made.
const smallRows = 16

// decidePlain is for ops whose kernels differ in dtypes alone; arg names the operands that have them.
func (rt *Runtime) decidePlain(c attn.Call, k key, arg string) (*kernel, []error) {
	if found := rt.choices.of(k); found != nil {
		return found, nil
	}
	return nil, rt.reasons(c, k, ask{arg, k.dtypes(), ofDTypes})
}

func (rt *Runtime) decideDecode(c *attn.DecodeCall) (*kernel, []error) {
	k := key{Op: c.Op(), A: c.Query.DType, B: c.Key.DType, Dim: c.Query.Shape[2], Rows: 8}
	found := rt.choices.of(k)
	_, l := c.Batch()
	rows := l * (c.Query.Shape[1] / c.Key.Shape[1])
	for found != nil && found.Tile < rows { // a tile that holds all rows of a KV head, or the largest
		k.Rows *= 2
		taller := rt.choices.of(k)
		if taller == nil {
			break
		}
		found = taller
	}
	if found != nil && slices.Contains(found.Outs, c.Out.DType) {
		return found, nil
	}
	return nil, rt.reasons(c, k, ask{"query and kv_cache", k.dtypes(), ofDTypes}, ask{"head_dim", k.dims("/"), ofDims}, ask{"out_dtype", outName(c.Out.DType), ofOuts})
}

// mostGroup is up to where prefill's kernels divide by the group exactly: Split of kernels/prefill_plan.cuh.
const mostGroup = 3500

func (rt *Runtime) decidePrefill(c *attn.PrefillCall) (*kernel, []error) {
	k := key{Op: c.Op(), A: c.Query.DType, B: c.Key.DType, Dim: c.Query.Shape[2], DimV: c.Value.Shape[c.Value.Rank-1]}
	group := c.Query.Shape[1] / c.Key.Shape[1]
	found := rt.choices.of(k)
	served := found != nil && slices.Contains(found.Outs, c.Out.DType)
	if served && c.Backend != "cudnn" && group <= mostGroup {
		k.Variant = tiled
		if better := rt.choices.of(k); better != nil && slices.Contains(better.Outs, c.Out.DType) && canTile(c) {
			return better, nil
		}
		return found, nil
	}
	var why []error
	if !served {
		why = rt.reasons(c, k, ask{"q and kv_cache", k.dtypes(), ofDTypes}, ask{"head_dim", k.dims("/"), ofDims}, ask{"o_data_type", outName(c.Out.DType), ofOuts})
	}
	if group > mostGroup {
		why = append(why, rt.unsupported(c, "q", []string{fmt.Sprintf("%d heads or fewer for each KV head", mostGroup)}, fmt.Sprint(group)))
	}
	if c.Backend == "cudnn" {
		why = append(why, rt.unsupported(c, "backend", []string{`"auto" or "cubin": this build has no cuDNN`}, `"cudnn"`))
	}
	return nil, why
}

// ask is one thing that a call wants of a kernel: the argument that says so, what it says, and what of that kind a kernel has.
type ask struct {
	arg, want string
	of        func(*kernel) []string
}

func ofDTypes(k *kernel) []string { return []string{k.dtypes()} }

func ofDims(k *kernel) []string { return []string{k.dims("/")} }

func ofOuts(k *kernel) (s []string) {
	for _, d := range k.Outs {
		s = append(s, outName(d))
	}
	return s
}

func outName(d attn.DType) string {
	if d == attn.U8 {
		return "nvfp4"
	}
	return d.String()
}

// reasons are what keeps the kernels of k's op and variant from running c: everything asked that none has of those kernels that have the
// other things asked before it. Where no kernel has all, there is one reason at least.
func (rt *Runtime) reasons(c attn.Call, k key, asks ...ask) (why []error) {
	left := slices.DeleteFunc(slices.Clone(rt.choices.all), func(o *kernel) bool { return o.Op != k.Op || o.Variant != k.Variant })
	for _, a := range asks {
		var fit []*kernel
		var have []string
		for _, k := range left {
			has := a.of(k)
			if slices.Contains(has, a.want) {
				fit = append(fit, k)
			}
			for _, h := range has {
				if !slices.Contains(have, h) {
					have = append(have, h)
				}
			}
		}
		if fit != nil {
			left = fit
		} else {
			why = append(why, rt.unsupported(c, a.arg, have, a.want))
		}
	}
	return why
}

// unsupported is one reason. Have lists what would do, and may be empty.
func (rt *Runtime) unsupported(c attn.Call, arg string, have []string, want string) error {
	text := strings.Join(have, ", ")
	if text == "" {
		text = fmt.Sprintf("the CPU backend: no kernel for this op runs on compute capability %d.%d", rt.props.Capability/10, rt.props.Capability%10)
	}
	return attn.Errorf(attn.ErrUnsupported, c.Op(), arg, text, "%s", want)
}

// canTile tells whether K and V can be read by bulk tensor copies: base and strides multiples of 16 bytes, pages of a multiple of 8
// tokens, ragged keys packed one request after the other.
func canTile(c *attn.PrefillCall) bool {
	for _, t := range []*attn.Tensor{&c.Key, &c.Value} {
		if uint64(driver.Of(t.Ptr))%16 != 0 || t.Len() == 0 {
			return false
		}
		for i := range t.Rank - 1 {
			if bytes := uint64(t.Stride[i] * t.DType.Size()); bytes%16 != 0 || bytes >= 1<<40 || uint64(t.Shape[i]) > 1<<32 {
				return false
			}
		}
	}
	if c.Paged() {
		return c.Key.Shape[2]%8 == 0
	}
	return !c.OffsetsK.Valid() && !c.OffsetsV.Valid()
}

// start begins a call: it takes the lock, which the caller gives back, and picks the kernel.
func (rt *Runtime) start(c attn.Call) (*kernel, error) {
	if err := rt.enter(c.Op()); err != nil {
		return nil, err
	}
	k, why := rt.decide(c)
	if len(why) == 1 {
		return nil, why[0]
	}
	return k, errors.Join(why...)
}
