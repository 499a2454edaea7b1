package chat

import (
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/gaze-ml/gaze/examples/llama/gguf"
	"github.com/gaze-ml/gaze/examples/llama/internal/testmodel"
)

// Prompts equal Jinja2's, set up as Hugging Face does (testdata/gen.py).
func TestJinja(t *testing.T) {
	data, err := os.ReadFile("testdata/jinja.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct {
		Name, Template string
		Messages       []Message
		Want, Raised   *string
	}
	if err := json.Unmarshal(data, &cases); err != nil {
		t.Fatal(err)
	}
	if len(cases) == 0 {
		t.Fatal("no cases")
	}
	for _, c := range cases {
		got, err := render(c.Template, c.Messages)
		switch {
		case c.Raised != nil:
			if !errors.Is(err, ErrRaised) || !strings.Contains(err.Error(), *c.Raised) {
				t.Errorf("%s: got %q, %v, want ErrRaised with %q", c.Name, got, err, *c.Raised)
			}
		case err != nil:
			t.Errorf("%s: %v", c.Name, err)
		case got != *c.Want:
			t.Errorf("%s: %q\n got %q\nwant %q", c.Name, c.Template, got, *c.Want)
		}
	}
}

func render(source string, messages []Message) (string, error) {
	template, err := New(source, "<s>", "</s>")
	if err != nil {
		return "", err
	}
	return template.Render(messages, true)
}

// SmolLM2's template is ChatML with a system message of its own where the conversation has none.
func TestSmolLM2(t *testing.T) {
	f, err := gguf.Open(testmodel.SmolLM2(t))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	source, err := gguf.Get[string](f, "tokenizer.chat_template")
	if err != nil {
		t.Fatal(err)
	}
	template, err := New(source, "<|im_start|>", "<|im_end|>")
	if err != nil {
		t.Fatal(err)
	}
	turn := func(role, content string) string { return "<|im_start|>" + role + "\n" + content + "<|im_end|>\n" }
	const system = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
	user := Message{"user", "Write a haiku\nabout the sea. "}
	for _, c := range []struct {
		messages []Message
		generate bool
		want     string
	}{
		{[]Message{user}, true, turn("system", system) + turn("user", user.Content) + "<|im_start|>assistant\n"},
		{[]Message{user}, false, turn("system", system) + turn("user", user.Content)},
		{[]Message{{"system", "Be brief."}, user, {"assistant", "No."}, user}, true,
			turn("system", "Be brief.") + turn("user", user.Content) + turn("assistant", "No.") + turn("user", user.Content) + "<|im_start|>assistant\n"},
		{nil, true, "<|im_start|>assistant\n"},
	} {
		if got, err := template.Render(c.messages, c.generate); err != nil || got != c.want {
			t.Errorf("%v: got %q, %v, want %q", c.messages, got, err, c.want)
		}
	}
}

