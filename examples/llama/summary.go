package main

import (
	"fmt"
	"io"
	"time"

	"github.com/gaze-ml/gaze/examples/llama/schedule"
)

// summary is what a run did.
type summary struct {
	load    time.Duration // until the model was ready
	first   time.Duration // from the start of the process to the first token
	stats   schedule.Stats
	shared  int // tokens that every prompt begins with, run once
	again   int // times that a prompt had to start over
	answers []*answer
}

// write tells it. It begins on a new line, as the text before it may end within one. A run that came to nothing tells nothing.
func (s *summary) write(w io.Writer) {
	if s.stats.PromptTokens == 0 && s.first == 0 && !s.interrupted() {
		return
	}
	fmt.Fprintf(w, "\nload    %.2f s, first token after %.2f s\n", s.load.Seconds(), s.first.Seconds())
	fmt.Fprintf(w, "prompt  %s", rate(s.stats.PromptTokens, s.stats.Prompt))
	if s.shared > 0 {
		fmt.Fprintf(w, ", the first %d of every prompt once", s.shared)
	}
	fmt.Fprintf(w, "\ndecode  %s", rate(s.stats.Decoded, s.stats.Decode))
	if len(s.answers) > 1 {
		fmt.Fprintf(w, ", up to %d at once", s.stats.Most)
	}
	if s.again > 0 {
		fmt.Fprintf(w, ", %d times the cache was full and a prompt started over", s.again)
	}
	bytes, what := peakMemory()
	fmt.Fprintf(w, "\nmemory  %.0f MB %s\n", float64(bytes)/1e6, what)
	for i, a := range s.answers {
		switch {
		case a.ended == "":
		case len(s.answers) == 1:
			fmt.Fprintf(w, "ended   %s\n", a.ended)
		default:
			fmt.Fprintf(w, "ended   [%d] after %d tokens: %s\n", i+1, a.generated, a.ended)
		}
	}
}

func (s *summary) interrupted() bool {
	for _, a := range s.answers {
		if a.ended != "" {
			return true
		}
	}
	return false
}

func rate(tokens int, d time.Duration) string {
	text := fmt.Sprintf("%d tokens in %.2f s", tokens, d.Seconds())
	if tokens > 0 && d > 0 {
		text += fmt.Sprintf(", %.1f tokens/s", float64(tokens)/d.Seconds())
	}
	return text
}
