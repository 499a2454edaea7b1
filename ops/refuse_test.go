package ops_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/gaze-ml/gaze/ops"
)

type node = gorgonia.Node

// operandOf is one node that a constructor takes.
type operandOf struct {
	arg   string // its name in errors
	dt    tensor.Dtype
	shape []int
	free  []int // dimensions that may be larger: nothing else depends on them
}

// constructor is a constructor with valid operands.
type constructor struct {
	name     string
	op       string // its name in errors
	operands []operandOf
	build    func(n []*node) (*node, error)
}

var (
	f32, f16, bf16, e4m3, i32 = tensor.Float32, ops.Float16, ops.BFloat16, ops.Float8E4M3, tensor.Int32
	u8, u16                   = tensor.Uint8, tensor.Uint16
)

func firstOf(a, _ *node, err error) (*node, error) { return a, err }

func cacheNode(kv ops.KV[*node], err error) (*node, error) {
	if err != nil {
		return nil, err
	}
	return kv.Tensors()[0], nil
}

func rotatedQuery(kv ops.KV[*node], err error) (*node, error) {
	if err != nil {
		return nil, err
	}
	return ops.RotatedQuery(kv)
}

// Three requests over a pool of 5 pages of 4 tokens; 4 query heads, 2 KV heads, head dim 16.
var constructors = []constructor{
	{"decode, stacked, every node", "decode", []operandOf{
		{"query", bf16, []int{3, 4, 16}, nil}, {"kv_cache", bf16, []int{5, 2, 2, 4, 16}, []int{0, 3}}, {"block_tables", i32, []int{3, 4}, []int{1}},
		{"seq_lens", i32, []int{3}, nil}, {"bmm1_scale", f32, []int{1}, nil}, {"bmm2_scale", f32, []int{1}, nil}, {"sinks", f32, []int{4}, nil},
		{"mask", u16, []int{3, 1, 2}, nil}, {"workspace_buffer", u8, []int{100}, []int{0}}, {"out", bf16, []int{3, 4, 16}, nil}, {"lse", f32, []int{3, 4}, nil}},
		func(n []*node) (*node, error) {
			return ops.BatchDecode(n[0], ops.StackedKV(n[1], ops.HND), n[2], n[3], 16, ops.WithBMM1ScaleNode(n[4]), ops.WithBMM2ScaleNode(n[5]), ops.WithSinks(n[6]),
				ops.WithMask(n[7]), ops.WithWorkspace(n[8]), ops.WithOut(n[9]), ops.WithLSEOut(n[10]))
		}},
	{"decode, pair, variable queries", "decode", []operandOf{
		{"query", f16, []int{7, 4, 16}, []int{0}}, {"kv_cache", e4m3, []int{5, 4, 2, 16}, nil}, {"kv_cache", e4m3, []int{5, 4, 2, 16}, nil},
		{"block_tables", i32, []int{3, 4}, []int{1}}, {"seq_lens", tensor.Uint32, []int{3}, nil}, {"cum_seq_lens_q", i32, []int{4}, nil}},
		func(n []*node) (*node, error) {
			return ops.BatchDecode(n[0], ops.PairKV(n[1], n[2], ops.NHD), n[3], n[4], 0, ops.WithVarLenQueries(4, n[5]))
		}},
	{"decode, nvfp4", "decode", []operandOf{
		{"query", e4m3, []int{3, 4, 32}, nil}, {"kv_cache", e4m3, []int{5, 2, 2, 4, 32}, []int{0, 3}}, {"block_tables", i32, []int{3, 4}, []int{1}},
		{"seq_lens", i32, []int{3}, nil}, {"out", u8, []int{3, 4, 16}, nil}, {"out", e4m3, []int{128, 8}, nil}},
		func(n []*node) (*node, error) {
			return ops.BatchDecode(n[0], ops.StackedKV(n[1], ops.HND), n[2], n[3], 0, ops.WithFP4Out(n[4], n[5], 3), ops.WithOSFScale(300))
		}},
	{"prefill, paged, e4m3", "prefill", []operandOf{
		{"q", e4m3, []int{7, 4, 16}, nil}, {"k_cache", e4m3, []int{5, 2, 4, 16}, nil}, {"v_cache", e4m3, []int{5, 2, 4, 16}, nil},
		{"actual_seq_lens_q", i32, []int{3}, nil}, {"actual_seq_lens_kv", i32, []int{3}, nil}, {"block_tables", i32, []int{3, 4}, []int{1}},
		{"q_scale", f32, []int{1}, nil}, {"k_scale", f32, []int{1}, nil}, {"v_scale", f32, []int{1}, nil}, {"out", f16, []int{7, 4, 16}, nil}, {"lse", f32, []int{3, 5, 4}, nil}},
		func(n []*node) (*node, error) {
			return ops.BatchPrefill(n[0], ops.PairKV(n[1], n[2], ops.HND), 0.25, n[3], n[4], 5, 16, true, ops.WithBlockTables(n[5]), ops.WithScales(n[6], n[7], n[8]),
				ops.WithOut(n[9]), ops.WithLSEOut(n[10]))
		}},
	{"prefill, ragged, offsets", "prefill", []operandOf{
		{"q", f32, []int{7, 4, 16}, []int{0}}, {"k_cache", f32, []int{9, 2, 16}, nil}, {"v_cache", f32, []int{9, 2, 24}, nil},
		{"actual_seq_lens_q", i32, []int{3, 1, 1, 1}, nil}, {"actual_seq_lens_kv", i32, []int{3}, nil}, {"batch_offsets_q", i32, []int{3}, []int{0}}, {"batch_offsets_o", tensor.Int64, []int{4}, nil},
		{"batch_offsets_k", i32, []int{4}, nil}, {"batch_offsets_v", i32, []int{3}, []int{0}}, {"batch_offsets_stats", i32, []int{4}, nil}},
		func(n []*node) (*node, error) {
			return ops.BatchPrefill(n[0], ops.RaggedKV(n[1], n[2]), 0.25, n[3], n[4], 5, 16, false, ops.WithBatchOffsets(n[5], n[6], n[7], n[8], n[9]))
		}},
	{"append, stacked", "append_kv", []operandOf{
		{"kv_cache", e4m3, []int{5, 2, 2, 4, 16}, []int{0, 3}}, {"k", f16, []int{3, 2, 16}, nil}, {"v", f16, []int{3, 2, 16}, nil}, {"block_tables", i32, []int{3, 4}, []int{0, 1}},
		{"positions", i32, []int{3}, nil}, {"requests", i32, []int{3}, nil}},
		func(n []*node) (*node, error) {
			return cacheNode(ops.AppendKV(ops.StackedKV(n[0], ops.HND), n[1], n[2], n[3], n[4], n[5], ops.WithKVScales(2, 3)))
		}},
	{"append, pair, ranges", "append_kv", []operandOf{
		{"kv_cache", f32, []int{5, 2, 4, 16}, nil}, {"kv_cache", f32, []int{5, 2, 4, 8}, nil}, {"k", f32, []int{7, 2, 16}, nil}, {"v", f32, []int{7, 2, 8}, nil}, {"block_tables", i32, []int{3, 4}, []int{1}},
		{"cum_seq_lens", i32, []int{4}, nil}, {"start_positions", i32, []int{3}, nil}},
		func(n []*node) (*node, error) {
			return cacheNode(ops.AppendKVRanges(ops.PairKV(n[0], n[1], ops.HND), n[2], n[3], n[4], n[5], n[6]))
		}},
	{"append, RoPE", "append_kv", []operandOf{
		{"kv_cache", e4m3, []int{5, 2, 2, 4, 16}, []int{0, 3}}, {"k", f16, []int{3, 2, 16}, nil}, {"v", f16, []int{3, 2, 16}, nil}, {"block_tables", i32, []int{3, 4}, []int{0, 1}},
		{"positions", i32, []int{3}, nil}, {"requests", i32, []int{3}, nil}, {"factors", f32, []int{4}, nil}, {"query", f16, []int{3, 5, 16}, []int{1}}},
		func(n []*node) (*node, error) {
			return rotatedQuery(ops.AppendKV(ops.StackedKV(n[0], ops.HND), n[1], n[2], n[3], n[4], n[5], ops.WithRoPE(1e4), ops.WithRotaryDim(8), ops.WithRoPEFactors(n[6]),
				ops.WithRotatedQuery(n[7])))
		}},
	{"RMSNorm", "rms_norm", []operandOf{{"x", f16, []int{3, 32}, []int{0}}, {"weight", f32, []int{32}, nil}},
		func(n []*node) (*node, error) { return ops.RMSNorm(n[0], n[1], 1e-5) }},
	{"AddRMSNorm", "rms_norm", []operandOf{{"x", f32, []int{3, 32}, nil}, {"residual", f32, []int{3, 32}, nil}, {"weight", f32, []int{32}, nil}},
		func(n []*node) (*node, error) { return firstOf(ops.AddRMSNorm(n[0], n[1], n[2], 1e-5)) }},
	{"RoPE", "rope", []operandOf{{"x", bf16, []int{3, 4, 16}, []int{1}}, {"positions", i32, []int{3}, nil}, {"factors", f32, []int{8}, nil}},
		func(n []*node) (*node, error) { return ops.RoPE(n[0], n[1], 1e4, ops.WithRoPEFactors(n[2])) }},
	{"Linear", "linear", []operandOf{{"x", bf16, []int{3, 64}, []int{0}}, {"weight", ops.Q4_0, []int{10, 2}, nil}, {"bias", f32, []int{10}, nil}},
		func(n []*node) (*node, error) { return ops.Linear(n[0], n[1], ops.WithBias(n[2])) }},
	{"SiLUMul", "silu_mul", []operandOf{{"gate", f16, []int{3, 32}, nil}, {"up", f16, []int{3, 32}, nil}},
		func(n []*node) (*node, error) { return ops.SiLUMul(n[0], n[1]) }},
	{"Embedding", "embedding", []operandOf{{"ids", i32, []int{3}, []int{0}}, {"weight", ops.Q6_K, []int{9, 1}, []int{0, 1}}},
		func(n []*node) (*node, error) { return ops.Embedding(n[0], n[1], ops.WithOutDType(f16)) }},
	{"Cast", "cast", []operandOf{{"x", bf16, []int{3, 4, 16}, []int{0, 1, 2}}},
		func(n []*node) (*node, error) { return ops.Cast(n[0], f32) }},
	{"Argmax", "argmax", []operandOf{{"x", bf16, []int{3, 32}, []int{0, 1}}},
		func(n []*node) (*node, error) { return ops.Argmax(n[0]) }},
	{"Softmax", "softmax", []operandOf{{"logits", bf16, []int{3, 32}, []int{0, 1}}},
		func(n []*node) (*node, error) { return ops.Softmax(n[0], ops.WithTemperature(0.5)) }},
	{"TopK", "top_k", []operandOf{{"logits", f16, []int{3, 32}, []int{0, 1}}},
		func(n []*node) (*node, error) { return firstOf(ops.TopK(n[0], 5)) }},
	{"MergeLSE", "merge_lse", []operandOf{{"out_a", f16, []int{3, 4, 16}, nil}, {"lse_a", f32, []int{3, 4}, nil}, {"out_b", f16, []int{3, 4, 16}, nil}, {"lse_b", f32, []int{3, 4}, nil}},
		func(n []*node) (*node, error) { return firstOf(ops.MergeLSE(n[0], n[1], n[2], n[3])) }},
	{"Reshape", "reshape", []operandOf{{"x", bf16, []int{3, 32}, nil}},
		func(n []*node) (*node, error) { return ops.Reshape(n[0], 3, 2, 16) }},
}

