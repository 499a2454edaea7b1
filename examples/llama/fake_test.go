package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/gaze-ml/gaze/examples/llama/gguf"
)

// Tokens of the file that the tests run on: a SentencePiece vocabulary of marks, bytes and the space.
const (
	unkID, bosID, eosID = 0, 1, 2
	firstByte           = 3
	spaceID             = firstByte + 256
	vocabSize           = spaceID + 1
)

// ids spells text in tokens of one byte.
func ids(text string) (out []int32) {
	for _, b := range []byte(text) {
		if id := firstByte + int32(b); b != ' ' {
			out = append(out, id)
		} else {
			out = append(out, spaceID)
		}
	}
	return out
}

const template = "{{ bos_token }}{% for m in messages %}[{{ m.role }}]{{ m.content }}{{ eos_token }}{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}"

// metadata is that of a tiny Llama without weights.
func metadata() map[string]any {
	tokens, types := []string{"<unk>", "<s>", "</s>"}, []int32{2, 3, 3}
	for b := range 256 {
		tokens, types = append(tokens, fmt.Sprintf("<0x%02X>", b)), append(types, 6)
	}
	tokens, types = append(tokens, "▁"), append(types, 1)
	return map[string]any{
		"general.architecture":                   "llama",
		"llama.block_count":                      uint32(1),
		"llama.embedding_length":                 uint32(8),
		"llama.feed_forward_length":              uint32(16),
		"llama.attention.head_count":             uint32(4),
		"llama.attention.head_count_kv":          uint32(2),
		"llama.context_length":                   uint32(100),
		"llama.attention.layer_norm_rms_epsilon": float32(1e-5),
		"tokenizer.ggml.model":                   "llama",
		"tokenizer.ggml.tokens":                  tokens,
		"tokenizer.ggml.token_type":              types,
		"tokenizer.ggml.scores":                  make([]float32, len(tokens)),
		"tokenizer.ggml.bos_token_id":            uint32(bosID),
		"tokenizer.ggml.eos_token_id":            uint32(eosID),
		"tokenizer.ggml.add_space_prefix":        false,
		"tokenizer.chat_template":                template,
	}
}

// writeModel writes a file with metadata, changed, and returns its path.
func writeModel(t testing.TB, change map[string]any) string {
	t.Helper()
	kv := metadata()
	for key, value := range change {
		if kv[key] = value; value == nil {
			delete(kv, key)
		}
	}
	w := &gguf.Writer{}
	for key, value := range kv {
		w.Set(key, value)
	}
	w.Add(gguf.Tensor{Name: "token_embd.weight", Type: gguf.F16, Shape: []int{vocabSize, 8}, Data: make([]byte, vocabSize*8*2)})
	path := filepath.Join(t.TempDir(), "model.gguf")
	var b bytes.Buffer
	if _, err := w.WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// changed returns a key's list of the metadata with element i changed or, if i is its length, added.
func changed[T any](key string, i int, value T) []T {
	list := slices.Clone(metadata()[key].([]T))
	if i == len(list) {
		return append(list, value)
	}
	list[i] = value
	return list
}

// fake is a model that says a script, token by token, and then the last one for ever.
type fake struct {
	script []int32
	delay  time.Duration // of each step
	fail   error         // of the step after the script
	hook   func(step int)

	prompt []int32
	seen   []int32 // tokens given to Step
	closed int
	config modelConfig
}

func (f *fake) open(_ *gguf.File, c modelConfig) (model, error) {
	f.config = c
	return f, nil
}

func (f *fake) logits(n int) ([]float32, error) {
	if f.fail != nil && n >= len(f.script) {
		return nil, f.fail
	}
	logits := make([]float32, vocabSize)
	id := f.script[min(n, len(f.script)-1)]
	logits[id], logits[(id+1)%vocabSize] = 10, 5 // after an "a" in the script a "b" is the second choice
	return logits, nil
}

func (f *fake) Prefill(_ context.Context, prompt []int32) ([]float32, error) {
	f.prompt = slices.Clone(prompt)
	return f.logits(0)
}

func (f *fake) Step(ctx context.Context, id int32) ([]float32, error) {
	f.seen = append(f.seen, id)
	if f.hook != nil {
		f.hook(len(f.seen))
	}
	select {
	case <-ctx.Done():
	case <-time.After(f.delay):
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return f.logits(len(f.seen))
}

func (f *fake) Close() error { f.closed++; return nil }

// result is what a run of the command leaves.
type result struct {
	status         int
	stdout, stderr string
}

func runWith(ctx context.Context, f *fake, stdin string, args ...string) result {
	var out, err bytes.Buffer
	p := &program{stdin: bytes.NewBufferString(stdin), stdout: &out, stderr: &err, started: time.Now(), open: f.open}
	status := p.run(ctx, args)
	return result{status, out.String(), err.String()}
}
