package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gaze-ml/gaze/examples/llama/chat"
	"github.com/gaze-ml/gaze/examples/llama/gguf"
	"github.com/gaze-ml/gaze/examples/llama/internal/tinymodel"
	"github.com/gaze-ml/gaze/examples/llama/model"
	"github.com/gaze-ml/gaze/examples/llama/schedule"
	"github.com/gaze-ml/gaze/examples/llama/tokenizer"
	"github.com/gaze-ml/gaze/ops"
)

// byteLevel is a vocabulary as GPT-2's: each byte a token, a few merges, and marks.
func byteLevel(pre string) map[string]any {
	var tokens []string
	next := rune(0x100)
	for b := range rune(256) {
		if b >= '!' && b <= '~' || b >= 0xa1 && b <= 0xac || b >= 0xae {
			tokens = append(tokens, string(b))
		} else {
			tokens = append(tokens, string(next))
			next++
		}
	}
	tokens = append(tokens, "he", "ll", "hell", "<|begin|>", "<|end|>")
	types := slices.Repeat([]int32{1}, len(tokens))
	types[len(types)-2], types[len(types)-1] = 3, 3
	return map[string]any{
		"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": pre, "tokenizer.ggml.tokens": tokens, "tokenizer.ggml.token_type": types,
		"tokenizer.ggml.merges": []string{"h e", "l l", "he ll"}, "tokenizer.ggml.bos_token_id": uint32(len(tokens) - 2), "tokenizer.ggml.eos_token_id": uint32(len(tokens) - 1),
	}
}

// sentencePiece is the vocabulary of metadata.
func sentencePiece() map[string]any {
	kv := map[string]any{}
	for key, value := range metadata() {
		if strings.HasPrefix(key, "tokenizer.") {
			kv[key] = value
		}
	}
	return kv
}

// wholes are Llamas with everything that a file has: other tokenizers, weights and parts than SmolLM2's.
var wholes = map[string]func() *tinymodel.File{
	"SentencePiece, tied": func() *tinymodel.File { return wholeFile(tinymodel.Plain, sentencePiece()) },
	"llama-bpe, untied, biases": func() *tinymodel.File {
		s := tinymodel.Plain
		s.Tied, s.Biases = false, true
		return wholeFile(s, byteLevel("llama-bpe"))
	},
	"qwen2, every type, in superblocks of 256": func() *tinymodel.File {
		return wholeFile(tinymodel.Shape{Layers: 2, Hidden: 256, FFN: 512, Heads: 4, KVHeads: 2, HeadDim: 64, Context: 160, Types: tinymodel.AllTypes}, byteLevel("qwen2"))
	},
	"gpt-2, blocks of 32": func() *tinymodel.File {
		s := tinymodel.Plain
		s.Types = []gguf.Type{gguf.Q5_1, gguf.Q4_0, gguf.Q8_0}
		return wholeFile(s, byteLevel("gpt-2"))
	},
}

func wholeFile(s tinymodel.Shape, vocabulary map[string]any) *tinymodel.File {
	s.Vocab = len(vocabulary["tokenizer.ggml.tokens"].([]string))
	f := tinymodel.New(s, 30)
	for key, value := range vocabulary {
		f.Keys[key] = value
	}
	return f
}

