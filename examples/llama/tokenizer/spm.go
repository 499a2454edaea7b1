package tokenizer

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/gaze-ml/gaze/examples/llama/gguf"
)

// space is how SentencePiece spells a space (U+2581).
const space = "▁"

// spm is SentencePiece's BPE: there are no words, the characters of the whole text are merged, the pair whose token has
// the highest score first, and what has no token is spelt as bytes.
type spm struct {
	ids         map[string]int32 // of normal tokens: text that looks like <0x0A> is no newline
	scores      []float32
	bytes       [256]int32 // the token <0xNN> of each byte, or None
	unknown     int32
	spacePrefix bool
}

// newSPM reads the scores.
func (t *Tokenizer) newSPM(f *gguf.File) error {
	s := &spm{ids: make(map[string]int32, len(t.ids))}
	for text, id := range t.ids {
		if t.kinds[id] == kindNormal {
			s.ids[text] = id
		}
	}
	var err error
	if s.scores, err = gguf.Get[[]float32](f, keyScores); err != nil {
		return err
	}
	if len(s.scores) != len(t.tokens) {
		return wrong(keyScores, fmt.Sprintf("%d scores", len(s.scores)), fmt.Sprintf("one for each of %d tokens", len(t.tokens)), gguf.ErrFormat)
	}
	for i, score := range s.scores {
		if math.IsNaN(float64(score)) {
			return wrong(keyScores, fmt.Sprintf("NaN for token %d", i), "a number", gguf.ErrFormat)
		}
	}
	if t.spacePrefix, err = gguf.GetOr(f, keySpacePrefix, true); err != nil {
		return err
	}
	s.spacePrefix = t.spacePrefix
	if s.unknown, err = t.id(f, keyUnknown); err != nil {
		return err
	}
	for i := range s.bytes {
		s.bytes[i] = None
		if id, ok := t.ids[fmt.Sprintf("<0x%02X>", i)]; ok {
			s.bytes[i] = id
		}
	}
	t.coder, t.AddBOS = s, true
	return nil
}

func (s *spm) encode(dst []int32, text string, first bool) (ids []int32, lost int) {
	if first && s.spacePrefix {
		text = " " + text
	}
	text = strings.ReplaceAll(text, " ", space)
	m := merger{join: func(l, r symbol) (int32, float64, bool) {
		id, ok := s.ids[text[l.start:r.end]]
		if !ok {
			return None, 0, false
		}
		return id, -float64(s.scores[id]), true
	}}
	for i := 0; i < len(text); {
		_, n := utf8.DecodeRuneInString(text[i:])
		id, ok := s.ids[text[i:i+n]]
		if !ok {
			id = None
		}
		m.add(i, i+n, id)
		i += n
	}
	m.run()
	for i := 0; i >= 0; i = m.symbols[i].next {
		if sym := m.symbols[i]; sym.id != None {
			dst = append(dst, sym.id)
		} else {
			var n int
			dst, n = s.spell(dst, text[sym.start:sym.end])
			lost += n
		}
	}
	return dst, lost
}

// spell appends a character that has no token as bytes, or if one of them has none, as the unknown token.
func (s *spm) spell(dst []int32, char string) (ids []int32, lost int) {
	n := len(dst)
	for i := range len(char) {
		id := s.bytes[char[i]]
		if id == None {
			dst = dst[:n]
			if s.unknown != None {
				dst = append(dst, s.unknown)
			}
			return dst, len(char)
		}
		dst = append(dst, id)
	}
	return dst, 0
}

func (s *spm) decode(dst []byte, token string) []byte {
	return append(dst, strings.ReplaceAll(token, space, " ")...)
}

// byteOf returns the byte that a token such as <0x0A> stands for.
func byteOf(token string) (byte, bool) {
	if len(token) != 6 || token[:3] != "<0x" || token[5] != '>' {
		return 0, false
	}
	n, err := strconv.ParseUint(token[3:5], 16, 8)
	return byte(n), err == nil
}
