package main

import (
	"bytes"
	"fmt"
	"io"
)

// sink is where an answer's text goes.
type sink interface {
	io.Writer
	// end comes after the last text.
	end() error
}

// plain writes the only answer as it comes.
type plain struct{ io.Writer }

func (plain) end() error { return nil }

// labelled writes one of several answers, whose texts come interleaved, line by line behind the number of its prompt.
type labelled struct {
	w     io.Writer
	label string
	line  []byte // not whole yet
	any   bool   // a line was written
}

func newLabelled(w io.Writer, number int) *labelled {
	return &labelled{w: w, label: fmt.Sprintf("[%d]", number)}
}

func (l *labelled) Write(p []byte) (int, error) {
	l.line = append(l.line, p...)
	for {
		i := bytes.IndexByte(l.line, '\n')
		if i < 0 {
			return len(p), nil
		}
		if err := l.put(l.line[:i]); err != nil {
			return 0, err
		}
		l.line = l.line[i+1:]
	}
}

func (l *labelled) put(line []byte) error {
	l.any = true
	text := l.label
	if len(line) > 0 {
		text += " " + string(line)
	}
	_, err := io.WriteString(l.w, text+"\n")
	return err
}

// end writes the last line, or an empty one for an answer without text.
func (l *labelled) end() error {
	if len(l.line) == 0 && l.any {
		return nil
	}
	line := l.line
	l.line = nil
	return l.put(line)
}
