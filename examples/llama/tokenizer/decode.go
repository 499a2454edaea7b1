package tokenizer

import (
	"unicode/utf8"
)

// Text returns the bytes that one token stands for. Control tokens stand for their own text, such as "<|im_end|>", and an
// id that is not below Size for U+FFFD.
func (t *Tokenizer) Text(id int32) string { return string(t.appendText(nil, id)) }

func (t *Tokenizer) appendText(dst []byte, id int32) []byte {
	if !t.has(id) {
		return append(dst, "\uFFFD"...)
	}
	token := t.tokens[id]
	switch t.kinds[id] {
	case kindUnknown, kindControl, kindUser:
		return append(dst, token...)
	case kindByte:
		if b, ok := byteOf(token); ok {
			return append(dst, b)
		}
	}
	return t.coder.decode(dst, token)
}

// Decode returns the text of ids, the inverse of [Tokenizer.Encode] without BOS. The text is what the ids say, valid
// UTF-8 or not.
func (t *Tokenizer) Decode(ids []int32) string {
	var out []byte
	first := true // a space that Encode puts in front of text is taken off again
	for _, id := range ids {
		n := len(out)
		out = t.appendText(out, id)
		if first && t.spacePrefix && len(out) > n && out[n] == ' ' && t.kinds[id] == kindNormal {
			out = append(out[:n], out[n+1:]...)
		}
		first = t.IsControl(id) || t.has(id) && t.kinds[id] == kindUser
	}
	return string(out)
}

func (t *Tokenizer) has(id int32) bool { return id >= 0 && int(id) < len(t.tokens) }

// IsControl reports whether a token is a mark for the model, such as BOS, rather than text.
func (t *Tokenizer) IsControl(id int32) bool {
	return t.has(id) && (t.kinds[id] == kindControl || t.kinds[id] == kindUnknown)
}

// Stream turns ids into text as they come. A character that is spread over several tokens is held back until it is whole;
// bytes that can't become one are replaced by U+FFFD. Control tokens give no text.
type Stream struct {
	t    *Tokenizer
	held []byte // the beginning of a character, at most 3 bytes
}

// Stream returns a decoder for text that follows a prompt.
func (t *Tokenizer) Stream() *Stream { return &Stream{t: t} }

// Push returns the text that id completes, which may be none. The text is valid UTF-8.
func (s *Stream) Push(id int32) string {
	if !s.t.IsControl(id) {
		s.held = s.t.appendText(s.held, id)
	}
	n := 0
	for n < len(s.held) && utf8.FullRune(s.held[n:]) {
		_, size := utf8.DecodeRune(s.held[n:])
		n += size
	}
	return s.take(n)
}

// Flush returns what is held back, as U+FFFD for each byte: nothing will complete it.
func (s *Stream) Flush() string { return s.take(len(s.held)) }

// take removes n bytes and returns them as valid UTF-8.
func (s *Stream) take(n int) string {
	text := string([]rune(string(s.held[:n])))
	s.held = append(s.held[:0], s.held[n:]...)
	return text
}