// The command on a whole file says what the formula says, greedily: one prompt and three at once, in pieces.
func TestWholeModels(t *testing.T) {
	for name, whole := range wholes {
		t.Run(name, func(t *testing.T) {
			f := whole()
			data := f.Bytes(t, nil)
			path := filepath.Join(t.TempDir(), "model.gguf")
			if err := os.WriteFile(path, data, 0o644); err != nil {
				t.Fatal(err)
			}
			file, err := gguf.Parse(data)
			if err != nil {
				t.Fatal(err)
			}
			tok, err := tokenizer.FromGGUF(file)
			if err != nil {
				t.Fatal(err)
			}
			const n = 12
			texts := []string{"hello, wörld", "hell", "hello, you there\nand everywhere"}
			var want []string
			for _, text := range texts {
				ids, stream, answer := tok.Encode(text, tokenizer.EncodeOptions{BOS: tok.AddBOS, Special: true}), tok.Stream(), ""
				for range n {
					logits := f.Ref.Logits(ids)
					best := 0
					for i, x := range logits[len(ids)-1] {
						if x > logits[len(ids)-1][best] {
							best = i
						}
					}
					if tok.IsEnd(int32(best)) {
						break
					}
					ids = append(ids, int32(best))
					answer += stream.Push(int32(best))
				}
				want = append(want, answer+stream.Flush())
			}
			say := func(args ...string) string {
				t.Helper()
				var out, notes bytes.Buffer
				p := &program{stdout: &out, stderr: &notes, started: time.Now(), memory: availableMemory,
					open: func(f *gguf.File, h model.HParams, c model.Config) (engine, error) { return model.Open(f, h, c) }}
				if status := p.run(t.Context(), append(args, "-model", path, "-raw", "-n", fmt.Sprint(n), "-threads", "2")); status != exitOK {
					t.Fatal(notes.String())
				}
				return out.String()
			}
			for i, text := range texts {
				if got := say("-p", text); got != want[i] {
					t.Errorf("%q: got %q, want %q", text, got, want[i])
				}
			}
			if got := say("-p", texts[0], "-chunk", "3", "-page-size", "2"); got != want[0] {
				t.Errorf("in pieces: got %q, want %q", got, want[0])
			}
			var lines []string
			for i, answer := range want {
				for line := range strings.SplitSeq(answer, "\n") {
					lines = append(lines, strings.TrimRight(fmt.Sprintf("[%d] %s", i+1, line), " "))
				}
			}
			got := strings.Split(strings.TrimSuffix(say("-p", texts[0], "-p", texts[1], "-p", texts[2]), "\n"), "\n")
			for i := range got {
				got[i] = strings.TrimRight(got[i], " ")
			}
			slices.SortStableFunc(got, func(a, b string) int { return strings.Compare(a[:3], b[:3]) })
			if !slices.Equal(got, lines) {
				t.Errorf("at once: got %q, want %q", got, lines)
			}
			// With a temperature the same seed gives the same text alone and among others.
			draws := []string{"-temp", "1", "-top-k", "0", "-top-p", "1", "-seed", "7"}
			alone := say(append(draws, "-p", texts[1])...)
			if among := say(append(draws, "-p", texts[0], "-p", texts[1])...); !strings.Contains(strings.ReplaceAll(among, "[2]", ""), strings.Split(alone, "\n")[0]) {
				t.Errorf("drawn alone %q, among others %q", alone, among)
			}
			for _, kv := range []string{"f16", "bf16", "e4m3"} {
				if got := say("-p", texts[0], "-kv-type", kv); len(got) == 0 {
					t.Errorf("-kv-type %s says nothing", kv)
				}
			}
		})
	}
}

// -log-calls, and -v twice, log every call of the decoder's ops before it runs.
func TestLogCallsFlag(t *testing.T) {
	path := filepath.Join(t.TempDir(), "model.gguf")
	if err := os.WriteFile(path, wholes["SentencePiece, tied"]().Bytes(t, nil), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, flags := range [][]string{{"-log-calls"}, {"-v", "-v"}, {"-v"}} {
		var out, notes bytes.Buffer
		p := &program{stdout: &out, stderr: &notes, started: time.Now(), memory: availableMemory,
			open: func(f *gguf.File, h model.HParams, c model.Config) (engine, error) { return model.Open(f, h, c) }}
		if status := p.run(t.Context(), append(flags, "-model", path, "-raw", "-n", "2", "-p", "hello")); status != exitOK {
			t.Fatal(notes.String())
		}
		for _, want := range []string{"msg=embedding backend=cpu ids=\"int32[16] {", "msg=prefill backend=cpu query=\"float32[16 6 16]\"", "msg=append_kv", "msg=rms_norm", "msg=linear", "msg=silu_mul",
			"msg=decode backend=cpu query=\"float32[1 6 16]\"", "seq_lens=\"int32[1] {7}\""} {
			if logged := strings.Contains(notes.String(), want); logged != (len(flags) == 2 || flags[0] == "-log-calls") {
				t.Errorf("%v: logged %v: %s", flags, logged, want)
			}
		}
	}
}

// Any bytes are opened as a whole model and run, or refused with a typed error; nothing panics.
func FuzzOpen(f *testing.F) {
	small := tinymodel.Shape{Layers: 1, Hidden: 32, FFN: 32, Heads: 2, KVHeads: 1, HeadDim: 16, Context: 8, Types: []gguf.Type{gguf.Q8_0, gguf.F16}, Tied: true}
	for i, vocabulary := range []map[string]any{sentencePiece(), byteLevel("llama-bpe"), byteLevel("none")} {
		for key, value := range map[string]any{"": nil, "llama.block_count": uint32(1_000_000_000), "llama.attention.head_count": uint32(0), "llama.context_length": uint32(0),
			"llama.attention.key_length": uint32(7), "llama.rope.scaling.type": "llama3", "tokenizer.chat_template": "{{ messages[0].content }}"} {
			whole := wholeFile(small, vocabulary)
			if key != "" {
				whole.Keys[key] = value
			}
			data := whole.Bytes(f, nil)
			f.Add(data)
			f.Add(data[:len(data)*(i+1)/4])
		}
	}
	f.Fuzz(opens)
}

// opens opens and runs a file, and wants no error but typed ones.
func opens(t *testing.T, data []byte) {
	t.Helper()
	err := openAndRun(t, data)
	var inFile *gguf.Error
	var inCall *ops.Error
	var inTemplate *chat.Error
	switch {
	case err == nil:
	case errors.As(err, &inFile):
		if inFile.Item == "" || inFile.Got == "" || inFile.Want == "" {
			t.Fatalf("got %#v, want a whole error", inFile)
		}
	case !errors.As(err, &inCall) && !errors.As(err, &inTemplate):
		t.Fatalf("got %v, want a typed error", err)
	}
	if err != nil && strings.Contains(err.Error(), "panic") && !errors.As(err, &inTemplate) {
		t.Fatal(err)
	}
}

// A whole file in which a few things are changed, each to something that a file may say, is opened and run or refused with a typed error.
func TestEdited(t *testing.T) {
	ran, refused := 0, 0
	for seed := range uint64(600) {
		data := edited(t, seed)
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			opens(t, data)
			if openAndRun(t, data) == nil {
				ran++
			} else {
				refused++
			}
		})
	}
	if ran < 50 || refused < 50 {
		t.Errorf("%d ran, %d were refused: nothing is tested", ran, refused)
	}
}

