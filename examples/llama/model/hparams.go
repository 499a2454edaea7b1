package model

import (
	"fmt"

	"github.com/gaze-ml/gaze/examples/llama/gguf"
	"github.com/gaze-ml/gaze/ops"
)

// HParams are a model's sizes and constants, from the metadata of its file.
type HParams struct {
	Layers     int
	Hidden     int // width of the residual stream
	FFN        int // width inside the feed-forward layer
	Heads      int // query heads
	KVHeads    int
	HeadDim    int // of queries, keys and values
	Vocab      int // rows of the embedding
	MaxContext int // tokens that the model was trained for

	RMSEps      float64
	RoPEBase    float64
	RoPEDims    int             // of a head, the first ones; the rest is not rotated
	RoPEScaling ops.RoPEScaling // by the metadata; the tensor rope_freqs.weight may add its own
}

// What attention takes: heads of 8 to 512 elements, in eights.
const (
	headStep = 8
	maxHead  = 512
)

// ReadHParams reads and checks the sizes. An error is a [*gguf.Error] that names the key or tensor; it wraps
// [gguf.ErrUnsupported] for another architecture than llama, for experts, and for other RoPE scaling than linear and Llama 3's.
func ReadHParams(f *gguf.File) (HParams, error) {
	const arch = "llama"
	r := reader{f: f}
	if got := get[string](&r, "general.architecture"); r.err == nil && got != arch {
		r.fail("general.architecture", fmt.Sprintf("%q", got), fmt.Sprintf("%q", arch), gguf.ErrUnsupported)
	}
	if n := getOr(&r, arch+".expert_count", 0); n != 0 {
		r.fail(arch+".expert_count", fmt.Sprint(n), "0", gguf.ErrUnsupported)
	}
	h := HParams{
		Layers:     r.size(arch+".block_count", len(f.Tensors)),
		Hidden:     r.size(arch+".embedding_length", maxWidth),
		FFN:        r.size(arch+".feed_forward_length", maxWidth),
		Heads:      r.size(arch+".attention.head_count", maxWidth),
		MaxContext: r.size(arch+".context_length", maxContext),
		RMSEps:     get[float64](&r, arch+".attention.layer_norm_rms_epsilon"),
	}
	h.KVHeads = getOr(&r, arch+".attention.head_count_kv", h.Heads)
	r.check(arch+".attention.head_count_kv", h.KVHeads, h.KVHeads > 0 && h.Heads%max(1, h.KVHeads) == 0, fmt.Sprintf("a divisor of the %d heads", h.Heads))

	h.HeadDim = getOr(&r, arch+".attention.key_length", h.Hidden/max(1, h.Heads))
	r.check(arch+".attention.key_length", h.HeadDim, h.HeadDim > 0 && h.HeadDim <= maxHead && h.HeadDim%headStep == 0,
		fmt.Sprintf("a multiple of %d up to %d (without this key it is embedding_length / head_count)", headStep, maxHead))
	value := getOr(&r, arch+".attention.value_length", h.HeadDim)
	r.check(arch+".attention.value_length", value, value == h.HeadDim, fmt.Sprintf("%d, the length of a key", h.HeadDim))

	h.RoPEDims = getOr(&r, arch+".rope.dimension_count", h.HeadDim)
	r.check(arch+".rope.dimension_count", h.RoPEDims, h.RoPEDims > 0 && h.RoPEDims <= h.HeadDim && h.RoPEDims%2 == 0, fmt.Sprintf("an even number up to %d", h.HeadDim))
	h.RoPEBase = getOr(&r, arch+".rope.freq_base", 10_000.0)
	r.check(arch+".rope.freq_base", h.RoPEBase, h.RoPEBase >= 1 && h.RoPEBase < 1e12, "a number from 1 to 1e12")
	r.check(arch+".attention.layer_norm_rms_epsilon", h.RMSEps, h.RMSEps > 0 && h.RMSEps < 1, "a number between 0 and 1")
	h.RoPEScaling = r.ropeScaling(arch)
	h.Vocab = r.vocab(h.Hidden)
	return h, r.err
}

// Bounds of what a file may claim, far above any model, so that products fit an int.
const (
	maxWidth   = 1 << 20
	maxContext = 1 << 30
)

// reader reads keys until one is wrong.
type reader struct {
	f   *gguf.File
	err error
}

func (r *reader) fail(key, got, want string, kind error) {
	if r.err == nil {
		r.err = &gguf.Error{Item: fmt.Sprintf("key %q", key), Got: got, Want: want, Err: kind}
	}
}

func (r *reader) check(key string, got any, ok bool, want string) {
	if !ok {
		r.fail(key, fmt.Sprint(got), want, gguf.ErrFormat)
	}
}

func get[T gguf.Value](r *reader, key string) T {
	v, err := gguf.Get[T](r.f, key)
	if r.err == nil {
		r.err = err
	}
	return v
}

func getOr[T gguf.Value](r *reader, key string, missing T) T {
	v, err := gguf.GetOr(r.f, key, missing)
	if r.err == nil {
		r.err = err
	}
	return v
}

// size reads a count from 1 to most.
func (r *reader) size(key string, most int) int {
	n := get[int](r, key)
	r.check(key, n, n >= 1 && n <= most, fmt.Sprintf("1 to %d", most))
	return n
}

// ropeScaling reads linear scaling, of old files by its one key, and Llama 3's rule by the names of its configuration; files made by
// llama.cpp's converter hold that rule as the tensor rope_freqs.weight instead.
func (r *reader) ropeScaling(arch string) (s ops.RoPEScaling) {
	const prefix = ".rope.scaling."
	positive := func(key string, x, most float64) {
		r.check(key, x, x > 0 && x < most, "a number above 0")
	}
	switch kind := getOr(r, arch+prefix+"type", "none"); kind {
	case "none":
		key := arch + ".rope.scale_linear"
		if x := getOr(r, key, 1.0); x != 1 {
			positive(key, x, 1e6)
			s.Factor = x
		}
	case "linear":
		s.Factor = get[float64](r, arch+prefix+"factor")
		positive(arch+prefix+"factor", s.Factor, 1e6)
	case "llama3":
		s.Factor = get[float64](r, arch+prefix+"factor")
		positive(arch+prefix+"factor", s.Factor, 1e6)
		s.LowFreqFactor = get[float64](r, arch+prefix+"low_freq_factor")
		positive(arch+prefix+"low_freq_factor", s.LowFreqFactor, 1e6)
		s.HighFreqFactor = get[float64](r, arch+prefix+"high_freq_factor")
		r.check(arch+prefix+"high_freq_factor", s.HighFreqFactor, s.HighFreqFactor > s.LowFreqFactor, "more than low_freq_factor")
		s.OriginalContext = r.size(arch+prefix+"original_context_length", maxContext)
	default:
		r.fail(arch+prefix+"type", fmt.Sprintf("%q", kind), `"none", "linear" or "llama3"`, gguf.ErrUnsupported)
	}
	return s
}

// vocab returns the rows of the embedding, which every file has and whose width must fit.
func (r *reader) vocab(hidden int) int {
	t, err := r.f.Tensor("token_embd.weight")
	if r.err == nil {
		r.err = err
	}
	if r.err != nil {
		return 0
	}
	if len(t.Shape) != 2 || t.Shape[1] != hidden {
		r.err = &gguf.Error{Item: fmt.Sprintf("tensor %q", t.Name), Got: fmt.Sprintf("shape %v", t.Shape),
			Want: fmt.Sprintf("[vocab %d]", hidden), Err: gguf.ErrFormat}
	}
	return t.Shape[0]
}