func input(g *gorgonia.ExprGraph, i int, dt tensor.Dtype, shape ...int) *node {
	return gorgonia.NewTensor(g, dt, len(shape), gorgonia.WithShape(shape...), gorgonia.WithName(fmt.Sprint("in", i, dt, shape)))
}

func (c *constructor) nodes(g *gorgonia.ExprGraph) []*node {
	ns := make([]*node, len(c.operands))
	for i, o := range c.operands {
		ns[i] = input(g, i, o.dt, o.shape...)
	}
	return ns
}

// wantRefusal looks for a typed error of one of the kinds that names op, argument, got and want.
func wantRefusal(t *testing.T, what string, err error, op, arg string, kinds ...error) {
	t.Helper()
	found := false
	for _, e := range flatten(err) {
		var typed *ops.Error
		if !errors.As(e, &typed) || typed.Got == "" || typed.Want == "" || typed.Op != op {
			t.Errorf("%s: %v, want errors of %s with got and want", what, e, op)
			continue
		}
		kind := slices.ContainsFunc(kinds, func(k error) bool { return errors.Is(e, k) })
		found = found || kind && (arg == "" || typed.Arg == arg)
	}
	if !found {
		t.Errorf("%s: %v, want %v about %q", what, err, kinds, arg)
	}
}

