package tokenizer

import (
	"fmt"
	"strings"

	"github.com/gaze-ml/gaze/examples/llama/gguf"
)

// bpe is byte-level byte-pair encoding as GPT-2 introduced it: text is split into words, each word's bytes are tokens of
// their own, and neighbours are merged in the order of the merge list.
type bpe struct {
	split        []splitter
	bytes        [256]int32       // the token of each byte, or None
	merges       map[uint64]merge // by pair
	ids          map[string]int32
	ignoreMerges bool
}

type merge struct{ id, rank int32 }

// pair is the key of two neighbouring tokens.
func pair(left, right int32) uint64 { return uint64(uint32(left))<<32 | uint64(uint32(right)) }

// Byte-level vocabularies spell each byte as one printable character: printable Latin-1 as itself, the other 68 bytes as
// U+0100 onwards in ascending order (GPT-2's bytes_to_unicode).
var (
	byteRune [256]rune
	runeByte = map[rune]byte{}
)

func init() {
	next := rune(0x100)
	for b := range 256 {
		r := rune(b)
		if !(b >= '!' && b <= '~' || b >= 0xa1 && b <= 0xac || b >= 0xae) {
			r = next
			next++
		}
		byteRune[b], runeByte[r] = r, byte(b)
	}
}

// newBPE reads the merges and the name of the pre-tokenizer.
func (t *Tokenizer) newBPE(f *gguf.File) error {
	name, err := gguf.GetOr(f, keyPre, "default")
	if err != nil {
		return err
	}
	pre, ok := preTokenizers[name]
	if !ok {
		return wrong(keyPre, fmt.Sprintf("%q", name), "one of "+preTokenizerNames(), gguf.ErrUnsupported)
	}
	merges, err := gguf.Get[[]string](f, keyMerges)
	if err != nil {
		return err
	}
	b := &bpe{split: pre.split, ids: t.ids, ignoreMerges: pre.ignoreMerges, merges: make(map[uint64]merge, len(merges))}
	for i, r := range byteRune {
		b.bytes[i] = None
		if id, ok := t.ids[string(r)]; ok {
			b.bytes[i] = id
		}
	}
	for rank, m := range merges {
		left, right, _ := strings.Cut(m, " ")
		l, lok := t.ids[left]
		r, rok := t.ids[right]
		id, ok := t.ids[left+right]
		if !lok || !rok || !ok {
			return wrong(keyMerges, fmt.Sprintf("merge %d of %q", rank, m), "two tokens of the vocabulary that form a third", gguf.ErrFormat)
		}
		if _, dup := b.merges[pair(l, r)]; !dup { // the first is the one with the lower rank
			b.merges[pair(l, r)] = merge{id: id, rank: int32(rank)}
		}
	}
	t.coder, t.AddBOS = b, pre.addBOS
	return nil
}

func (b *bpe) encode(dst []int32, text string, _ bool) (ids []int32, lost int) {
	m := merger{join: func(l, r symbol) (int32, float64, bool) {
		merge, ok := b.merges[pair(l.id, r.id)]
		return merge.id, float64(merge.rank), ok
	}}
	for word := range words(text, b.split) {
		if b.ignoreMerges {
			if id, ok := b.ids[spell(word)]; ok {
				dst = append(dst, id)
				continue
			}
		}
		m.reset()
		for i := range len(word) {
			m.add(i, i+1, b.bytes[word[i]])
		}
		m.run()
		for i := 0; i >= 0; i = m.symbols[i].next {
			if id := m.symbols[i].id; id != None {
				dst = append(dst, id)
			} else {
				lost++
			}
		}
	}
	return dst, lost
}

// spell returns the vocabulary's spelling of text.
func spell(text string) string {
	var s strings.Builder
	for i := range len(text) {
		s.WriteRune(byteRune[text[i]])
	}
	return s.String()
}

func (b *bpe) decode(dst []byte, token string) []byte {
	for _, r := range token {
		if c, ok := runeByte[r]; ok {
			dst = append(dst, c)
		} else { // no byte's spelling: an added token that the file types as normal
			dst = append(dst, string(r)...)
		}
	}
	return dst
}
