package opstest

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/gaze-ml/gaze/internal/attn"
)

// What Infer must refuse, and that what it must not refuse passes: the contract's validation tables, row by row.

// good calls, with everything given that a row below may spoil.
func goodDecode() *attn.DecodeCall {
	c := attn.NewDecodeCall()
	c.Query, c.Key, c.Value = attn.Of(attn.F16, 6, 8, 64), attn.Of(attn.F16, 9, 2, 16, 64), attn.Of(attn.F16, 9, 2, 16, 64)
	c.BlockTables, c.SeqLens = attn.Of(attn.I32, 3, 4), attn.Of(attn.I32, 3)
	c.QLenPerReq = 2
	return &c
}

func raggedDecode() *attn.DecodeCall {
	c := goodDecode()
	c.QLenPerReq, c.MaxQLen, c.CumSeqLensQ = 0, 3, attn.Of(attn.I32, 4)
	return c
}

func nvfp4Decode() *attn.DecodeCall {
	c := goodDecode()
	c.Query.DType, c.Key.DType, c.Value.DType = attn.E4M3, attn.E4M3, attn.E4M3
	c.OutDType, c.OSFScale, c.OSFVecSize = attn.U8, 300, 16
	c.Out, c.OutScale = attn.Of(attn.U8, 6, 8, 32), attn.Of(attn.E4M3, 128, 32)
	return c
}

func maskedDecode() *attn.DecodeCall {
	c := goodDecode()
	c.Mask = attn.Of(attn.U16, 3, 2, 2)
	return c
}

func goodPrefill() *attn.PrefillCall {
	return &attn.PrefillCall{
		Query: attn.Of(attn.F16, 20, 8, 64), Key: attn.Of(attn.F16, 9, 2, 16, 64), Value: attn.Of(attn.F16, 9, 2, 16, 64),
		BlockTables: attn.Of(attn.I32, 3, 4), QLens: attn.Of(attn.I32, 3), KVLens: attn.Of(attn.I32, 3), Scale: 0.125, MaxQLen: 16, MaxKVLen: 64, Causal: true,
	}
}

func raggedPrefill() *attn.PrefillCall {
	c := goodPrefill()
	c.Key, c.Value, c.BlockTables = attn.Of(attn.F16, 70, 2, 64), attn.Of(attn.F16, 70, 2, 64), attn.Tensor{}
	return c
}

func e4m3Prefill() *attn.PrefillCall {
	c := goodPrefill()
	c.Query.DType, c.Key.DType, c.Value.DType = attn.E4M3, attn.E4M3, attn.E4M3
	c.QScale, c.KScale, c.VScale = attn.Of(attn.F32, 1, 1, 1, 1), attn.Of(attn.F32, 1), attn.Of(attn.F32)
	return c
}

func goodAppend() *attn.AppendCall {
	c := attn.NewAppendCall()
	c.KeyCache, c.ValueCache = attn.Of(attn.F16, 9, 2, 16, 64), attn.Of(attn.F16, 9, 2, 16, 64)
	c.Key, c.Value, c.BlockTables = attn.Of(attn.F16, 5, 2, 64), attn.Of(attn.F16, 5, 2, 64), attn.Of(attn.I32, 3, 4)
	c.Positions, c.Requests = attn.Of(attn.I32, 5), attn.Of(attn.I32, 5)
	return &c
}

func turningAppend() *attn.AppendCall {
	c := goodAppend()
	c.RoPEConfig, c.Factors, c.Query = attn.RoPEConfig{Base: 1e4}, attn.Of(attn.F32, 32), attn.Of(attn.F16, 5, 8, 64)
	return c
}

func goodNorm() *attn.RMSNormCall {
	return &attn.RMSNormCall{X: attn.Of(attn.F16, 3, 64), Residual: attn.Of(attn.F16, 3, 64), Weight: attn.Of(attn.F32, 64), Eps: 1e-5}
}

func goodRoPE() *attn.RoPECall {
	return &attn.RoPECall{X: attn.Of(attn.F16, 3, 8, 64), Positions: attn.Of(attn.I32, 3), Factors: attn.Of(attn.F32, 32), RoPEConfig: attn.RoPEConfig{Base: 1e4}}
}

