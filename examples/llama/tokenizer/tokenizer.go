// Package tokenizer turns text into a model's token ids and back, from the vocabulary in its GGUF file: byte-level BPE
// (tokenizer.ggml.model "gpt2") and SentencePiece BPE ("llama").
//
// Ids equal those of llama.cpp and of Hugging Face's tokenizers for the pre-tokenizers that are known here; another one
// is an error rather than a near miss.
package tokenizer

import (
	"fmt"
	"slices"
	"sort"
	"strings"

	"github.com/gaze-ml/gaze/examples/llama/gguf"
)

// The metadata keys of a vocabulary.
const (
	keyModel       = "tokenizer.ggml.model"
	keyPre         = "tokenizer.ggml.pre"
	keyTokens      = "tokenizer.ggml.tokens"
	keyTypes       = "tokenizer.ggml.token_type"
	keyMerges      = "tokenizer.ggml.merges"
	keyScores      = "tokenizer.ggml.scores"
	keyBOS         = "tokenizer.ggml.bos_token_id"
	keyEOS         = "tokenizer.ggml.eos_token_id"
	keyEOT         = "tokenizer.ggml.eot_token_id"
	keyEOM         = "tokenizer.ggml.eom_token_id"
	keyUnknown     = "tokenizer.ggml.unknown_token_id"
	keyAddBOS      = "tokenizer.ggml.add_bos_token"
	keySpacePrefix = "tokenizer.ggml.add_space_prefix"
)

// kind is what a token is for, numbered as in the file (llama.cpp's token types).
type kind int32

const (
	kindNormal  kind = 1
	kindUnknown kind = 2
	kindControl kind = 3
	kindUser    kind = 4 // user-defined: always matched in text, as it stands
	kindByte    kind = 6 // <0xNN> of SentencePiece
)

// None is the id of a special token that the file doesn't have.
const None int32 = -1

// Tokenizer is one model's vocabulary. It is immutable: its methods may be called concurrently.
type Tokenizer struct {
	BOS, EOS int32 // None if the file has none
	AddBOS   bool  // whether the model wants BOS in front of a prompt

	tokens  []string // in the vocabulary's own spelling
	kinds   []kind
	ids     map[string]int32
	special [256][]int32 // ids of the tokens that are matched whole, by first byte, longest first
	end     []int32      // ids that end a turn, sorted
	coder   coder

	spacePrefix bool // SentencePiece: a space is put in front of text
}

// coder is what differs between the kinds of vocabulary.
type coder interface {
	// encode appends the ids of text, which holds no token that is matched whole, and returns how many of its bytes no
	// token expresses; first says whether a token matched whole or the beginning of the text is before it.
	encode(dst []int32, text string, first bool) (ids []int32, lost int)
	// decode appends the bytes of a normal token.
	decode(dst []byte, token string) []byte
}

// FromGGUF reads the vocabulary of a model file. An error is a [*gguf.Error] that names the key; it wraps
// [gguf.ErrUnsupported] for a kind of tokenizer that is not known here.
func FromGGUF(f *gguf.File) (*Tokenizer, error) {
	model, err := gguf.Get[string](f, keyModel)
	if err != nil {
		return nil, err
	}
	t := &Tokenizer{}
	if t.tokens, err = gguf.Get[[]string](f, keyTokens); err != nil {
		return nil, err
	}
	if err := t.readKinds(f); err != nil {
		return nil, err
	}
	t.ids = make(map[string]int32, len(t.tokens))
	for id, token := range t.tokens {
		t.ids[token] = int32(id)
	}
	switch model {
	case "gpt2":
		err = t.newBPE(f)
	case "llama":
		err = t.newSPM(f)
	default:
		err = wrong(keyModel, fmt.Sprintf("%q", model), `"gpt2" or "llama"`, gguf.ErrUnsupported)
	}
	if err != nil {
		return nil, err
	}
	return t, t.readSpecials(f)
}

// wrong is an error about a key's value.
func wrong(key, got, want string, kind error) error {
	return &gguf.Error{Item: fmt.Sprintf("key %q", key), Got: got, Want: want, Err: kind}
}

func (t *Tokenizer) readKinds(f *gguf.File) error {
	if len(t.tokens) == 0 {
		return wrong(keyTokens, "no tokens", "a vocabulary", gguf.ErrFormat)
	}
	kinds, err := gguf.GetOr[[]int32](f, keyTypes, nil)
	if err != nil {
		return err
	}
	if kinds != nil && len(kinds) != len(t.tokens) {
		return wrong(keyTypes, fmt.Sprintf("%d types", len(kinds)), fmt.Sprintf("one for each of %d tokens", len(t.tokens)), gguf.ErrFormat)
	}
	t.kinds = make([]kind, len(t.tokens))
	for i := range t.kinds {
		t.kinds[i] = kindNormal
		if kinds != nil {
			t.kinds[i] = kind(kinds[i])
		}
	}
	return nil
}

