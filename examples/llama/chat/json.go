package chat

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"

	"github.com/nikolalohinski/gonja/v2/exec"
)

// toJSON is the filter tojson as Hugging Face defines it, Python's json.dumps with ensure_ascii off: keys in their order,
// ", " and ": " between parts, no escapes for HTML.
func toJSON(_ *exec.Evaluator, in *exec.Value, arguments *exec.VarArgs) *exec.Value {
	if in.IsError() {
		return in
	}
	indent := arguments.GetKeywordArgument("indent", nil)
	w := &jsonWriter{}
	if indent.IsInteger() {
		w.indent = strings.Repeat(" ", max(0, min(indent.Integer(), 16)))
		w.lines = true
	}
	if err := w.value(in, 0); err != nil {
		return exec.AsValue(err)
	}
	return exec.AsSafeValue(w.String())
}

type jsonWriter struct {
	bytes.Buffer
	lines  bool // whether each part is on a line of its own
	indent string
}

func (w *jsonWriter) value(v *exec.Value, depth int) error {
	if depth > maxNesting {
		return errors.New("tojson: nested too deep")
	}
	switch {
	case v.IsError():
		return v
	case v.IsNil():
		w.WriteString("null")
	case v.IsDict():
		return w.sequence('{', '}', depth, v, func(key, value *exec.Value) error {
			if err := w.scalar(key.String()); err != nil {
				return err
			}
			w.WriteString(": ")
			return w.value(value, depth+1)
		})
	case v.IsList():
		return w.sequence('[', ']', depth, v, func(element, _ *exec.Value) error { return w.value(element, depth+1) })
	case v.IsBool():
		return w.scalar(v.Bool())
	case v.IsInteger():
		return w.scalar(v.Integer())
	case v.IsFloat():
		return w.scalar(v.Float())
	case v.IsString():
		return w.scalar(v.String())
	default:
		return errors.New("tojson: got " + v.String() + ", want a value")
	}
	return nil
}

// scalar writes a Go value without escapes for HTML.
func (w *jsonWriter) scalar(x any) error {
	e := json.NewEncoder(&w.Buffer)
	e.SetEscapeHTML(false)
	if err := e.Encode(x); err != nil {
		return err
	}
	w.Truncate(w.Len() - 1) // the encoder's line feed
	return nil
}

func (w *jsonWriter) sequence(open, end byte, depth int, v *exec.Value, part func(key, value *exec.Value) error) error {
	var err error
	empty := true
	w.WriteByte(open)
	v.Iterate(func(i, _ int, key, value *exec.Value) bool {
		empty = false
		switch {
		case i > 0 && w.lines:
			w.WriteByte(',')
		case i > 0:
			w.WriteString(", ")
		}
		w.newline(depth + 1)
		err = part(key, value)
		return err == nil
	}, func() {})
	if !empty {
		w.newline(depth)
	}
	w.WriteByte(end)
	return err
}

func (w *jsonWriter) newline(depth int) {
	if w.lines {
		w.WriteString("\n" + strings.Repeat(w.indent, depth))
	}
}
