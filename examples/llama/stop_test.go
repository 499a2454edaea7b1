package main

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// However a text is cut, what comes out is the text up to the first stop string that is complete, and never more than can't be a part
// of one.
func TestStopper(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	draw := func(n int) string {
		var s strings.Builder
		for range n {
			s.WriteString([]string{"a", "b", "é", "中"}[r.IntN(4)])
		}
		return s.String()
	}
	hits := 0
	for range 5000 {
		var stops []string
		for range r.IntN(4) {
			stops = append(stops, draw(1+r.IntN(3)))
		}
		text := draw(r.IntN(12))
		want, stopped := text, ""
		for end := range len(text) + 1 { // the first end of any, and of those the longest
			for _, s := range stops {
				if stopped == "" || len(s) > len(stopped) {
					if strings.HasSuffix(text[:end], s) {
						want, stopped = text[:end-len(s)], s
					}
				}
			}
			if stopped != "" {
				hits++
				break
			}
		}
		s := stopper{stops: stops}
		var got, stop string
		var runes []string
		for _, c := range text {
			runes = append(runes, string(c))
		}
		for piece := range slices.Chunk(runes, 1+r.IntN(4)) {
			var out string
			out, stop = s.push(strings.Join(piece, ""))
			if got += out; !strings.HasPrefix(want, got) {
				t.Fatalf("%q until %q: %q is out too much", text, stops, got)
			}
			if stop != "" {
				break
			}
			if longest := slices.MaxFunc(append(stops, ""), func(a, b string) int { return len(a) - len(b) }); len(s.held) >= max(1, len(longest)) {
				t.Fatalf("%q until %q: %q is held back", text, stops, s.held)
			}
		}
		if got += s.flush(); got != want || stop != stopped {
			t.Fatalf("%q until %q: got %q, stopped by %q, want %q and %q", text, stops, got, stop, want, stopped)
		}
	}
	if hits < 1000 {
		t.Errorf("only %d texts were stopped", hits)
	}
}
