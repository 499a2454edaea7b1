package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"math"
	"os"
	"slices"
	"strconv"
)

// logitsFile is what -logits writes.
type logitsFile struct {
	Model   string          `json:"model"`
	Vocab   int             `json:"vocab"`
	Prompts []*promptLogits `json:"prompts"`
}

// promptLogits is one prompt's part.
type promptLogits struct {
	Prompt string       `json:"prompt"` // as the model sees it
	IDs    []int32      `json:"ids"`    // of the prompt
	Steps  []stepLogits `json:"steps"`
	Ended  string       `json:"ended"`
}

// stepLogits is what the model said after the tokens so far.
type stepLogits struct {
	ID     int32   `json:"id"`            // the token that was picked
	Top    []int32 `json:"top,omitempty"` // the likeliest tokens in order, whose logits follow; absent: every token's, by id
	Logits numbers `json:"logits"`
}

// numbers are float32s that JSON gives back to the last bit. JSON has no infinities and no NaN: they are null.
type numbers []float32

// MarshalJSON implements json.Marshaler.
func (n numbers) MarshalJSON() ([]byte, error) {
	out := make([]byte, 0, 10*len(n)+2)
	out = append(out, '[')
	for i, x := range n {
		if i > 0 {
			out = append(out, ',')
		}
		if f := float64(x); math.IsInf(f, 0) || math.IsNaN(f) {
			out = append(out, "null"...)
		} else {
			out = strconv.AppendFloat(out, f, 'g', -1, 32)
		}
	}
	return append(out, ']'), nil
}

// record adds a step. top is how many tokens are kept, 0 for all.
func (p *promptLogits) record(logits []float32, picked int32, top int) {
	s := stepLogits{ID: picked}
	if top == 0 || top >= len(logits) {
		s.Logits = slices.Clone(logits)
	} else {
		s.Top = likeliest(logits, top)
		for _, id := range s.Top {
			s.Logits = append(s.Logits, logits[id])
		}
	}
	p.Steps = append(p.Steps, s)
}

// likeliest are the n tokens with the largest logits, in order; equals by id.
func likeliest(logits []float32, n int) []int32 {
	before := func(a, b int32) int {
		if c := cmp.Compare(logits[b], logits[a]); c != 0 {
			return c
		}
		return cmp.Compare(a, b)
	}
	top := make([]int32, 0, n+1)
	for id := range int32(len(logits)) {
		if len(top) == n && before(id, top[n-1]) > 0 {
			continue
		}
		at, _ := slices.BinarySearchFunc(top, id, before)
		if top = slices.Insert(top, at, id); len(top) > n {
			top = top[:n]
		}
	}
	return top
}

// write writes the file.
func (l *logitsFile) write(path string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	e := json.NewEncoder(f)
	e.SetEscapeHTML(false) // chat formats are full of < and >
	return errors.Join(e.Encode(l), f.Close())
}