func goodLinear() *attn.LinearCall {
	return &attn.LinearCall{X: attn.Of(attn.F16, 3, 256), Weight: attn.Of(attn.Q4_K, 10, 1), Bias: attn.Of(attn.F16, 10)}
}

func goodSiLU() *attn.SiLUMulCall {
	return &attn.SiLUMulCall{Gate: attn.Of(attn.F16, 3, 64), Up: attn.Of(attn.F16, 3, 64)}
}

func goodEmbedding() *attn.EmbeddingCall {
	return &attn.EmbeddingCall{IDs: attn.Of(attn.I32, 3), Weight: attn.Of(attn.Q8_0, 10, 2)}
}

func goodCast() *attn.CastCall {
	return &attn.CastCall{X: attn.Of(attn.F16, 3, 8, 64), OutDType: attn.F32}
}

func goodArgmax() *attn.ArgmaxCall { return &attn.ArgmaxCall{X: attn.Of(attn.F16, 3, 64)} }

func goodSoftmax() *attn.SoftmaxCall {
	return &attn.SoftmaxCall{Logits: attn.Of(attn.F16, 3, 64), Temperature: 1}
}

func goodTopK() *attn.TopKCall { return &attn.TopKCall{Logits: attn.Of(attn.F16, 3, 64), K: 5} }

func goodMerge() *attn.MergeLSECall {
	o, l := attn.Of(attn.F16, 3, 8, 64), attn.Of(attn.F32, 3, 8)
	return &attn.MergeLSECall{OutA: o, OutB: o, LSEA: l, LSEB: l}
}

// strided gives a descriptor whose last dimension doesn't lie together.
func strided(t attn.Tensor) attn.Tensor {
	for i := range t.Rank {
		t.Stride[i] *= 2
	}
	return t
}

// gapped gives a descriptor with contiguous rows apart.
func gapped(t attn.Tensor) attn.Tensor {
	t.Stride[0] += 8
	return t
}

type refusalRow struct {
	name string
	call attn.Call
	kind error
	arg  string
}

// row spoils a good call.
func row[C attn.Call](name string, c C, kind error, arg string, spoil func(C)) refusalRow {
	spoil(c)
	return refusalRow{name, c, kind, arg}
}

// Every row is refused with its kind, its argument, what was got and what is wanted.
func TestRefusals(t *testing.T) {
	for _, r := range slices.Concat(decodeRefusals(), prefillRefusals(), otherRefusals()) {
		t.Run(r.call.Op()+"/"+r.name, func(t *testing.T) {
			err := r.call.Infer()
			if e := (&refusal{kind: r.kind, args: []string{r.arg}, request: -1}).check(r.call.Op(), err); e != nil {
				t.Error(e)
			}
			if err != nil && strings.Contains(err.Error(), "%!") {
				t.Errorf("garbled text: %v", err)
			}
		})
	}
}

// All reasons come at once.
func TestRefusalsTogether(t *testing.T) {
	c := goodDecode()
	c.WindowLeft, c.BMM1Scale, c.QLenPerReq, c.SeqLens = -2, math.NaN(), -1, attn.Of(attn.I64, 3)
	var args []string
	for _, e := range typedErrors(c.Infer()) {
		args = append(args, e.Arg)
	}
	for _, want := range []string{"window_left", "bmm1_scale", "q_len_per_req", "seq_lens"} {
		if !slices.Contains(args, want) {
			t.Errorf("reasons about %v, none about %s", args, want)
		}
	}
}

