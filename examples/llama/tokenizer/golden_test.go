package tokenizer

import (
	"encoding/json"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"github.com/gaze-ml/gaze/examples/llama/gguf"
	"github.com/gaze-ml/gaze/examples/llama/internal/testmodel"
)

// readJSON reads a file that other software wrote (testdata/gen.py).
func readJSON(t testing.TB, path string, into any) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, into); err != nil {
		t.Fatal(err)
	}
}

type encoded struct {
	Text string
	IDs  []int32
}

// The words equal those of Hugging Face's regular expressions.
func TestPreTokenizersGolden(t *testing.T) {
	var golden struct {
		Cases []struct {
			Text  string
			Words map[string][]string
		}
	}
	readJSON(t, "testdata/pretokenize.json", &golden)
	if len(golden.Cases) == 0 {
		t.Fatal("no cases")
	}
	for _, c := range golden.Cases {
		if len(c.Words) != 5 {
			t.Fatalf("%q: %d pre-tokenizers, want 5", c.Text, len(c.Words))
		}
		for pre, want := range c.Words {
			if got := slices.Collect(words(c.Text, preTokenizers[pre].split)); !slices.Equal(got, want) {
				t.Errorf("%s %q:\n got %q\nwant %q", pre, c.Text, got, want)
			}
		}
	}
}

// The ids equal SentencePiece's on a model that it trained.
func TestSPMGolden(t *testing.T) {
	var golden struct {
		Tokens []string
		Scores []float32
		Types  []int32
		Cases  []encoded
	}
	readJSON(t, "testdata/spm.json", &golden)
	if len(golden.Cases) == 0 {
		t.Fatal("no cases")
	}
	tok := open(t, map[string]any{keyModel: "llama", keyTokens: golden.Tokens, keyScores: golden.Scores, keyTypes: golden.Types,
		keyBOS: uint32(1), keyEOS: uint32(2), keyUnknown: uint32(0)})
	for _, c := range golden.Cases {
		if got := tok.Encode(c.Text, EncodeOptions{}); !slices.Equal(got, c.IDs) {
			t.Errorf("%q:\n got %d\nwant %d", c.Text, got, c.IDs)
		}
		if got := tok.Decode(c.IDs); got != c.Text {
			t.Errorf("%q: decoded %q", c.Text, got)
		}
	}
	if !tok.AddBOS || !tok.IsEnd(2) || tok.IsEnd(1) {
		t.Errorf("AddBOS %v, end %v", tok.AddBOS, tok.end)
	}
}

func smolLM2(t testing.TB) *Tokenizer {
	t.Helper()
	f, err := gguf.Open(testmodel.SmolLM2(t))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	tok, err := FromGGUF(f)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

// The ids equal llama.cpp's for the prompts of the golden continuations, and the continuations decode to its text.
func TestSmolLM2LlamaCpp(t *testing.T) {
	tok := smolLM2(t)
	for _, file := range []string{"../testdata/smollm2.json", "../testdata/smollm2_f64.json"} {
		var golden []struct {
			Prompt, Text string
			IDs, Out     []int32
		}
		readJSON(t, file, &golden)
		if len(golden) == 0 {
			t.Fatal("no cases")
		}
		for _, c := range golden {
			if got := tok.Encode(c.Prompt, EncodeOptions{BOS: tok.AddBOS, Special: true}); !slices.Equal(got, c.IDs) {
				t.Errorf("%s: %q:\n got %d\nwant %d", file, c.Prompt, got, c.IDs)
			}
			s, text := tok.Stream(), ""
			for _, id := range c.Out {
				if tok.IsEnd(id) {
					break
				}
				text += s.Push(id)
			}
			if file == "../testdata/smollm2.json" && text+s.Flush() != c.Text {
				t.Errorf("%s: %q continues %q, want %q", file, c.Prompt, text, c.Text)
			}
		}
	}
}

// The ids equal those of Hugging Face's tokenizers with the file's vocabulary and merges.
func TestSmolLM2HuggingFace(t *testing.T) {
	tok := smolLM2(t)
	var golden struct{ Cases []encoded }
	readJSON(t, "testdata/smollm2.json", &golden)
	if len(golden.Cases) == 0 {
		t.Fatal("no cases")
	}
	for _, c := range golden.Cases {
		if got := tok.Encode(c.Text, EncodeOptions{}); !slices.Equal(got, c.IDs) {
			t.Errorf("%q:\n got %d\nwant %d", c.Text, got, c.IDs)
		}
	}
	if tok.Size() != 49152 || tok.BOS != 1 || tok.EOS != 2 || tok.AddBOS || !tok.IsEnd(2) || !tok.IsEnd(0) || tok.IsEnd(1) {
		t.Errorf("size %d, bos %d, eos %d, add bos %v, end %v", tok.Size(), tok.BOS, tok.EOS, tok.AddBOS, tok.end)
	}
}

// The real vocabulary keeps all text but the bytes that it has no token for: 13 that are no part of UTF-8, six control
// bytes, and the first of the characters of planes 4 to 11.
func TestSmolLM2RoundTrip(t *testing.T) {
	tok := smolLM2(t)
	var missing []byte
	for b, id := range tok.coder.(*bpe).bytes {
		if id == None {
			missing = append(missing, byte(b))
		}
	}
	if len(missing) != 21 {
		t.Errorf("no token for the bytes %x, want 21 of them", missing)
	}
	rng := rand.New(rand.NewPCG(5, 6)) // seed 5, 6
	for range 2000 {
		text := randomText(rng, 40)
		kept := make([]byte, 0, len(text))
		for _, b := range []byte(text) {
			if !slices.Contains(missing, b) {
				kept = append(kept, b)
			}
		}
		if got := tok.Decode(tok.Encode(text, EncodeOptions{})); got != string(kept) {
			t.Fatalf("%q became %q, want %q", text, got, kept)
		}
		if got := tok.Lost(text, EncodeOptions{}); got != len(text)-len(kept) {
			t.Fatalf("%q loses %d bytes, want %d", text, got, len(text)-len(kept))
		}
	}
}

func BenchmarkSmolLM2(b *testing.B) {
	f, err := gguf.Open(testmodel.SmolLM2(b))
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	b.Run("op=load", func(b *testing.B) {
		for b.Loop() {
			if _, err := FromGGUF(f); err != nil {
				b.Fatal(err)
			}
		}
	})
	tok := smolLM2(b)
	for name, text := range longTexts {
		b.Run("op=encode/text="+name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				tok.Encode(text, EncodeOptions{Special: true})
			}
		})
	}
}
