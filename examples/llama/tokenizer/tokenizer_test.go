package tokenizer

import (
	"bytes"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/gaze-ml/gaze/examples/llama/gguf"
)

// longTexts have 100,000 characters each; all but the first are one word.
var longTexts = map[string]string{
	"prose":  strings.Repeat("The quick brown fox jumps over the lazy dog. ", 2223)[:100_000],
	"letter": strings.Repeat("a", 100_000),
	"spaces": strings.Repeat(" ", 100_000),
	"angles": strings.Repeat("<|", 50_000),
}

// load builds a tokenizer from metadata.
func load(t testing.TB, kv map[string]any) (*Tokenizer, error) {
	t.Helper()
	w := &gguf.Writer{}
	for key, value := range kv {
		w.Set(key, value)
	}
	var b bytes.Buffer
	if _, err := w.WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	f, err := gguf.Parse(b.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	return FromGGUF(f)
}

func open(t testing.TB, kv map[string]any) *Tokenizer {
	t.Helper()
	tok, err := load(t, kv)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

// The control and user-defined tokens of the vocabularies below.
var marks = []string{"<|end|>", "<|im_start|>", "<|im|>", "<tool>"}

// vocabulary is a byte-level one with every byte, the given merges, and marks at the end.
func vocabulary(pre string, merges []string) map[string]any {
	var tokens []string
	var types []int32
	for b := range 256 {
		tokens = append(tokens, string(byteRune[b]))
	}
	for _, m := range merges {
		tokens = append(tokens, strings.ReplaceAll(m, " ", ""))
	}
	for range tokens {
		types = append(types, int32(kindNormal))
	}
	n := uint32(len(tokens))
	types = append(types, int32(kindControl), int32(kindControl), int32(kindControl), int32(kindUser))
	return map[string]any{keyModel: "gpt2", keyPre: pre, keyTokens: append(tokens, marks...), keyTypes: types, keyMerges: merges,
		keyBOS: n + 1, keyEOS: n}
}

// train learns n merges from a text, one word, as BPE is defined: again and again the most frequent pair.
func train(text string, n int) []string {
	var word, merges []string
	for _, r := range spell(text) {
		word = append(word, string(r))
	}
	for range n {
		count := map[string]int{}
		for i := range len(word) - 1 {
			count[word[i]+" "+word[i+1]]++
		}
		best := ""
		for pair, c := range count {
			if best == "" || c > count[best] || c == count[best] && pair < best {
				best = pair
			}
		}
		merges = append(merges, best)
		word = apply(word, best)
	}
	return merges
}

// apply makes one merge wherever it fits, from the left.
func apply(word []string, merge string) []string {
	left, right, _ := strings.Cut(merge, " ")
	var out []string
	for i := 0; i < len(word); i++ {
		if i+1 < len(word) && word[i] == left && word[i+1] == right {
			out = append(out, left+right)
			i++
		} else {
			out = append(out, word[i])
		}
	}
	return out
}

// naive is BPE by its definition: in each round the pair of the lowest rank is merged wherever it occurs.
func naive(word string, merges []string) []string {
	var parts []string
	for _, r := range spell(word) {
		parts = append(parts, string(r))
	}
	for {
		next := -1
		for rank, m := range merges {
			if len(apply(parts, m)) < len(parts) {
				next = rank
				break
			}
		}
		if next < 0 {
			return parts
		}
		parts = apply(parts, merges[next])
	}
}

const corpus = "the cat then sat there, and the other theatre 123 123 aaaaaaa  \n\n été étés 中文中文 abababab"

var preNames = []string{"default", "gpt-2", "smollm", "qwen2"}

func TestBPEMergesByRank(t *testing.T) {
	merges := train(corpus, 60)
	for _, pre := range preNames {
		tok := open(t, vocabulary(pre, merges))
		rng := rand.New(rand.NewPCG(1, 2)) // seed 1, 2
		for range 300 {
			text := randomText(rng, 30)
			var want []string
			for word := range words(text, preTokenizers[pre].split) {
				want = append(want, naive(word, merges)...)
			}
			var got []string
			for _, id := range tok.Encode(text, EncodeOptions{}) {
				got = append(got, tok.tokens[id])
			}
			if !slices.Equal(got, want) {
				t.Fatalf("%s %q:\n got %q\nwant %q", pre, text, got, want)
			}
		}
	}
}

// randomText draws characters and stretches that the merges, the pre-tokenizers and UTF-8 care about.
func randomText(rng *rand.Rand, n int) string {
	pool := []string{"the", "at", "a", "b", "t", "h", "e", " ", "  ", "\n", "é", "中文", "1", "23", "'ll", "'", ",", "👍🏽", "\u0301", "\x00", "<"}
	var s strings.Builder
	for range rng.IntN(n + 1) {
		if rng.IntN(8) == 0 {
			s.WriteRune(rune(rng.IntN(0x11000)))
		} else {
			s.WriteString(pool[rng.IntN(len(pool))])
		}
	}
	return strings.ToValidUTF8(s.String(), "")
}

// A word that is a token as a whole is that token for the models whose tokenizer ignores merges, and only for them.
func TestIgnoreMerges(t *testing.T) {
	kv := vocabulary("llama-bpe", nil)
	kv[keyTokens] = append(kv[keyTokens].([]string), "whole", "Ġwhole")
	kv[keyTypes] = append(kv[keyTypes].([]int32), 1, 1)
	if got := open(t, kv).Encode("whole whole", EncodeOptions{}); len(got) != 2 || got[1] != got[0]+1 {
		t.Errorf("llama-bpe: got %v, want the two tokens", got)
	}
	kv[keyPre] = "qwen2"
	if got := open(t, kv).Encode("whole", EncodeOptions{}); len(got) != len("whole") {
		t.Errorf("qwen2: got %v, want a token for each byte", got)
	}
}

func TestSpecialTokens(t *testing.T) {
	kv := vocabulary("gpt-2", nil)
	tok := open(t, kv)
	end, start, im, tool := tok.ids[marks[0]], tok.ids[marks[1]], tok.ids[marks[2]], tok.ids[marks[3]]
	a := tok.ids["a"]
	for text, want := range map[string][]int32{
		"<|end|>":              {end},
		"a<|im_start|>a<|im|>": {a, start, a, im},
		"<|im|><|im|>":         {im, im},
		"<tool>a":              {tool, a},
	} {
		if got := tok.Encode(text, EncodeOptions{Special: true}); !slices.Equal(got, want) {
			t.Errorf("%q: got %v, want %v", text, got, want)
		}
		// Not asked for, control tokens are text; a user-defined one is always itself.
		plain := tok.Encode(text, EncodeOptions{})
		for _, id := range plain {
			if tok.IsControl(id) {
				t.Errorf("%q: the control token %q without Special", text, tok.Text(id))
			}
		}
		if slices.Contains(plain, tool) != strings.Contains(text, "<tool>") {
			t.Errorf("%q: got %v, want the user-defined token as itself", text, plain)
		}
		if got := tok.Decode(plain); got != text {
			t.Errorf("%q: decoded %q", text, got)
		}
	}
	if got := tok.Encode("<|im_start|", EncodeOptions{Special: true}); tok.Decode(got) != "<|im_start|" || len(got) != 11 {
		t.Errorf("a cut mark: got %v, want a token for each byte", got)
	}
	if got := tok.Encode("", EncodeOptions{BOS: true}); !slices.Equal(got, []int32{start}) {
		t.Errorf("BOS: got %v", got)
	}
	// The longest of several wins, whatever their order in the vocabulary.
	kv[keyTokens] = append(kv[keyTokens].([]string), "<|im|>>")
	kv[keyTypes] = append(kv[keyTypes].([]int32), int32(kindControl))
	if got := open(t, kv).Encode("<|im|>>", EncodeOptions{Special: true}); len(got) != 1 {
		t.Errorf("got %v, want the longer token", got)
	}
}

// Text without a BOS survives, valid UTF-8 or not.
func TestRoundTrip(t *testing.T) {
	for _, pre := range []string{"default", "gpt-2", "smollm", "qwen2", "llama-bpe"} {
		tok := open(t, vocabulary(pre, train(corpus, 60)))
		rng := rand.New(rand.NewPCG(3, 4)) // seed 3, 4
		for range 300 {
			text := randomText(rng, 40)
			if got := tok.Decode(tok.Encode(text, EncodeOptions{})); got != text {
				t.Fatalf("%s: %q became %q", pre, text, got)
			}
			if n := tok.Lost(text, EncodeOptions{}); n != 0 {
				t.Fatalf("%s: %q loses %d bytes", pre, text, n)
			}
		}
		if bad := "a\xff\xe4\xb8 \xc0"; tok.Decode(tok.Encode(bad, EncodeOptions{})) != bad {
			t.Errorf("%s: %q is not kept", pre, bad)
		}
	}
}

func FuzzRoundTrip(f *testing.F) {
	for _, s := range []string{"", corpus, "<|end|><|im|", "'S't''ll\r\n \t\u00a0x", "中\u0301👩‍👩‍👧", "\x00\x7f\u0080\U0010ffff", "1٣½,1234567"} {
		f.Add(s)
	}
	var toks []*Tokenizer
	for _, pre := range preNames {
		toks = append(toks, open(f, vocabulary(pre, train(corpus, 60))))
	}
	f.Fuzz(func(t *testing.T, text string) {
		for i, tok := range toks {
			for _, special := range []bool{false, true} {
				ids := tok.Encode(text, EncodeOptions{Special: special})
				if got := tok.Decode(ids); got != text {
					t.Fatalf("tokenizer %d, special %v: %q became %q", i, special, text, got)
				}
			}
			s, streamed := tok.Stream(), ""
			for _, id := range tok.Encode(text, EncodeOptions{}) {
				streamed += s.Push(id)
			}
			if got, want := streamed+s.Flush(), string([]rune(text)); got != want {
				t.Fatalf("tokenizer %d: %q streamed as %q", i, want, got)
			}
		}
	})
}

// A byte without a token is left out and counted; the rest of the text stays.
func TestLostBytes(t *testing.T) {
	kv := vocabulary("gpt-2", nil)
	tokens := slices.Clone(kv[keyTokens].([]string))
	tokens[0x04], tokens['x'] = "unused0", "unused1"
	kv[keyTokens] = tokens
	tok := open(t, kv)
	text := "a\x04bx<tool>xc"
	if got := tok.Decode(tok.Encode(text, EncodeOptions{})); got != "ab<tool>c" {
		t.Errorf("got %q, want the other bytes", got)
	}
	if got := tok.Lost(text, EncodeOptions{}); got != 3 {
		t.Errorf("%d bytes lost, want 3", got)
	}
}

// A stream gives each character once it is whole, and never invalid UTF-8.
func TestStream(t *testing.T) {
	tok := open(t, vocabulary("gpt-2", nil)) // a token for each byte
	id := func(b byte) int32 { return tok.ids[string(byteRune[b])] }
	for text, want := range map[string][]string{
		"aé":           {"a", "", "é"},
		"👍":            {"", "", "", "👍"},
		"\xe4\xb8":     {"", "", "\uFFFD\uFFFD"}, // the last on Flush
		"\xe4a":        {"", "\uFFFDa"},
		"\xff":         {"\uFFFD"},
		"\x80b":        {"\uFFFD", "b"},
		"\xf0\x9f中":    {"", "", "\uFFFD\uFFFD", "", "中"},
		"\xed\xa0\x80": {"", "\uFFFD\uFFFD", "\uFFFD"}, // a surrogate can't become a character
	} {
		s := tok.Stream()
		var got []string
		for _, b := range []byte(text) {
			got = append(got, s.Push(id(b)))
		}
		if rest := s.Flush(); rest != "" {
			got = append(got, rest)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
		for _, part := range got {
			if !utf8.ValidString(part) {
				t.Errorf("%q: invalid part %q", text, part)
			}
		}
	}
	s := tok.Stream()
	if got := s.Push(id(0xc3)) + s.Push(tok.EOS) + s.Push(id(0xa9)); got != "é" {
		t.Errorf("a control token inside a character: got %q", got)
	}
	if got := s.Push(-1) + s.Push(int32(tok.Size())); got != "\uFFFD\uFFFD" {
		t.Errorf("ids outside the vocabulary: got %q", got)
	}
}

// Work grows little more than the text: a pair-by-pair search over 100,000 characters would not end in this test's time.
func TestLongTexts(t *testing.T) {
	bpe := open(t, vocabulary("gpt-2", []string{"a a", "aa aa", "Ġ Ġ", "ĠĠ ĠĠ"}))
	spm := open(t, map[string]any{keyModel: "llama", keyTokens: []string{"▁", "a", "aa", "aaaa", "▁▁", "<", "|"}, keyScores: []float32{0, 0, -1, -2, -1, 0, 0}, keyBOS: uint32(0)})
	for name, text := range longTexts {
		ids := bpe.Encode(text, EncodeOptions{Special: true})
		if bpe.Decode(ids) != text {
			t.Errorf("bpe, %s: not kept", name)
		}
		if name == "letter" && len(ids) != len(text)/4 {
			t.Errorf("bpe, %s: %d tokens, want %d", name, len(ids), len(text)/4)
		}
		if ids := spm.Encode(text, EncodeOptions{}); name != "prose" && spm.Decode(ids) != text {
			t.Errorf("spm, %s: not kept", name)
		}
	}
}

// A character without a token of its own is spelt in bytes, or is unknown; a space is put in front of text and after each
// control token, and taken off again.
func TestSPM(t *testing.T) {
	kv := map[string]any{keyModel: "llama", keyUnknown: uint32(0),
		keyTokens: []string{"<unk>", "<s>", "</s>", "<0xC3>", "<0xA9>", "▁", "a", "b", "▁a", "ab", "▁ab"},
		keyTypes:  []int32{2, 3, 3, 6, 6, 1, 1, 1, 1, 1, 1}, keyScores: []float32{0, 0, 0, 0, 0, -9, -9, -9, -3, -1, -2}, keyBOS: uint32(1)}
	tok := open(t, kv)
	for text, want := range map[string][]int32{
		"ab":       {10},
		"a":        {8},
		"aab":      {8, 9}, // "ab" has the best score, so it is made before "▁a"
		" ab":      {5, 10},
		"é":        {5, 3, 4},
		"中":        {5, 0},
		"è":        {5, 0}, // no half of a character: its first byte has a token
		"ab</s>ab": {10, 2, 10},
		"</s>":     {2},
		"<0xC3>":   {5, 0, 0, 0, 0, 0, 0}, // text, not a byte
	} {
		if got := tok.Encode(text, EncodeOptions{Special: true}); !slices.Equal(got, want) {
			t.Errorf("%q: got %v, want %v", text, got, want)
		}
		if got := tok.Decode(want); !slices.Contains(want, 0) && got != text {
			t.Errorf("%q: decoded %q", text, got)
		}
	}
	if got := tok.Lost("aé中b中", EncodeOptions{}); got != 6 {
		t.Errorf("%d bytes lost, want those of the two unknown characters", got)
	}
	if got := tok.Stream().Push(10); got != " ab" { // in the middle of a text the space belongs there
		t.Errorf("streamed %q", got)
	}
	kv[keySpacePrefix] = false
	tok = open(t, kv)
	if got := tok.Encode("ab", EncodeOptions{BOS: true}); !slices.Equal(got, []int32{1, 9}) || tok.Decode([]int32{10}) != " ab" {
		t.Errorf("without the space in front: got %v", got)
	}
}

// Text that is spelt like a byte token is not that byte, even if its pieces could be joined to it.
func TestSPMByteTokensAreNotText(t *testing.T) {
	tokens := []string{"<unk>", "<0x0A>", "<", "0", "x", "A", ">", "<0", "<0x", "<0x0", "<0x0A"}
	types := []int32{2, 6, 1, 1, 1, 1, 1, 1, 1, 1, 1}
	tok := open(t, map[string]any{keyModel: "llama", keyTokens: tokens, keyTypes: types, keyScores: make([]float32, len(tokens)), keyAddBOS: false, keySpacePrefix: false})
	if got := tok.Encode("<0x0A>", EncodeOptions{}); !slices.Equal(got, []int32{10, 6}) {
		t.Errorf("got %v, want the text", got)
	}
	if got := tok.Encode("\n", EncodeOptions{}); !slices.Equal(got, []int32{1}) {
		t.Errorf("got %v, want the byte", got)
	}
}

func TestBadVocabularies(t *testing.T) {
	change := func(key string, value any) map[string]any {
		kv := vocabulary("gpt-2", []string{"a b"})
		if kv[key] = value; value == nil {
			delete(kv, key)
		}
		return kv
	}
	for name, c := range map[string]struct {
		kv   map[string]any
		kind error
		says string
	}{
		"no model":             {change(keyModel, nil), gguf.ErrMissing, keyModel},
		"model bert":           {change(keyModel, "bert"), gguf.ErrUnsupported, `"bert", want "gpt2" or "llama"`},
		"pre tekken":           {change(keyPre, "tekken"), gguf.ErrUnsupported, `"tekken", want one of`},
		"pre 1":                {change(keyPre, uint32(1)), gguf.ErrType, keyPre},
		"no tokens":            {change(keyTokens, nil), gguf.ErrMissing, keyTokens},
		"0 tokens":             {change(keyTokens, []string{}), gguf.ErrFormat, keyTokens},
		"tokens are numbers":   {change(keyTokens, []int32{1}), gguf.ErrType, keyTokens},
		"types too few":        {change(keyTypes, []int32{1}), gguf.ErrFormat, "1 types, want one for each of 261"},
		"no merges":            {change(keyMerges, nil), gguf.ErrMissing, keyMerges},
		"merge of one":         {change(keyMerges, []string{"ab"}), gguf.ErrFormat, `merge 0 of "ab"`},
		"merge of no token":    {change(keyMerges, []string{"a b", "a ?!"}), gguf.ErrFormat, `merge 1 of "a ?!"`},
		"merge to no token":    {change(keyMerges, []string{"a c"}), gguf.ErrFormat, `merge 0 of "a c"`},
		"bos beyond":           {change(keyBOS, uint32(261)), gguf.ErrFormat, "261, want a token id below 261"},
		"eos negative":         {change(keyEOS, int32(-2)), gguf.ErrFormat, keyEOS},
		"eot beyond":           {change(keyEOT, uint64(math.MaxUint64)), gguf.ErrType, keyEOT},
		"bos wanted, not told": {func() map[string]any { kv := change(keyBOS, nil); kv[keyAddBOS] = true; return kv }(), gguf.ErrFormat, keyAddBOS},
		"spm without scores":   {change(keyModel, "llama"), gguf.ErrMissing, keyScores},
		"spm with too few":     {map[string]any{keyModel: "llama", keyTokens: []string{"a", "b"}, keyScores: []float32{1}}, gguf.ErrFormat, "1 scores, want one for each of 2"},
		"spm with NaN":         {map[string]any{keyModel: "llama", keyTokens: []string{"a"}, keyScores: []float32{float32(math.NaN())}}, gguf.ErrFormat, "NaN for token 0"},
	} {
		_, err := load(t, c.kv)
		var typed *gguf.Error
		if !errors.As(err, &typed) || !errors.Is(err, c.kind) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: got %v, want %q saying %q", name, err, c.kind, c.says)
		}
	}
}

func TestAddBOS(t *testing.T) {
	for pre, want := range map[string]bool{"gpt-2": false, "smollm": false, "llama-bpe": true} {
		kv := vocabulary(pre, nil)
		if got := open(t, kv).AddBOS; got != want {
			t.Errorf("%s: %v, want %v", pre, got, want)
		}
		kv[keyAddBOS] = !want
		if got := open(t, kv).AddBOS; got != !want {
			t.Errorf("%s: the file's %v is ignored", pre, !want)
		}
	}
}