// What the rows above spoil is accepted whole, and accepting allocates nothing.
func TestAccepted(t *testing.T) {
	with := func(c *attn.DecodeCall, change func(*attn.DecodeCall)) *attn.DecodeCall { change(c); return c }
	calls := []attn.Call{
		goodDecode(), raggedDecode(), nvfp4Decode(), maskedDecode(), goodPrefill(), raggedPrefill(), e4m3Prefill(), goodAppend(), turningAppend(), goodNorm(), goodRoPE(),
		goodLinear(), goodSiLU(), goodEmbedding(), goodMerge(), goodCast(), goodArgmax(), goodSoftmax(), goodTopK(),
		with(maskedDecode(), func(c *attn.DecodeCall) { c.Backend = "xqa" }),
		with(goodDecode(), func(c *attn.DecodeCall) { c.Backend = "trtllm-gen" }),
		with(raggedDecode(), func(c *attn.DecodeCall) { c.Backend = "trtllm-gen" }),
		with(raggedDecode(), func(c *attn.DecodeCall) { c.QLenPerReq = 1 }),
		with(nvfp4Decode(), func(c *attn.DecodeCall) { c.Backend = "trtllm-gen" }),
		with(nvfp4Decode(), func(c *attn.DecodeCall) { c.SFStartRow = 122 }),
		with(nvfp4Decode(), func(c *attn.DecodeCall) { c.OSFVecSize = 0 }),
	}
	for _, name := range []string{"", "auto", "xqa", "trtllm-gen"} {
		for _, d := range []int{8, 80, 104, 512} { // a name never decides sizes
			calls = append(calls, with(goodDecode(), func(c *attn.DecodeCall) {
				c.Backend, c.QLenPerReq = name, 0
				c.Query, c.Key = attn.Of(attn.F16, 3, 14, d), attn.Of(attn.F16, 9, 2, 5, d)
				c.Value = c.Key
			}))
		}
	}
	for _, name := range []string{"", "auto", "cudnn", "cubin"} {
		for _, d := range []int{8, 80, 512} {
			c := goodPrefill()
			c.Backend, c.Query, c.Key, c.Value = name, attn.Of(attn.F16, 20, 14, d), attn.Of(attn.F16, 9, 2, 5, d), attn.Of(attn.F16, 9, 2, 5, 520-d-d%8)
			if d == 8 {
				c.Value = attn.Of(attn.F16, 9, 2, 5, 512)
			}
			calls = append(calls, c)
		}
	}
	for i, c := range calls {
		if err := c.Infer(); err != nil {
			t.Errorf("call %d, %s: %v", i, c.Op(), err)
			continue
		}
		if n := testing.AllocsPerRun(10, func() { _ = c.Infer() }); n != 0 {
			t.Errorf("call %d, %s: Infer allocates %v times", i, c.Op(), n)
		}
	}
}

// Of all triples of dtypes exactly the contract's are accepted, every other is an ErrDType.
func TestDTypeTables(t *testing.T) {
	var all []attn.DType
	for d := attn.F32; d <= attn.Q6_K; d++ {
		all = append(all, d)
	}
	try := func(op string, accepted [][3]attn.DType, infer func(q, kv, out attn.DType) error) {
		n := 0
		for _, q := range all {
			for _, kv := range all {
				for _, out := range all {
					err := infer(q, kv, out)
					triple := [3]attn.DType{q, kv, out}
					if slices.Contains(accepted, triple) {
						n++
						if err != nil {
							t.Errorf("%s: %v is refused: %v", op, triple, err)
						}
					} else if !errors.Is(err, attn.ErrDType) {
						t.Errorf("%s: %v gives %v, want ErrDType", op, triple, err)
					}
				}
			}
		}
		if n != len(accepted) {
			t.Errorf("%s: %d triples tried of %d accepted", op, n, len(accepted))
		}
	}
	for _, given := range []bool{false, true} {
		try(fmt.Sprintf("decode, out given %v", given), DecodeDTypes(), func(q, kv, out attn.DType) error {
			c := goodDecode()
			c.Query.DType, c.Key.DType, c.Value.DType, c.OutDType = q, kv, kv, out
			if out == attn.U8 {
				c.OSFScale = 1
			}
			if given {
				c.OutDType, c.Out = attn.Invalid, attn.Of(out, 6, 8, 64)
				if out == attn.U8 {
					c.Out = attn.Of(out, 6, 8, 32)
				}
			}
			return c.Infer()
		})
		try(fmt.Sprintf("prefill, out given %v", given), PrefillDTypes(), func(q, kv, out attn.DType) error {
			c := goodPrefill()
			c.Query.DType, c.Key.DType, c.Value.DType, c.OutDType = q, kv, kv, out
			if q == attn.E4M3 {
				c.QScale, c.KScale, c.VScale = attn.Of(attn.F32, 1), attn.Of(attn.F32, 1), attn.Of(attn.F32, 1)
			}
			if given {
				c.OutDType, c.Out = attn.Invalid, attn.Of(out, 20, 8, 64)
			}
			return c.Infer()
		})
	}
}

