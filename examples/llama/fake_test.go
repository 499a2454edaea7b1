package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"gorgonia.org/tensor"

	"github.com/gaze-ml/gaze/examples/llama/gguf"
	"github.com/gaze-ml/gaze/examples/llama/model"
	"github.com/gaze-ml/gaze/graph"
)

// Tokens of the file that the tests run on: a SentencePiece vocabulary of marks, bytes and the space.
const (
	unkID, bosID, eosID = 0, 1, 2
	firstByte           = 3
	spaceID             = firstByte + 256
	vocabSize           = spaceID + 1
	hidden              = 32
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
		"llama.embedding_length":                 uint32(hidden),
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
	w.Add(gguf.Tensor{Name: "token_embd.weight", Type: gguf.F16, Shape: []int{vocabSize, hidden}, Data: make([]byte, vocabSize*hidden*2)})
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
	script  []int32
	scripts map[byte][]int32 // by a byte of the prompt, instead
	delay   time.Duration    // of each token
	fail    error            // of the token after the script
	hook    func(step int)   // before each token

	prompt []int32 // of the last sequence
	seen   []int32 // tokens after the prompts
	most   int     // parts of a step
	closed int
	sizes  model.HParams
	config model.Config
	cache  *graph.KVCache
	said   map[*graph.Sequence]*saying
}

// saying is one sequence of a fake.
type saying struct {
	script []int32
	n      int
}

func (f *fake) open(_ *gguf.File, h model.HParams, c model.Config) (engine, error) {
	var err error
	f.sizes, f.config, f.said = h, c, map[*graph.Sequence]*saying{}
	f.cache, err = graph.NewKVCache(graph.CPU, graph.KVCacheConfig{Layers: 1, KVHeads: 1, HeadDim: 8, PageSize: c.PageSize, Pages: c.Pages(), DType: tensor.Float32})
	return f, err
}

func (f *fake) Cache() *graph.KVCache { return f.cache }

func (f *fake) Piece(n int) int { return n }

func (f *fake) Run(ctx context.Context, parts []model.Part) (out []model.Logits, err error) {
	f.most = max(f.most, len(parts))
	for _, p := range parts {
		s := f.said[p.Seq]
		if s == nil {
			f.prompt = slices.Clone(p.IDs)
			s = &saying{script: f.script}
			if f.scripts != nil {
				s.script = f.answer(p.IDs)
			}
			f.said[p.Seq] = s
		} else if err := f.step(ctx, p.IDs[0]); err != nil {
			return nil, err
		}
		if f.fail != nil && s.n >= len(s.script) {
			return nil, f.fail
		}
		logits := make([]float32, vocabSize)
		id := s.script[min(s.n, len(s.script)-1)]
		logits[id], logits[(id+1)%vocabSize] = 10, 5 // after an "a" in the script a "b" is the second choice
		s.n++
		out = append(out, model.Logits{Values: logits})
	}
	return out, nil
}

// answer finds the script of a prompt, or of its part behind what all prompts have in common.
func (f *fake) answer(prompt []int32) []int32 {
	for _, id := range prompt {
		if script := f.scripts[byte(id-firstByte)]; script != nil {
			return script
		}
	}
	return []int32{unkID}
}

func (f *fake) step(ctx context.Context, id int32) error {
	f.seen = append(f.seen, id)
	if f.hook != nil {
		f.hook(len(f.seen))
	}
	select {
	case <-ctx.Done():
	case <-time.After(f.delay):
	}
	return ctx.Err()
}

// TimePrefill takes longer the first time.
func (f *fake) TimePrefill(_ context.Context, tokens int) (time.Duration, error) {
	d := 2 * time.Second
	if len(f.seen) == 0 {
		d = time.Minute
	}
	f.seen = append(f.seen, int32(tokens))
	return d, f.fail
}

func (f *fake) TimeDecode(_ context.Context, requests, steps int) (time.Duration, error) {
	f.seen = append(f.seen, int32(requests), int32(steps))
	return time.Duration(requests) * time.Second, f.fail
}

func (f *fake) Close() error { f.closed++; return nil }

// result is what a run of the command leaves.
type result struct {
	status         int
	stdout, stderr string
}

// programOf is the command with a fake model and a machine of 1 GiB.
func programOf(f *fake, stdin string, stdout, stderr io.Writer) *program {
	return &program{stdin: bytes.NewBufferString(stdin), stdout: stdout, stderr: stderr, started: time.Now(), open: f.open,
		memory: func() (int64, string) { return 1 << 30, "said the test" }}
}

func runWith(ctx context.Context, f *fake, stdin string, args ...string) result {
	var out, err bytes.Buffer
	status := programOf(f, stdin, &out, &err).run(ctx, args)
	return result{status, out.String(), err.String()}
}
