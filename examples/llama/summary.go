package main

import (
	"fmt"
	"io"
	"time"
)

// write tells what a run did. It begins on a new line, as the text before it may end within one.
func (s *stats) write(w io.Writer) {
	fmt.Fprintf(w, "\nload    %.2f s, first token after %.2f s\n", s.load.Seconds(), s.first.Seconds())
	fmt.Fprintf(w, "prompt  %s\n", rate(s.promptTokens, s.prompt))
	fmt.Fprintf(w, "decode  %s\n", rate(s.steps, s.decode))
	bytes, what := peakMemory()
	fmt.Fprintf(w, "memory  %.0f MB %s\n", float64(bytes)/1e6, what)
	if s.stopped != "" {
		fmt.Fprintf(w, "ended   %s\n", s.stopped)
	}
}

func rate(tokens int, d time.Duration) string {
	text := fmt.Sprintf("%d tokens in %.2f s", tokens, d.Seconds())
	if tokens > 0 && d > 0 {
		text += fmt.Sprintf(", %.1f tokens/s", float64(tokens)/d.Seconds())
	}
	return text
}
