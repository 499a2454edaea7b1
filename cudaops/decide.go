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
		return rt.decidePlain(c, key{Op: c.Op(), A: c.Key.DType, B: c.KeyCache.DType}, "k", "kv_cache")
	case *attn.MergeLSECall:
		return rt.decidePlain(c, key{Op: c.Op(), A: c.OutA.DType}, "out_a", "")
	case *attn.RMSNormCall:
		return rt.decidePlain(c, key{Op: c.Op(), A: c.X.DType}, "x", "")
	case *attn.RoPECall:
		return rt.decidePlain(c, key{Op: c.Op(), A: c.X.DType}, "x", "")
	case *attn.SiLUMulCall:
		return rt.decidePlain(c, key{Op: c.Op(), A: c.Gate.DType}, "gate", "")
	case *attn.ArgmaxCall:
		return rt.decidePlain(c, key{Op: c.Op(), A: c.X.DType}, "x", "")
	case *attn.EmbeddingCall:
		out := c.Out.DType
		return rt.decidePlain(c, key{Op: c.Op(), A: c.Weight.DType, B: out}, "weight", "out_dtype")
	case *attn.LinearCall:
		k := key{Op: c.Op(), A: c.X.DType, B: c.Weight.DType}
		if c.X.Shape[0] <= smallRows {
			k.Variant = small
		}
		return rt.decidePlain(c, k, "x", "weight")
	}
	return nil, attn.Unimplemented{}.Supports(c)
}

// smallRows is the most rows for which Linear's own kernel for few rows is made.
const smallRows = 16

// decidePlain is for ops whose kernels differ in dtypes alone; a and b name the operands that have them.
func (rt *Runtime) decidePlain(c attn.Call, k key, a, b string) (*kernel, []error) {
	if found := rt.choices.best[k]; found != nil {
		return found, nil
	}
	var want []string
	for _, o := range rt.choices.keys(c.Op(), func(o key) bool { return o.Variant == k.Variant }) {
		want = append(want, pair(o, b != ""))
	}
	arg := a
	if b != "" {
		arg += " and " + b
	}
	return nil, []error{rt.unsupported(c, arg, want, "%s", pair(k, b != ""))}
}

func pair(k key, both bool) string {
	if both {
		return fmt.Sprintf("%v with %v", k.A, k.B)
	}
	return k.A.String()
}

// unsupported is one reason. Want lists what would do, and may be empty.
func (rt *Runtime) unsupported(c attn.Call, arg string, want []string, got string, a ...any) error {
	text := strings.Join(want, ", ")
	if text == "" {
		text = "the CPU backend: no kernel for this op runs on compute capability " + fmt.Sprintf("%d.%d", rt.props.Capability/10, rt.props.Capability%10)
	}
	return attn.Errorf(attn.ErrUnsupported, c.Op(), arg, text, got, a...)
}

func (rt *Runtime) decideDecode(c *attn.DecodeCall) (*kernel, []error) {
	q, kv := c.Query.DType, c.Key.DType
	out := c.OutDType
	if out == attn.Invalid {
		if out = c.Out.DType; out == attn.Invalid {
			out = q
		}
	}
	k := rt.choices.best[key{Op: c.Op(), A: q, B: kv, Dim: c.Query.Shape[2]}]
	if k != nil && out == q {
		return k, nil
	}
	why := rt.attentionReasons(c, "query", q, kv, c.Query.Shape[2], c.Query.Shape[2], 0)
	if out != q {
		why = append(why, rt.unsupported(c, "out_dtype", []string{q.String()}, "%v", outName(out)))
	}
	return nil, why
}

func (rt *Runtime) decidePrefill(c *attn.PrefillCall) (*kernel, []error) {
	q, kv := c.Query.DType, c.Key.DType
	d, dv := c.Query.Shape[2], c.Value.Shape[c.Value.Rank-1]
	out := c.OutDType
	if out == attn.Invalid {
		if out = c.Out.DType; out == attn.Invalid {
			out = q
		}
	}
	want := key{Op: c.Op(), A: q, B: kv, Dim: d, DimV: dv}
	k := rt.choices.best[want]
	if k != nil && out == q && c.Backend != "cudnn" {
		want.Variant = tiled
		if better := rt.choices.best[want]; better != nil && canTile(c) {
			return better, nil
		}
		return k, nil
	}
	var why []error
	if k == nil {
		why = rt.attentionReasons(c, "q", q, kv, d, dv, dv)
	}
	if out != q {
		why = append(why, rt.unsupported(c, "o_data_type", []string{q.String()}, "%v", out))
	}
	if c.Backend == "cudnn" {
		why = append(why, rt.unsupported(c, "backend", []string{`"auto" or "cubin": this build has no cuDNN`}, "%q", c.Backend))
	}
	return nil, why
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

// attentionReasons tells what of dtypes and head dims no kernel has. dimV is 0 where the op has one head dim.
func (rt *Runtime) attentionReasons(c attn.Call, arg string, q, kv attn.DType, d, dv, dimV int) (why []error) {
	dims := func(o key) string {
		if o.DimV == 0 || o.DimV == o.Dim {
			return fmt.Sprint(o.Dim)
		}
		return fmt.Sprintf("%d/%d", o.Dim, o.DimV)
	}
	var pairs, sizes []string
	goodPair, goodSize := false, false
	for _, o := range rt.choices.keys(c.Op(), func(o key) bool { return o.Variant == plain }) {
		if p := pair(o, true); !slices.Contains(pairs, p) {
			pairs = append(pairs, p)
		}
		if s := dims(o); !slices.Contains(sizes, s) {
			sizes = append(sizes, s)
		}
		goodPair = goodPair || o.A == q && o.B == kv
		goodSize = goodSize || o.Dim == d && o.DimV == dimV
	}
	if !goodPair {
		why = append(why, rt.unsupported(c, arg+" and kv_cache", pairs, "%v with %v", q, kv))
	}
	if !goodSize {
		why = append(why, rt.unsupported(c, "head_dim", sizes, "%s", dims(key{Dim: d, DimV: dv})))
	}
	if len(why) == 0 && rt.choices.best[key{Op: c.Op(), A: q, B: kv, Dim: d, DimV: dimV}] == nil {
		why = append(why, rt.unsupported(c, "head_dim", []string{"another for these dtypes"}, "%s with %v and %v", dims(key{Dim: d, DimV: dv}), q, kv))
	}
	return why
}

func outName(d attn.DType) string {
	if d == attn.U8 {
		return "nvfp4"
	}
	return d.String()
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