// endNames are the texts of control tokens that end a turn in models whose file doesn't say so.
var endNames = []string{"<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|end|>", "<|endoftext|>", "<end_of_turn>", "</s>",
	"<｜end▁of▁sentence｜>"}

func (t *Tokenizer) readSpecials(f *gguf.File) (err error) {
	id := func(key string) int32 {
		n, e := t.id(f, key)
		if err == nil {
			err = e
		}
		return n
	}
	t.BOS, t.EOS = id(keyBOS), id(keyEOS)
	t.end = []int32{t.EOS, id(keyEOT), id(keyEOM)}
	for _, name := range endNames {
		if id, ok := t.ids[name]; ok && t.kinds[id] != kindNormal {
			t.end = append(t.end, id)
		}
	}
	slices.Sort(t.end)
	t.end = slices.DeleteFunc(slices.Compact(t.end), func(id int32) bool { return id == None })
	if err != nil {
		return err
	}
	if t.AddBOS, err = gguf.GetOr(f, keyAddBOS, t.AddBOS); err != nil {
		return err
	}
	if t.AddBOS && t.BOS == None {
		return wrong(keyAddBOS, "true", "false, or the key "+keyBOS, gguf.ErrFormat)
	}
	for id, token := range t.tokens {
		switch t.kinds[id] {
		case kindControl, kindUser, kindUnknown:
			if token != "" {
				t.special[token[0]] = append(t.special[token[0]], int32(id))
			}
		}
	}
	for _, ids := range t.special {
		sort.SliceStable(ids, func(i, j int) bool { return len(t.tokens[ids[i]]) > len(t.tokens[ids[j]]) })
	}
	return nil
}

// id reads a key that holds a token id, or returns None if there is no such key.
func (t *Tokenizer) id(f *gguf.File, key string) (int32, error) {
	n, err := gguf.GetOr(f, key, int(None))
	if err == nil && (n < int(None) || n >= len(t.tokens)) {
		err = wrong(key, fmt.Sprint(n), fmt.Sprintf("a token id below %d", len(t.tokens)), gguf.ErrFormat)
	}
	if err != nil {
		return None, err
	}
	return int32(n), nil
}

// Size returns the number of tokens; ids are below it.
func (t *Tokenizer) Size() int { return len(t.tokens) }

// IsEnd reports whether the token ends the model's turn: EOS, end of turn, end of message.
func (t *Tokenizer) IsEnd(id int32) bool {
	_, found := slices.BinarySearch(t.end, id)
	return found
}

// EncodeOptions say what Encode makes of special tokens.
type EncodeOptions struct {
	// BOS puts the beginning-of-sequence token in front, if the file has one.
	BOS bool
	// Special turns the text of a control token, such as "<|im_end|>", into that token, as a rendered chat template
	// needs it. Without it, it is encoded like any text.
	Special bool
}

// Encode returns the token ids of text. Its time is n·log n in the text's length, whatever the text. Invalid UTF-8 is
// encoded byte by byte.
func (t *Tokenizer) Encode(text string, o EncodeOptions) []int32 {
	ids, _ := t.encode(text, o)
	return ids
}

// Lost returns how many bytes of text the vocabulary has no token for. Encode leaves them out or, if there is an unknown
// token of SentencePiece, puts it for each such character, as other implementations do. Many vocabularies lack bytes that
// are no part of assigned characters.
func (t *Tokenizer) Lost(text string, o EncodeOptions) int {
	_, lost := t.encode(text, o)
	return lost
}

func (t *Tokenizer) encode(text string, o EncodeOptions) (ids []int32, lost int) {
	ids = make([]int32, 0, len(text)/3+2)
	if o.BOS && t.BOS != None {
		ids = append(ids, t.BOS)
	}
	start, first := 0, true // of the plain text not yet encoded
	plain := func(end int) {
		if end > start {
			var n int
			ids, n = t.coder.encode(ids, text[start:end], first)
			lost += n
		}
	}
	for i := 0; i < len(text); {
		id := t.matchSpecial(text[i:], o.Special)
		if id == None {
			i++
			continue
		}
		plain(i)
		ids = append(ids, id)
		i += len(t.tokens[id])
		start, first = i, true
	}
	plain(len(text))
	return ids, lost
}

// matchSpecial returns the longest whole token that text begins with, or None.
func (t *Tokenizer) matchSpecial(text string, control bool) int32 {
	for _, id := range t.special[text[0]] {
		if (control || t.kinds[id] == kindUser) && strings.HasPrefix(text, t.tokens[id]) {
			return id
		}
	}
	return None
}
