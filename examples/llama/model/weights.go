package model

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"unsafe"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/gaze-ml/gaze/examples/llama/gguf"
	"github.com/gaze-ml/gaze/graph"
	"github.com/gaze-ml/gaze/ops"
)

// dtypes are gaze's names of the file's element types. A block type's elements are whole blocks.
var dtypes = map[gguf.Type]tensor.Dtype{
	gguf.F32: tensor.Float32, gguf.F16: ops.Float16, gguf.BF16: ops.BFloat16, gguf.Q8_0: ops.Q8_0, gguf.Q4_0: ops.Q4_0, gguf.Q4_1: ops.Q4_1,
	gguf.Q5_0: ops.Q5_0, gguf.Q5_1: ops.Q5_1, gguf.Q4_K: ops.Q4_K, gguf.Q5_K: ops.Q5_K, gguf.Q6_K: ops.Q6_K,
}

// weights are a file's tensors, where they lie in the file or, once uploaded, on a device.
type weights struct {
	h       HParams
	device  graph.Device // nil: in the file
	owned   []*tensor.Dense
	tensors map[string]*tensor.Dense // nil: an optional one that the file lacks
	scales  []kvScale                // of each layer's cache, of 8 bits; else nil
}

// loadWeights takes the tensors of a Llama from its file, which must stay open. An error is a [*gguf.Error] that names the
// tensor that is missing, has another shape or type, or is none of this architecture's.
func loadWeights(f *gguf.File, h HParams) (*weights, error) {
	w := &weights{h: h, tensors: map[string]*tensor.Dense{}}
	l := loader{f: f, to: w.tensors}
	q, kv := h.Heads*h.HeadDim, h.KVHeads*h.HeadDim
	l.need("token_embd.weight", h.Vocab, h.Hidden)
	l.need("output_norm.weight", h.Hidden)
	l.may("output.weight", h.Vocab, h.Hidden)
	l.may("rope_freqs.weight", h.RoPEDims/2)
	for i := range h.Layers {
		name := func(s string) string { return fmt.Sprintf("blk.%d.%s", i, s) }
		l.need(name("attn_norm.weight"), h.Hidden)
		l.need(name("attn_q.weight"), q, h.Hidden)
		l.need(name("attn_k.weight"), kv, h.Hidden)
		l.need(name("attn_v.weight"), kv, h.Hidden)
		l.need(name("attn_output.weight"), h.Hidden, q)
		l.may(name("attn_q.bias"), q)
		l.may(name("attn_k.bias"), kv)
		l.may(name("attn_v.bias"), kv)
		l.need(name("ffn_norm.weight"), h.Hidden)
		l.need(name("ffn_gate.weight"), h.FFN, h.Hidden)
		l.need(name("ffn_up.weight"), h.FFN, h.Hidden)
		l.need(name("ffn_down.weight"), h.Hidden, h.FFN)
	}
	return w, errors.Join(l.err, l.foreign())
}

// loader takes tensors until one is wrong.
type loader struct {
	f   *gguf.File
	to  map[string]*tensor.Dense
	err error
}

// foreign refuses a tensor that nobody asked for: a model with more parts than these would run, and say nonsense.
func (l *loader) foreign() error {
	if l.err != nil {
		return nil
	}
	for _, t := range l.f.Tensors {
		old := strings.Contains(t.Name, ".attn_rot_embd") // RoPE's plain frequencies, which old files hold
		if l.to[t.Name] == nil && !old {
			return &gguf.Error{Item: fmt.Sprintf("tensor %q", t.Name), Got: fmt.Sprintf("%v of shape %v", t.Type, t.Shape), Want: "none of that name in a llama", Err: gguf.ErrUnsupported}
		}
	}
	return nil
}

func (l *loader) may(name string, shape ...int) {
	if _, ok := l.f.Lookup(name); ok {
		l.need(name, shape...)
	}
}

func (l *loader) need(name string, shape ...int) {
	if l.err != nil {
		return
	}
	t, err := l.f.Tensor(name)
	switch {
	case err != nil:
		l.err = err
	case !slices.Equal(t.Shape, shape):
		l.err = &gguf.Error{Item: fmt.Sprintf("tensor %q", name), Got: fmt.Sprintf("shape %v", t.Shape), Want: fmt.Sprint(shape), Err: gguf.ErrFormat}
	case len(shape) == 1 && t.Type != gguf.F32:
		l.err = &gguf.Error{Item: fmt.Sprintf("tensor %q", name), Got: t.Type.String(), Want: "F32", Err: gguf.ErrUnsupported}
	default:
		l.to[name] = inPlace(t)
	}
}

// inPlace makes a tensor over the file's bytes, or over a copy where they aren't aligned for the type.
func inPlace(t gguf.Tensor) *tensor.Dense {
	dt, shape, data := dtypes[t.Type], slices.Clone(t.Shape), t.Data
	shape[len(shape)-1] /= t.Type.BlockElems()
	if address(data)%uintptr(dt.Align()) != 0 {
		aligned := make([]uint64, (len(data)+7)/8)
		data = unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(aligned))), len(data))
		copy(data, t.Data)
	}
	d := tensor.New(tensor.Of(dt), tensor.WithShape(shape...), tensor.FromMemory(address(data), uintptr(len(data))))
	runtime.KeepAlive(data)
	return d
}

func address(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }

// nodes makes the inputs of one graph.
func (w *weights) nodes(g *gorgonia.ExprGraph) (graph.LlamaConfig, graph.LlamaWeights, error) {
	var err error
	in := func(name string) (n *gorgonia.Node) {
		if w.tensors[name] != nil && err == nil {
			n, err = graph.Input(g, name, w.tensors[name])
		}
		return n
	}
	h := w.h
	act := tensor.Float32
	if w.device != nil {
		act = deviceDType
	}
	cfg := graph.LlamaConfig{DType: act, LayerConfig: graph.LayerConfig{Heads: h.Heads, KVHeads: h.KVHeads, HeadDim: h.HeadDim, Eps: h.RMSEps,
		RoPE: graph.RoPEConfig{Base: h.RoPEBase, Pairing: ops.Adjacent, Dim: h.RoPEDims, Scaling: h.RoPEScaling, Factors: in("rope_freqs.weight")}}}
	m := graph.LlamaWeights{Embedding: in("token_embd.weight"), Norm: in("output_norm.weight"), Head: in("output.weight")}
	for i := range h.Layers {
		at := func(s string) *gorgonia.Node { return in(fmt.Sprintf("blk.%d.%s", i, s)) }
		l := graph.LayerWeights{
			AttnNorm: at("attn_norm.weight"), Q: at("attn_q.weight"), K: at("attn_k.weight"), V: at("attn_v.weight"), O: at("attn_output.weight"),
			QBias: at("attn_q.bias"), KBias: at("attn_k.bias"), VBias: at("attn_v.bias"),
			MLPNorm: at("ffn_norm.weight"), Gate: at("ffn_gate.weight"), Up: at("ffn_up.weight"), Down: at("ffn_down.weight"),
		}
		if w.scales != nil {
			l.KScale, l.VScale = w.scales[i].k, w.scales[i].v
		}
		m.Layers = append(m.Layers, l)
	}
	return cfg, m, err
}