// edited draws a small whole file with one to three changes.
func edited(t testing.TB, seed uint64) []byte {
	r := rand.New(rand.NewPCG(seed, 1))
	vocabularies := []map[string]any{sentencePiece(), byteLevel("llama-bpe"), byteLevel("smollm")}
	f := wholeFile(tinymodel.Shape{Layers: 2, Hidden: 32, FFN: 32, Heads: 4, KVHeads: 2, HeadDim: 8, Context: 32, Types: []gguf.Type{gguf.F32, gguf.Q8_0}, Biases: true}, vocabularies[seed%3])
	for _, key := range []string{"type", "factor", "low_freq_factor", "high_freq_factor", "original_context_length"} {
		f.Keys["llama.rope.scaling."+key] = map[string]any{"type": "linear", "factor": float32(2), "low_freq_factor": float32(1), "high_freq_factor": float32(4), "original_context_length": uint32(16)}[key]
	}
	f.Keys["tokenizer.chat_template"] = template
	keys := slices.Sorted(maps.Keys(f.Keys))
	numbers := []any{uint32(0), uint32(1), uint32(2), uint32(7), uint32(8), uint32(24), uint32(64), int32(-1), uint64(1 << 20), uint64(1 << 40), uint64(math.MaxUint64), int64(math.MinInt64),
		float32(0), float32(-1), float32(1e-30), float32(1e30), float32(math.NaN()), float64(2), true, "llama", "llama3", "", []uint32{1}, []string{"a"}, []float32{}, nil}
	for range 1 + r.IntN(3) {
		x := &f.Tensors[r.IntN(len(f.Tensors))]
		switch r.IntN(5) {
		case 0: // another tensor in its place
			x.Name = f.Tensors[r.IntN(len(f.Tensors))].Name + []string{"", ".bias", "x"}[r.IntN(3)]
		case 1: // turned round, or in one row
			if r.IntN(2) == 0 {
				slices.Reverse(x.Shape)
			} else {
				x.Shape = []int{x.Elems()}
			}
		case 2: // numbers that no weight is
			for i := range x.Data {
				x.Data[i] = 0xff
			}
		default:
			f.Keys[keys[r.IntN(len(keys))]] = numbers[r.IntN(len(numbers))]
		}
	}
	names := map[string]bool{}
	var w gguf.Writer
	for _, key := range keys {
		if f.Keys[key] != nil {
			w.Set(key, f.Keys[key])
		}
	}
	for _, x := range f.Tensors {
		if fits := x.Shape[len(x.Shape)-1]%x.Type.BlockElems() == 0 && len(x.Name) <= 64; fits && !names[x.Name] { // the format itself allows no more
			names[x.Name] = true
			w.Add(x)
		}
	}
	var b bytes.Buffer
	if _, err := w.WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// openAndRun does what the command does with a file, for two tokens.
func openAndRun(t *testing.T, data []byte) error {
	file, err := gguf.Parse(data)
	if err != nil {
		return err
	}
	h, err := model.ReadHParams(file)
	if err != nil {
		return err
	}
	tok, err := tokenizer.FromGGUF(file)
	if err != nil {
		return err
	}
	o := defaults()
	o.threads, o.chunk, o.tokens, o.kvType = 1, 4, 2, "f32"
	e, err := newEncoder(file, tok, o, io.Discard)
	if err != nil {
		return err
	}
	one, err := e.encode("hi")
	if err != nil {
		return err
	}
	c := configure(o, h, []prompt{one}, nil)
	c.Context = min(c.Context, 64)
	c.Tokens = min(c.Tokens, 64)
	need := model.Estimate(file, h, c)
	if need.Total() > 64<<20 {
		return nil
	}
	m, err := model.Open(file, h, c)
	if err != nil {
		return err
	}
	defer func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	}()
	n := 0
	return schedule.Run(t.Context(), m, schedule.Config{Requests: 1, Context: c.Context, Chunk: c.Chunk}, []*schedule.Request{{Prompt: one.ids, Pick: func(logits model.Logits) (int32, bool, error) {
		n++
		return logits.Likeliest(), n == 2, nil
	}}}, &schedule.Stats{})
}
