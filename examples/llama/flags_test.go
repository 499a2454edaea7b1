package main

import (
	"bytes"
	"errors"
	"flag"
	"io"
	"strings"
	"testing"

	"github.com/gaze-ml/gaze/examples/llama/gguf"
	"github.com/gaze-ml/gaze/examples/llama/sample"
)

func TestFlags(t *testing.T) {
	got, err := parseFlags([]string{"-model", "m", "-p", "x"}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	want := options{model: "m", prompt: "x", tokens: 256, pageSize: 16, kvType: "f32", sampling: sample.Params{TopK: 40, TopP: 0.95, RepeatPenalty: 1, RepeatLast: 64}}
	if got != want {
		t.Errorf("defaults: got %+v, want %+v", got, want)
	}
	got, err = parseFlags(strings.Fields("-model=m -p x -system s -n 7 -ctx 9 -temp 0.5 -top-k 3 -top-p 0.25 -min-p 0.125 -repeat-penalty 1.5 "+
		"-repeat-last 5 -seed 18446744073709551615 -threads 2 -page-size 64 -kv-type bf16 -v"), io.Discard)
	want = options{model: "m", prompt: "x", system: "s", tokens: 7, context: 9, threads: 2, pageSize: 64, kvType: "bf16", verbose: true, sampling: sample.Params{
		Temperature: 0.5, TopK: 3, TopP: 0.25, MinP: 0.125, RepeatPenalty: 1.5, RepeatLast: 5, Seed: 1<<64 - 1}}
	if err != nil || got != want {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
	if got.sampling.Validate() != nil {
		t.Error("the flags allow what the sampler refuses")
	}
}

func TestBadFlags(t *testing.T) {
	for args, name := range map[string]string{
		"-p x": "model", "-model m": "p", "-model m -p x -system s -raw": "system", "-model m -p x more words": "p",
		"-n -1": "n", "-n 1.5": "n", "-n many": "n", "-n 99999999999999999999": "n", "-ctx -1": "ctx", "-temp -0.1": "temp", "-temp NaN": "temp",
		"-temp Inf": "temp", "-temp hot": "temp", "-top-k -1": "top-k", "-top-p 1.1": "top-p", "-top-p -1": "top-p", "-min-p 2": "min-p",
		"-repeat-penalty -1": "repeat-penalty", "-repeat-last 0": "repeat-last", "-seed -1": "seed", "-threads -1": "threads",
		"-threads 5000": "threads", "-page-size 0": "page-size", "-kv-type f8": "kv-type", "-model m -p x -page-size 24": "page-size",
	} {
		_, err := parseFlags(strings.Fields(args), io.Discard)
		var typed *flagError
		if !errors.As(err, &typed) || typed.Flag != name || typed.Got == "" || typed.Want == "" {
			t.Errorf("%s: got %v, want a *flagError for -%s", args, err, name)
		}
	}
	if _, err := parseFlags([]string{"-frobnicate"}, io.Discard); err == nil || !strings.Contains(err.Error(), "-frobnicate") {
		t.Errorf("an unknown flag: %v", err)
	}
	var usage bytes.Buffer
	if _, err := parseFlags([]string{"-h"}, &usage); !errors.Is(err, flag.ErrHelp) {
		t.Errorf("-h: %v", err)
	}
	for _, name := range []string{"model", "p", "system", "n", "ctx", "temp", "top-k", "top-p", "min-p", "repeat-penalty", "seed", "threads", "raw", "v", "page-size", "kv-type"} {
		if !strings.Contains(usage.String(), "  -"+name+" ") && !strings.Contains(usage.String(), "  -"+name+"\t") && !strings.Contains(usage.String(), "  -"+name+"\n") {
			t.Errorf("the usage doesn't say -%s:\n%s", name, &usage)
		}
	}
}

func readChanged(t *testing.T, change map[string]any) (hparams, error) {
	t.Helper()
	f, err := gguf.Open(writeModel(t, change))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	return readHParams(f)
}

func TestHParams(t *testing.T) {
	got, err := readChanged(t, nil)
	want := hparams{Layers: 1, Hidden: 8, FFN: 16, Heads: 4, KVHeads: 2, HeadDim: 2, Vocab: vocabSize, MaxContext: 100,
		RMSEps: float64(float32(1e-5)), RopeBase: 10_000, RopeDims: 2, RopeScale: 1}
	if err != nil || got != want {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
	got, err = readChanged(t, map[string]any{"llama.attention.head_count_kv": nil, "llama.attention.key_length": uint32(16), "llama.rope.dimension_count": uint32(8),
		"llama.rope.freq_base": float32(500_000), "llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": float32(4)})
	want.KVHeads, want.HeadDim, want.RopeDims, want.RopeBase, want.RopeScale = 4, 16, 8, 500_000, 4
	if err != nil || got != want {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
}

func TestBadHParams(t *testing.T) {
	for _, c := range []struct {
		key   string
		value any
		kind  error
	}{
		{"general.architecture", "mamba", gguf.ErrUnsupported},
		{"general.architecture", nil, gguf.ErrMissing},
		{"llama.expert_count", uint32(8), gguf.ErrUnsupported},
		{"llama.block_count", nil, gguf.ErrMissing},
		{"llama.block_count", uint32(0), gguf.ErrFormat},
		{"llama.block_count", uint32(1 << 30), gguf.ErrFormat}, // more than tensors
		{"llama.embedding_length", "wide", gguf.ErrType},
		{"llama.embedding_length", uint32(16), gguf.ErrFormat}, // not the embedding's width
		{"llama.embedding_length", uint64(1 << 40), gguf.ErrFormat},
		{"llama.feed_forward_length", int32(-1), gguf.ErrFormat},
		{"llama.attention.head_count", uint32(0), gguf.ErrFormat},
		{"llama.attention.head_count", uint32(3), gguf.ErrFormat},
		{"llama.attention.head_count", []uint32{4}, gguf.ErrType}, // a number for each layer
		{"llama.attention.head_count_kv", uint32(3), gguf.ErrFormat},
		{"llama.attention.head_count_kv", uint32(0), gguf.ErrFormat},
		{"llama.attention.key_length", uint32(3), gguf.ErrFormat},
		{"llama.attention.value_length", uint32(4), gguf.ErrFormat},
		{"llama.context_length", uint32(0), gguf.ErrFormat},
		{"llama.attention.layer_norm_rms_epsilon", float32(-1), gguf.ErrFormat},
		{"llama.rope.dimension_count", uint32(4), gguf.ErrFormat},
		{"llama.rope.freq_base", float32(0), gguf.ErrFormat},
		{"llama.rope.scaling.type", "yarn", gguf.ErrUnsupported},
		{"llama.rope.scaling.type", "linear", gguf.ErrMissing}, // the factor
	} {
		_, err := readChanged(t, map[string]any{c.key: c.value})
		var typed *gguf.Error
		if !errors.As(err, &typed) || !errors.Is(err, c.kind) {
			t.Errorf("%s = %v: got %v, want %q", c.key, c.value, err, c.kind)
		}
	}
}