// flatten gives the errors that were joined.
func flatten(err error) []error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var all []error
		for _, e := range joined.Unwrap() {
			all = append(all, flatten(e)...)
		}
		return all
	}
	if err == nil {
		return nil
	}
	return []error{err}
}

func TestConstructorsRefuseOperands(t *testing.T) {
	for _, c := range constructors {
		t.Run(c.name, func(t *testing.T) {
			g := gorgonia.NewGraph()
			if _, err := c.build(c.nodes(g)); err != nil {
				t.Fatal(err)
			}
			for i, o := range c.operands {
				try := func(change func(n []*node)) error {
					n := c.nodes(g)
					change(n)
					count := len(g.AllNodes())
					_, err := c.build(n)
					if err != nil && len(g.AllNodes()) != count {
						t.Errorf("%s: a refused op left nodes behind", o.arg)
					}
					return err
				}
				if !strings.HasPrefix(o.arg, "batch_offsets") { // where nil means packed
					wantRefusal(t, o.arg+" nil", try(func(n []*node) { n[i] = nil }), c.op, o.arg, ops.ErrArgument)
				}
				if len(c.operands) > 1 {
					err := try(func(n []*node) { n[i] = input(gorgonia.NewGraph(), i, o.dt, o.shape...) })
					arg := o.arg
					if i == 0 {
						arg = c.operands[1].arg // the graph is the first argument's
					}
					wantRefusal(t, o.arg+" of another graph", err, c.op, arg, ops.ErrArgument)
				}
				if c.op == "reshape" {
					continue
				}
				if o.arg != "workspace_buffer" {
					arg := o.arg
					if arg == "out" { // a given buffer is a way of asking for its dtype
						arg = ""
					}
					for _, dt := range []tensor.Dtype{tensor.Float64, tensor.Int, tensor.Bool} {
						err := try(func(n []*node) { n[i] = input(g, i, dt, o.shape...) })
						wantRefusal(t, fmt.Sprint(o.arg, " ", dt), err, c.op, arg, ops.ErrDType)
					}
				}
				if scale := strings.HasSuffix(o.arg, "_scale"); !scale && c.op != "cast" && !strings.HasPrefix(o.arg, "batch_offsets") && o.arg != "workspace_buffer" {
					err := try(func(n []*node) { n[i] = input(g, i, o.dt, append([]int{1}, o.shape...)...) })
					wantRefusal(t, o.arg+" of a higher rank", err, c.op, o.arg, ops.ErrShape, ops.ErrArgument)
				}
				for d := range o.shape {
					larger := slices.Clone(o.shape)
					larger[d]++
					err := try(func(n []*node) { n[i] = input(g, i, o.dt, larger...) })
					if slices.Contains(o.free, d) {
						if err != nil {
							t.Errorf("%s %v: %v, want no error", o.arg, larger, err)
						}
						continue
					}
					kinds := []error{ops.ErrShape}
					if c.op == "rope" { // an odd head dim is an odd rotary_dim
						kinds = append(kinds, ops.ErrArgument)
					}
					wantRefusal(t, fmt.Sprint(o.arg, " ", larger), err, c.op, "", kinds...)
				}
			}
		})
	}
}