func TestErrors(t *testing.T) {
	user := []Message{{"user", "hi"}}
	for name, c := range map[string]struct {
		source string
		kind   error
	}{
		"unclosed block":      {"{% for m in messages %}", ErrSyntax},
		"unclosed expression": {"{{ 'a", ErrSyntax},
		"unknown tag":         {"{% frobnicate %}", ErrSyntax},
		"unknown filter":      {"{{ 'a' | frobnicate }}", ErrRender},
		"attribute of none":   {"{{ messages[7].content.strip() }}", ErrRender},
		"other file":          {"{% include '/etc/hostname' %}", ErrSyntax},
		"itself":              {"{% include '/chat_template' %}", ErrSyntax},
		"inheritance":         {"{% extends '/chat_template' %}", ErrSyntax},
		"raised":              {"{{ raise_exception('roles must alternate') }}", ErrRaised},
		"raised in a macro":   {"{% macro f() %}{{ raise_exception('no') }}{% endmacro %}{{ f() }}", ErrRaised},
		"raised in a set":     {"{% set x = raise_exception('no') %}", ErrRaised},
		"raised with nothing": {"{{ raise_exception() }}", ErrRaised},
		"recursion":           {"{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", ErrLimit},
		"recursion of two":    {"{% macro f() %}{{ g() }}{% endmacro %}{% macro g() %}{{ f() }}{% endmacro %}{{ f() }}", ErrLimit},
		"much output":         {"{% for i in range(60000) %}" + strings.Repeat("x", 1000) + "{% endfor %}", ErrLimit},
		"long range":          {"{% for i in range(1000000000) %}{% endfor %}", ErrLimit},
		"wide center":         {"{{ 'a' | center(2000000000) }}", ErrLimit},
		"wide indent":         {"{{ 'a' | indent(width=2000000000, first=true) }}", ErrLimit},
		"many slices":         {"{{ [1] | slice(2000000000) | list }}", ErrLimit},
		"long batch":          {"{{ [1] | batch(2000000000, 0) | list }}", ErrLimit},
		"range of text":       {"{{ range('a') }}", ErrRender},
		"long source":         {strings.Repeat("x", 1<<17+1), ErrLimit},
		"deep brackets":       {"{{" + strings.Repeat("(", 100_000), ErrLimit},
		"deep braces":         {strings.Repeat("{", 100_000), ErrLimit},
		"deep blocks":         {strings.Repeat("{% if 1 %}", 2000), ErrSyntax},
	} {
		got, err := render(c.source, user)
		var typed *Error
		if !errors.As(err, &typed) || !errors.Is(err, c.kind) {
			t.Errorf("%s: got %.40q, %v, want %q", name, got, err, c.kind)
		} else if len(err.Error()) > 500 {
			t.Errorf("%s: an error of %d bytes", name, len(err.Error()))
		}
	}
	// A bounded recursion is fine, and a fault leaves the template usable.
	template, err := New("{% macro f(n) %}{% if n > 0 %}{{ n }}{{ f(n - 1) }}{% endif %}{% endmacro %}"+
		"{% if messages[0].role == 'user' %}{{ f(3) }}{% else %}{{ raise_exception('no') }}{% endif %}", "", "")
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := template.Render([]Message{{"tool", ""}}, false); !errors.Is(err, ErrRaised) {
			t.Errorf("got %v, want ErrRaised", err)
		}
		if got, err := template.Render(user, false); err != nil || got != "321" {
			t.Errorf("got %q, %v", got, err)
		}
	}
}

// What gonja does otherwise than Jinja2, mended.
func TestPythonisms(t *testing.T) {
	for source, want := range map[string]string{
		"{{ messages[-1].content }}":                        "one",
		"{{ messages[:1][-1].content }}":                    "one",
		"{{ messages[-2] is defined }}":                     "False",
		"{{ 'a'.split('x')[-1] }}":                          "a",
		"{{ 'a,b,c'.split(',', 1) | join('|') }}":           "a|b,c",
		"{{ 'a,b,c'.split(',') | join('|') }}":              "a|b|c",
		"{{ '  a  b\tc '.split() | join('|') }}":            "a|b|c",
		"{{ '  a  b\tc '.split(maxsplit=1) | join('|') }}":  "a|b	c",
		"{{ 'a\nb'.splitlines()[-1] }}":                     "b",
		"{% for i in range(2, 8, 3) %}{{ i }},{% endfor %}": "2,5,",
		"{% macro f(i) %}{{ i % 2 }}{% endmacro %}{% for i in range(120) %}{{ f(i) }}{% endfor %}": strings.Repeat("01", 60), // many calls are no recursion
		"{% for i in range(3, 0, -1) %}{{ i }}{% endfor %}":                                        "321",
		"{% for k, v in {'z': 1, 'a': 2}.items() %}{{ k }}{{ v }}{% endfor %}":                     "z1a2",
		"{{ {'z': [1, none, true], 'a': {}} | tojson }}":                                           `{"z": [1, null, true], "a": {}}`,
		"{{ {'z': [1, '<é>'], 'a': []} | tojson(indent=2) }}":                                      "{\n  \"z\": [\n    1,\n    \"<é>\"\n  ],\n  \"a\": []\n}",
	} {
		if got, err := render(source, []Message{{"user", "one"}}); err != nil || got != want {
			t.Errorf("%s: got %q, %v, want %q", source, got, err, want)
		}
	}
}

// Text that looks like a template is text.
func TestContentIsNotRendered(t *testing.T) {
	content := "{{ bos_token }}{% if %}{# c #}"
	if got, err := render("{{ messages[0].content }}", []Message{{"user", content}}); err != nil || got != content {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestStrftimeNow(t *testing.T) {
	got, err := render("{{ strftime_now('%d %b %Y 100%%') }}", nil)
	if want := time.Now().Format("02 Jan 2006") + " 100%"; err != nil || got != want {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
}
