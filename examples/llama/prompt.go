package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/gaze-ml/gaze/examples/llama/chat"
	"github.com/gaze-ml/gaze/examples/llama/gguf"
	"github.com/gaze-ml/gaze/examples/llama/tokenizer"
)

// encodePrompt returns the ids of the prompt, in the model's chat format unless -raw says otherwise, and its text. What
// the user should know goes to notes.
func encodePrompt(f *gguf.File, tok *tokenizer.Tokenizer, o options, notes io.Writer) (ids []int32, text string, err error) {
	text = o.prompt
	if !o.raw {
		source, err := gguf.GetOr(f, "tokenizer.chat_template", "")
		switch {
		case err != nil:
			return nil, "", err
		case source != "":
			if text, err = renderChat(source, tok, o); err != nil {
				return nil, "", err
			}
		case o.system != "":
			return nil, "", &flagError{"system", fmt.Sprintf("%q", o.system), "none: the model's file has no chat template"}
		default:
			fmt.Fprintln(notes, "The model's file has no chat template: the prompt is continued as it is.")
		}
	}
	// A template may have written BOS itself.
	how := tokenizer.EncodeOptions{BOS: tok.AddBOS && !strings.HasPrefix(text, tok.Text(tok.BOS)), Special: true}
	if lost := tok.Lost(text, how); lost > 0 {
		fmt.Fprintf(notes, "The model's vocabulary has no token for %d bytes of the prompt: it will not see them.\n", lost)
	}
	return tok.Encode(text, how), text, nil
}

func renderChat(source string, tok *tokenizer.Tokenizer, o options) (string, error) {
	special := func(id int32) string {
		if id == tokenizer.None {
			return ""
		}
		return tok.Text(id)
	}
	template, err := chat.New(source, special(tok.BOS), special(tok.EOS))
	if err != nil {
		return "", err
	}
	var messages []chat.Message
	if o.system != "" {
		messages = append(messages, chat.Message{Role: "system", Content: o.system})
	}
	messages = append(messages, chat.Message{Role: "user", Content: o.prompt})
	return template.Render(messages, true)
}
