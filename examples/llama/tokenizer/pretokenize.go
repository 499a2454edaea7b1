package tokenizer

import (
	"iter"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// splitter returns the length of the first word of a text that isn't empty.
type splitter func(text string) int

// preTokenizer cuts text into the words inside which merging happens.
type preTokenizer struct {
	split        []splitter // each cuts what the one before left whole
	ignoreMerges bool       // a word that is a token is that token, whatever the merges say
	addBOS       bool       // unless the file says otherwise
}

// The pre-tokenizers by their names in GGUF files. Each reproduces the regular expressions of the models' tokenizer.json;
// a look-ahead in them (a run of spaces leaves its last one to the word that follows) is why they are written by hand.
var (
	preDefault = preTokenizer{split: []splitter{punctuation, gpt2, numbers, triples}}
	preGPT2    = preTokenizer{split: []splitter{gpt2}}
	preDigits  = preTokenizer{split: []splitter{digits, gpt2}}
	preLlama3  = preTokenizer{split: []splitter{llama3(3)}, ignoreMerges: true, addBOS: true}
	preQwen2   = preTokenizer{split: []splitter{llama3(1)}}

	preTokenizers = map[string]preTokenizer{
		"default": preDefault,
		"gpt-2":   preGPT2, "phi-2": preGPT2, "olmo": preGPT2, "mpt": preGPT2, "jais": preGPT2,
		"smollm": preDigits, "starcoder": preDigits, "refact": preDigits, "command-r": preDigits, "codeshell": preDigits, "exaone": preDigits,
		"llama-bpe": preLlama3, "llama3": preLlama3, "llama-v3": preLlama3, "falcon3": preLlama3,
		"qwen2": preQwen2, "deepseek-r1-qwen": preQwen2, "stablelm2": preQwen2,
	}
)

func preTokenizerNames() string {
	var names []string
	for name := range preTokenizers {
		names = append(names, name)
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

// words cuts text by the first splitter, each piece by the next, and yields what the last leaves.
func words(text string, split []splitter) iter.Seq[string] {
	return func(yield func(string) bool) { cut(text, split, yield) }
}

func cut(text string, split []splitter, yield func(string) bool) bool {
	if len(split) == 0 {
		return yield(text)
	}
	for len(text) > 0 {
		n := split[0](text)
		if !cut(text[:n], split[1:], yield) {
			return false
		}
		text = text[n:]
	}
	return true
}

// class is what the regular expressions tell characters apart by.
type class int

const (
	other   class = iota // [^\s\p{L}\p{N}], and bytes that are no UTF-8
	letter               // \p{L}
	number               // \p{N}
	blank                // \s
	nothing              // the end of the text
)

// head returns the class of text's first character and its size.
func head(text string) (class, int) {
	if text == "" {
		return nothing, 0
	}
	r, n := utf8.DecodeRuneInString(text)
	switch {
	case unicode.IsLetter(r):
		return letter, n
	case unicode.Is(unicode.N, r):
		return number, n
	case unicode.IsSpace(r):
		return blank, n
	}
	return other, n
}

// run returns the length of the characters of class c that text begins with, and the size of the last of them.
func run(text string, c class) (n, last int) {
	for {
		got, size := head(text[n:])
		if got != c {
			return n, last
		}
		n, last = n+size, size
	}
}

// runOf returns the length of the characters that text begins with for which in has the value of the first.
func runOf(text string, in func(rune) bool) int {
	first, n := utf8.DecodeRuneInString(text)
	for i, r := range text[n:] {
		if in(r) != in(first) {
			return n + i
		}
	}
	return len(text)
}

// contraction returns the length of 's, 't, 're, 've, 'm, 'll or 'd at the beginning of text, or 0; with fold in capitals
// too.
func contraction(text string, fold bool) int {
	if text[0] != '\'' {
		return 0
	}
next:
	for _, c := range []string{"'s", "'t", "'re", "'ve", "'m", "'ll", "'d"} {
		if len(text) < len(c) {
			continue
		}
		for i := range len(c) {
			b := text[i]
			if fold && 'A' <= b && b <= 'Z' {
				b += 'a' - 'A'
			}
			if b != c[i] {
				continue next
			}
		}
		return len(c)
	}
	return 0
}

// blanks is \s+(?!\S)|\s+ for a text that begins with a blank: the run of blanks, less the last if a word follows.
func blanks(text string) int {
	n, last := run(text, blank)
	if n < len(text) && n > last {
		return n - last
	}
	return n
}

// gpt2 is 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
func gpt2(text string) int {
	if n := contraction(text, false); n > 0 {
		return n
	}
	skip := 0
	if text[0] == ' ' {
		skip = 1
	}
	if c, _ := head(text[skip:]); c != blank && c != nothing {
		n, _ := run(text[skip:], c)
		return skip + n
	}
	return blanks(text)
}

// llama3 is, with k digits to a word,
// (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,k}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
func llama3(k int) splitter {
	return func(text string) int {
		if n := contraction(text, true); n > 0 {
			return n
		}
		c, size := head(text)
		skip := 0
		if (c == other || c == blank) && text[0] != '\r' && text[0] != '\n' {
			skip = size
		}
		if n, _ := run(text[skip:], letter); n > 0 {
			return skip + n
		}
		if c == number {
			n := 0
			for range k {
				got, size := head(text[n:])
				if got != number {
					break
				}
				n += size
			}
			return n
		}
		skip = 0
		if text[0] == ' ' {
			skip = 1
		}
		if n, _ := run(text[skip:], other); n > 0 {
			n += skip
			return n + len(text[n:]) - len(strings.TrimLeft(text[n:], "\r\n"))
		}
		n, _ := run(text, blank)
		if line := strings.LastIndexAny(text[:n], "\r\n"); line >= 0 {
			return line + 1
		}
		return blanks(text)
	}
}

// digits is \p{N}: each number character is a word.
func digits(text string) int {
	if c, n := head(text); c == number {
		return n
	}
	return runOf(text, isNumber)
}

// numbers is \p{N}+
func numbers(text string) int { return runOf(text, isNumber) }

func isNumber(r rune) bool { return unicode.Is(unicode.N, r) }

// punctuation is [\p{P}$+<=>^~|]+
func punctuation(text string) int {
	return runOf(text, func(r rune) bool { return unicode.Is(unicode.P, r) || strings.ContainsRune("$+<=>^~|", r) })
}

// triples is [0-9][0-9][0-9]
func triples(text string) int {
	three := func(i int) bool {
		for j := i; j < i+3; j++ {
			if j >= len(text) || text[j] < '0' || text[j] > '9' {
				return false
			}
		}
		return true
	}
	if three(0) {
		return 3
	}
	for i := 1; i < len(text); i++ {
		if three(i) {
			return i
		}
	}
	return len(text)
}
