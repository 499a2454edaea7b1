package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/gaze-ml/gaze/examples/llama/chat"
	"github.com/gaze-ml/gaze/examples/llama/gguf"
	"github.com/gaze-ml/gaze/examples/llama/tokenizer"
)

// maxLine is the longest prompt of a -prompts file, in bytes.
const maxLine = 1 << 20

// readPrompts gathers the prompts of -p and -prompts.
func readPrompts(o options, stdin io.Reader) ([]string, error) {
	var prompts []string
	for _, p := range o.prompts {
		if p == "-" {
			text, err := io.ReadAll(stdin)
			if err != nil {
				return nil, fmt.Errorf("standard input: %w", err)
			}
			p = string(text)
		}
		prompts = append(prompts, p)
	}
	if o.file == "" {
		return prompts, nil
	}
	in := stdin
	if o.file != "-" {
		f, err := os.Open(o.file)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		in = f
	}
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		if line := strings.TrimSpace(lines.Text()); line != "" {
			prompts = append(prompts, line)
		}
	}
	switch err := lines.Err(); {
	case errors.Is(err, bufio.ErrTooLong):
		return nil, &flagError{"prompts", "a longer line", fmt.Sprintf("lines of %d bytes or fewer", maxLine)}
	case err != nil:
		return nil, fmt.Errorf("-prompts %s: %w", o.file, err)
	case len(prompts) == 0:
		return nil, &flagError{"prompts", "no prompts", "one a line"}
	}
	return prompts, nil
}

// prompt is one as the model sees it.
type prompt struct {
	text string
	ids  []int32
}

// encoder turns prompts into ids, in the model's chat format unless -raw says otherwise.
type encoder struct {
	tok      *tokenizer.Tokenizer
	template *chat.Template // nil: prompts are taken as they are
	system   string
	notes    io.Writer // for what the user should know
}

func newEncoder(f *gguf.File, tok *tokenizer.Tokenizer, o options, notes io.Writer) (*encoder, error) {
	e := &encoder{tok: tok, system: o.system, notes: notes}
	if o.raw {
		return e, nil
	}
	source, err := gguf.GetOr(f, "tokenizer.chat_template", "")
	switch {
	case err != nil:
		return nil, err
	case source == "" && o.system != "":
		return nil, &flagError{"system", fmt.Sprintf("%q", o.system), "none: the model's file has no chat template"}
	case source == "":
		fmt.Fprintln(notes, "The model's file has no chat template: prompts are continued as they are.")
		return e, nil
	}
	special := func(id int32) string {
		if id == tokenizer.None {
			return ""
		}
		return tok.Text(id)
	}
	e.template, err = chat.New(source, special(tok.BOS), special(tok.EOS))
	return e, err
}

func (e *encoder) encode(text string) (prompt, error) {
	if e.template != nil {
		var messages []chat.Message
		if e.system != "" {
			messages = append(messages, chat.Message{Role: "system", Content: e.system})
		}
		var err error
		if text, err = e.template.Render(append(messages, chat.Message{Role: "user", Content: text}), true); err != nil {
			return prompt{}, err
		}
	}
	// A template may have written BOS itself.
	how := tokenizer.EncodeOptions{BOS: e.tok.AddBOS && !strings.HasPrefix(text, e.tok.Text(e.tok.BOS)), Special: true}
	if lost := e.tok.Lost(text, how); lost > 0 {
		fmt.Fprintf(e.notes, "The model's vocabulary has no token for %d bytes of the prompt: it will not see them.\n", lost)
	}
	return prompt{text, e.tok.Encode(text, how)}, nil
}
