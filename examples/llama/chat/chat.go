// Package chat renders a model's own chat template, the Jinja source in its file's tokenizer.chat_template, as Hugging
// Face's apply_chat_template does: blocks are trimmed (trim_blocks and lstrip_blocks), and raise_exception, strftime_now,
// tojson without HTML escapes, loop controls and {% generation %} are there.
//
// A template is a program from a file that may be hostile. It can't reach other files, its length, nesting, recursion,
// ranges, padding by filters and output are bounded, and a panic of the template engine is an error. Its running time is
// not bounded, nor is the length of a string that it repeats, pads by a method or adds to itself.
package chat

import (
	"errors"
	"fmt"
	"strings"

	"github.com/nikolalohinski/gonja/v2/config"
	"github.com/nikolalohinski/gonja/v2/exec"
	"github.com/nikolalohinski/gonja/v2/loaders"
)

// The bounds of a template. The longest in use are some tens of thousand bytes.
const (
	maxSource  = 1 << 17 // bytes
	maxNesting = 500     // of brackets, as the parser's stack grows with it
	maxCalls   = 100     // of a macro inside itself
	maxRange   = 1 << 16 // integers of a range, and what a filter pads to
	maxOutput  = 1 << 24 // bytes
)

// What kind of fault an [*Error] is; test with errors.Is.
var (
	// ErrSyntax: the template can't be parsed.
	ErrSyntax = errors.New("chat template syntax")
	// ErrRender: the template failed on these messages.
	ErrRender = errors.New("chat template failed")
	// ErrRaised: the template refused the messages by raise_exception, for example for a role that it doesn't know.
	ErrRaised = errors.New("chat template refused the messages")
	// ErrLimit: the template is too long or nested too deep, or writes or recurses without end.
	ErrLimit = errors.New("chat template limit")
)

// Error is a fault of a template, or of messages that it doesn't take.
type Error struct {
	Err    error  // ErrSyntax, ErrRender, ErrRaised or ErrLimit
	Detail string // what happened, for ErrRaised the template's own words
}

func (e *Error) Error() string { return e.Err.Error() + ": " + e.Detail }

// Unwrap returns the kind of fault.
func (e *Error) Unwrap() error { return e.Err }

// Message is one turn of a conversation.
type Message struct {
	Role    string // "system", "user" or "assistant", or what else the template knows
	Content string
}

// Template is a parsed chat template.
type Template struct {
	source   string
	bos, eos string
}

// New parses a template. bos and eos are the texts of the model's special tokens, empty if it has none.
func New(source, bos, eos string) (*Template, error) {
	if len(source) > maxSource {
		return nil, &Error{ErrLimit, fmt.Sprintf("got %d bytes, want at most %d", len(source), maxSource)}
	}
	depth := 0
	for i := range len(source) {
		switch source[i] {
		case '(', '[', '{':
			if depth++; depth > maxNesting {
				return nil, &Error{ErrLimit, fmt.Sprintf("got brackets nested deeper than %d", maxNesting)}
			}
		case ')', ']', '}':
			depth = max(0, depth-1)
		}
	}
	t := &Template{source: source, bos: bos, eos: eos}
	_, err := t.parse(&state{})
	return t, err
}

// Render returns the prompt for messages; with generate it ends where the assistant's answer begins. The special tokens
// in it are text, to be encoded as such.
func (t *Template) Render(messages []Message, generate bool) (prompt string, err error) {
	s := &state{}
	parsed, err := t.parse(s)
	if err != nil {
		return "", err
	}
	turns := list{}
	for _, m := range messages {
		turns = append(turns, &exec.Dict{Pairs: []*exec.Pair{
			{Key: exec.AsValue("role"), Value: exec.AsValue(m.Role)},
			{Key: exec.AsValue("content"), Value: exec.AsValue(m.Content)},
		}})
	}
	out := &limited{}
	defer recovered(&err)
	err = parsed.Execute(out, exec.NewContext(map[string]any{
		"messages": turns, "add_generation_prompt": generate, "bos_token": t.bos, "eos_token": t.eos,
	}))
	switch {
	case s.fault != nil: // the engine's own error has the same text, wrapped in where it happened
		return "", s.fault
	case out.full:
		return "", &Error{ErrLimit, fmt.Sprintf("got more than %d bytes of output", maxOutput)}
	case err != nil:
		return "", &Error{ErrRender, tail(err)}
	}
	return out.String(), nil
}

// parse makes a template bound to one rendering's state. Parsing again each time is cheap next to running a model, and
// leaves nothing to share.
func (t *Template) parse(s *state) (parsed *exec.Template, err error) {
	defer recovered(&err)
	const name = "/chat_template"
	loader, err := loaders.NewMemoryLoader(map[string]string{name: t.source}) // there are no other files
	if err != nil {
		return nil, &Error{ErrSyntax, tail(err)}
	}
	c := config.New()
	c.TrimBlocks, c.LeftStripBlocks = true, true
	parsed, err = exec.NewTemplate(name, c, loader, s.environment())
	if err != nil {
		if cause := errors.Unwrap(err); cause != nil { // err itself quotes the whole source
			err = cause
		}
		return nil, &Error{ErrSyntax, tail(err)}
	}
	return parsed, nil
}

// recovered turns a panic of the template engine into an error.
func recovered(err *error) {
	if r := recover(); r != nil {
		*err = &Error{ErrRender, fmt.Sprintf("panic: %v", r)}
	}
}

// tail returns the end of an error's text, where the engine says what happened after where.
func tail(err error) string {
	const most = 300
	text := err.Error()
	if len(text) > most {
		text = "…" + strings.ToValidUTF8(text[len(text)-most:], "")
	}
	return text
}

// limited is a buffer that refuses to grow past maxOutput.
type limited struct {
	strings.Builder
	full bool
}

func (l *limited) Write(p []byte) (int, error) { return l.WriteString(string(p)) }

func (l *limited) WriteString(s string) (int, error) {
	if l.Len()+len(s) > maxOutput {
		l.full = true
		return 0, ErrLimit
	}
	return l.Builder.WriteString(s)
}
