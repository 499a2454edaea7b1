package main

import "strings"

// stopper ends a text where the first of some strings is complete; of several that end there, where the longest began. Text that may be
// the beginning of one is held back, so that nothing of a stop string is ever written, however the text is cut into pieces.
type stopper struct {
	stops []string
	held  string
}

// push takes the text that follows and returns what can be written, and the stop string that ended the text or "". After that
// nothing may be pushed.
func (s *stopper) push(text string) (out, stopped string) {
	s.held += text
	end := len(s.held) + 1
	for _, stop := range s.stops {
		if i := strings.Index(s.held, stop); i >= 0 && (i+len(stop) < end || i+len(stop) == end && len(stop) > len(stopped)) {
			end, stopped = i+len(stop), stop
		}
	}
	if stopped != "" {
		out, s.held = s.held[:end-len(stopped)], ""
		return out, stopped
	}
	keep := 0
	for _, stop := range s.stops {
		for n := min(len(stop)-1, len(s.held)); n > keep; n-- {
			if strings.HasSuffix(s.held, stop[:n]) {
				keep = n
			}
		}
	}
	out, s.held = s.held[:len(s.held)-keep], s.held[len(s.held)-keep:]
	return out, ""
}

// flush returns what was held back for nothing.
func (s *stopper) flush() string {
	out := s.held
	s.held = ""
	return out
}