// Cache tensors become HND views; what is no cache is refused.
func TestCacheViews(t *testing.T) {
	hnd, err := attn.PagedView("decode", "kv_cache", attn.Of(attn.F16, 9, 2, 16, 64), attn.HND)
	if err != nil || hnd.Shape != [5]int{9, 2, 16, 64} || hnd.Stride != [5]int{2048, 1024, 64, 1} {
		t.Errorf("HND: %v %v, %v", hnd.Shape, hnd.Stride, err)
	}
	nhd, err := attn.PagedView("decode", "kv_cache", attn.Of(attn.F16, 9, 16, 2, 64), attn.NHD)
	if err != nil || nhd.Shape != [5]int{9, 2, 16, 64} || nhd.Stride != [5]int{2048, 64, 128, 1} {
		t.Errorf("NHD: %v %v, %v", nhd.Shape, nhd.Stride, err)
	}
	buf := make([]byte, 9*2*2*16*64*2)
	for _, layout := range []attn.Layout{attn.HND, attn.NHD} {
		shape := []int{9, 2, 2, 16, 64}
		if layout == attn.NHD {
			shape = []int{9, 2, 16, 2, 64}
		}
		whole := attn.Of(attn.F16, shape...)
		whole.Ptr = pointer(buf)
		k, v, err := attn.SplitStacked("decode", whole, layout)
		if err != nil || k.Shape != [5]int{9, 2, 16, 64} || v.Shape != k.Shape || k.Stride != v.Stride || k.Stride[0] != 4096 {
			t.Errorf("%v stacked: K %v %v, V %v %v, %v", layout, k.Shape, k.Stride, v.Shape, v.Stride, err)
		}
		if k.Ptr != whole.Ptr || v.Ptr != whole.At(2048) {
			t.Errorf("%v stacked: V doesn't begin half a page after K", layout)
		}
	}
	shared := attn.Of(attn.F16, 9, 1, 2, 16, 64)
	shared.Ptr = pointer(buf)
	if k, v, err := attn.SplitStacked("decode", shared, attn.HND); err != nil || k != v {
		t.Errorf("shared: %v %v %v", k, v, err)
	}
	for name, f := range map[string]func() error{
		"stacked of three": func() error {
			_, _, err := attn.SplitStacked("decode", attn.Of(attn.F16, 9, 3, 2, 16, 64), attn.HND)
			return err
		},
		"stacked of rank 4": func() error {
			_, _, err := attn.SplitStacked("decode", attn.Of(attn.F16, 9, 2, 16, 64), attn.HND)
			return err
		},
		"pair of rank 5": func() error {
			_, err := attn.PagedView("decode", "kv_cache", attn.Of(attn.F16, 9, 2, 2, 16, 64), attn.HND)
			return err
		},
	} {
		if e := (&refusal{kind: attn.ErrShape, args: []string{"kv_cache"}, request: -1}).check("decode", f()); e != nil {
			t.Errorf("%s: %v", name, e)
		}
	}
	for _, f := range []func() error{
		func() error {
			_, err := attn.PagedView("decode", "kv_cache", attn.Of(attn.F16, 9, 2, 16, 64), 2)
			return err
		},
		func() error {
			_, _, err := attn.SplitStacked("decode", attn.Of(attn.F16, 9, 2, 2, 16, 64), 7)
			return err
		},
	} {
		if e := (&refusal{kind: attn.ErrArgument, args: []string{"kv_layout"}, request: -1}).check("decode", f()); e != nil {
			t.Error(e)
		}
	}
}
