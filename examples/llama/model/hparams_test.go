package model

import (
	"errors"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/gaze-ml/gaze/examples/llama/gguf"
	"github.com/gaze-ml/gaze/examples/llama/internal/tinymodel"
	"github.com/gaze-ml/gaze/ops"
)

func readChanged(t *testing.T, change map[string]any) (HParams, error) {
	t.Helper()
	f := tinymodel.New(tinymodel.Plain, 20)
	for key, value := range change {
		f.Keys[key] = value // nil: without it
	}
	file, err := gguf.Parse(f.Bytes(t, nil))
	if err != nil {
		t.Fatal(err)
	}
	return ReadHParams(file)
}

func TestHParams(t *testing.T) {
	got, err := readChanged(t, nil)
	want := HParams{Layers: 2, Hidden: 64, FFN: 96, Heads: 6, KVHeads: 2, HeadDim: 16, Vocab: 50, MaxContext: 160, RMSEps: float64(float32(1e-5)), RoPEBase: 10_000, RoPEDims: 16}
	if err != nil || got != want {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
	// What may be missing follows from the rest.
	got, err = readChanged(t, map[string]any{"llama.attention.head_count": uint32(8), "llama.attention.head_count_kv": nil, "llama.attention.key_length": nil, "llama.attention.value_length": nil,
		"llama.rope.freq_base": nil})
	want.Heads, want.KVHeads, want.HeadDim, want.RoPEDims = 8, 8, 8, 8
	if err != nil || got != want {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
	got, err = readChanged(t, map[string]any{"llama.rope.dimension_count": uint32(8), "llama.rope.freq_base": float32(500_000), "llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": float32(4)})
	want.Heads, want.KVHeads, want.HeadDim, want.RoPEDims, want.RoPEBase, want.RoPEScaling = 6, 2, 16, 8, 500_000, ops.RoPEScaling{Factor: 4}
	if err != nil || got != want {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
}

// Hostile and absurd metadata are refused with an error that names the key, what it got and what it wants.
func TestBadHParams(t *testing.T) {
	llama3 := map[string]any{"llama.rope.scaling.type": "llama3", "llama.rope.scaling.factor": float32(8), "llama.rope.scaling.low_freq_factor": float32(1),
		"llama.rope.scaling.high_freq_factor": float32(4), "llama.rope.scaling.original_context_length": uint32(64)}
	for _, c := range []struct {
		key   string
		value any
		kind  error
		with  map[string]any
	}{
		{"general.architecture", "mamba", gguf.ErrUnsupported, nil},
		{"general.architecture", nil, gguf.ErrMissing, nil},
		{"general.architecture", uint32(1), gguf.ErrType, nil},
		{"llama.expert_count", uint32(8), gguf.ErrUnsupported, nil},
		{"llama.block_count", nil, gguf.ErrMissing, nil},
		{"llama.block_count", uint32(0), gguf.ErrFormat, nil},
		{"llama.block_count", uint32(1_000_000_000), gguf.ErrFormat, nil}, // more than tensors
		{"llama.block_count", uint64(math.MaxUint64), gguf.ErrType, nil},
		{"llama.embedding_length", "wide", gguf.ErrType, nil},
		{"llama.embedding_length", uint32(0), gguf.ErrFormat, nil},
		{"llama.embedding_length", uint64(1 << 40), gguf.ErrFormat, nil},
		{"token_embd.weight", nil, gguf.ErrFormat, map[string]any{"llama.embedding_length": uint32(16)}}, // not the embedding's width
		{"llama.feed_forward_length", int32(-1), gguf.ErrFormat, nil},
		{"llama.feed_forward_length", uint32(0), gguf.ErrFormat, nil},
		{"llama.attention.head_count", uint32(0), gguf.ErrFormat, nil},
		{"llama.attention.head_count", uint64(1 << 50), gguf.ErrFormat, nil},
		{"llama.attention.head_count_kv", uint32(4), gguf.ErrFormat, nil},
		{"llama.attention.head_count", []uint32{4}, gguf.ErrType, nil}, // a number for each layer
		{"llama.attention.head_count_kv", uint32(5), gguf.ErrFormat, nil},
		{"llama.attention.head_count_kv", uint32(0), gguf.ErrFormat, nil},
		{"llama.attention.key_length", uint32(7), gguf.ErrFormat, nil},
		{"llama.attention.key_length", uint32(0), gguf.ErrFormat, nil},
		{"llama.attention.key_length", uint32(520), gguf.ErrFormat, nil},
		{"llama.attention.key_length", nil, gguf.ErrFormat, map[string]any{"llama.attention.head_count": uint32(9), "llama.attention.head_count_kv": uint32(9)}}, // 64/9 = 7
		{"llama.attention.value_length", uint32(8), gguf.ErrFormat, nil},
		{"llama.context_length", uint32(0), gguf.ErrFormat, nil},
		{"llama.context_length", uint64(1 << 40), gguf.ErrFormat, nil},
		{"llama.context_length", nil, gguf.ErrMissing, nil},
		{"llama.attention.layer_norm_rms_epsilon", float32(-1), gguf.ErrFormat, nil},
		{"llama.attention.layer_norm_rms_epsilon", float32(math.NaN()), gguf.ErrFormat, nil},
		{"llama.attention.layer_norm_rms_epsilon", nil, gguf.ErrMissing, nil},
		{"llama.rope.dimension_count", uint32(18), gguf.ErrFormat, nil},
		{"llama.rope.dimension_count", uint32(0), gguf.ErrFormat, nil},
		{"llama.rope.freq_base", float32(0), gguf.ErrFormat, nil},
		{"llama.rope.freq_base", float32(math.Inf(1)), gguf.ErrFormat, nil},
		{"llama.rope.scale_linear", float32(0), gguf.ErrFormat, nil},
		{"llama.rope.scaling.type", "yarn", gguf.ErrUnsupported, nil},
		{"llama.rope.scaling.factor", nil, gguf.ErrMissing, map[string]any{"llama.rope.scaling.type": "linear"}},
		{"llama.rope.scaling.factor", float32(-2), gguf.ErrFormat, llama3},
		{"llama.rope.scaling.low_freq_factor", float32(0), gguf.ErrFormat, llama3},
		{"llama.rope.scaling.high_freq_factor", float32(1), gguf.ErrFormat, llama3},
		{"llama.rope.scaling.original_context_length", uint32(0), gguf.ErrFormat, llama3},
		{"llama.rope.scaling.original_context_length", nil, gguf.ErrMissing, llama3},
	} {
		change := map[string]any{}
		for key, value := range c.with {
			change[key] = value
		}
		if c.key != "token_embd.weight" {
			change[c.key] = c.value
		}
		_, err := readChanged(t, change)
		var typed *gguf.Error
		if !errors.As(err, &typed) || !errors.Is(err, c.kind) || !strings.Contains(typed.Item, c.key) || typed.Got == "" || typed.Want == "" {
			t.Errorf("%s = %v: got %v, want %q about it", c.key, c.value, err, c.kind)
		}
	}
}

// A tensor that is missing, has another shape or type, or isn't a Llama's is refused by its name.
func TestOpenRefusesTensors(t *testing.T) {
	s := tinymodel.Plain
	s.Biases, s.Tied = true, false
	f := tinymodel.New(s, 21)
	f.AddValues("rope_freqs.weight", gguf.F32, make([]float32, 8), 8)
	optional := []string{"output.weight", "rope_freqs.weight", "attn_q.bias", "attn_k.bias", "attn_v.bias"}
	refused := func(what, name string, data []byte) {
		t.Helper()
		file, err := gguf.Parse(data)
		if err != nil {
			t.Fatal(err)
		}
		h, err := ReadHParams(file)
		if err == nil {
			_, err = Open(file, h, config(1, 16))
		}
		var e *gguf.Error
		if !errors.As(err, &e) || !strings.Contains(e.Item, name) || e.Got == "" || e.Want == "" {
			t.Errorf("%s: %s: %v, want a *gguf.Error that names it", name, what, err)
		}
	}
	for _, x := range f.Tensors {
		edit := func(change func(*gguf.Tensor) bool) []byte {
			return f.Bytes(t, func(y *gguf.Tensor) bool { return y.Name != x.Name || change(y) })
		}
		if !slices.ContainsFunc(optional, func(name string) bool { return strings.HasSuffix(x.Name, name) }) {
			refused("missing", x.Name, edit(func(*gguf.Tensor) bool { return false }))
		}
		if x.Name != "token_embd.weight" { // its rows are the vocabulary
			refused("a row too many", x.Name, edit(func(y *gguf.Tensor) bool {
				y.Data = append(slices.Clone(y.Data), make([]byte, len(y.Data)/y.Shape[0])...)
				y.Shape[0]++
				return true
			}))
		}
		refused("another rank", x.Name, edit(func(y *gguf.Tensor) bool { y.Shape = append([]int{1}, y.Shape...); return true }))
		if len(x.Shape) == 1 {
			refused("half precision", x.Name, edit(func(y *gguf.Tensor) bool {
				y.Type, y.Data = gguf.F16, y.Data[:len(y.Data)/2]
				return true
			}))
		} else {
			refused("transposed", x.Name, edit(func(y *gguf.Tensor) bool {
				y.Shape[0], y.Shape[1] = y.Shape[1], y.Shape[0]
				return y.Shape[0] != y.Shape[1]
			}))
		}
	}
	for _, name := range []string{"blk.0.attn_output.bias", "blk.1.ffn_gate_inp.weight", "blk.0.attn_q_norm.weight", "blk.2.attn_norm.weight", "adapter"} {
		foreign := *f
		foreign.Tensors = append(slices.Clone(f.Tensors), gguf.Tensor{Name: name, Type: gguf.F32, Shape: []int{8}, Data: make([]byte, 32)})
		refused("not a Llama's", name, foreign.Bytes(t, nil))
	}
	f.AddValues("blk.0.attn_rot_embd.weight", gguf.F32, make([]float32, 8), 8)
	open(t, f.Bytes(t, nil), config(1, 16))
}

// A hostile file makes no large allocation: its sizes are bounded by its bytes before anything is made of them.
func TestHostileSizes(t *testing.T) {
	for name, change := range map[string]map[string]any{
		"wide MLP":       {"llama.feed_forward_length": uint32(1 << 20)},
		"long heads":     {"llama.attention.key_length": uint32(512), "llama.attention.value_length": uint32(512), "llama.attention.head_count": uint32(1 << 20), "llama.attention.head_count_kv": uint32(1 << 20)},
		"long context":   {"llama.context_length": uint32(1 << 30)},
		"as many layers": {"llama.block_count": uint32(20)},
	} {
		f := tinymodel.New(tinymodel.Plain, 22)
		for key, value := range change {
			f.Keys[key] = value
		}
		file, h := parse(t, f.Bytes(t, nil))
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		m, err := Open(file, h, config(1, 16))
		runtime.ReadMemStats(&after)
		if err == nil {
			err = m.Close()
		}
		if (err == nil) != (name == "long context") {
			t.Errorf("%s: %v", name, err)
		}
		allocated := after.TotalAlloc - before.TotalAlloc
		if allocated > 4<<20 {
			t.Errorf("%s: %d bytes allocated for a file of %d", name, allocated, len(f.Bytes(t, nil)))
		}
	}
}
