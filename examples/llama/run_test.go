package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"math"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/gaze-ml/gaze/examples/llama/gguf"
	"github.com/gaze-ml/gaze/examples/llama/sample"
)

// TestMain lets the test binary be the command itself, for the tests of signals and pipes.
func TestMain(m *testing.M) {
	f := &fake{script: ids("é "), delay: 20 * time.Millisecond}
	switch os.Getenv("LLAMA_TEST_RUN") {
	case "stuck":
		f.hook = func(step int) {
			if step > 1 {
				select {}
			}
		}
		fallthrough
	case "runs":
		os.Exit(execute(f.open))
	}
	os.Exit(m.Run())
}

// said is a script that ends its turn.
func said(text string) []int32 { return append(ids(text), eosID) }

func TestAnswer(t *testing.T) {
	path := writeModel(t, nil)
	f := &fake{script: said("Hello, wörld!\n")}
	got := runWith(t.Context(), f, "", "-model", path, "-p", "hi")
	if got.status != exitOK || got.stdout != "Hello, wörld!\n" {
		t.Errorf("status %d, stdout %q, stderr %s", got.status, got.stdout, got.stderr)
	}
	want := slices.Concat([]int32{bosID}, ids("[user]hi"), []int32{eosID}, ids("[assistant]"))
	if !slices.Equal(f.prompt, want) {
		t.Errorf("prompt %v, want %v: BOS once, marks as tokens", f.prompt, want)
	}
	if !slices.Equal(f.seen, ids("Hello, wörld!\n")) || f.closed != 1 {
		t.Errorf("steps %v, closed %d times", f.seen, f.closed)
	}
	for _, line := range []string{`load    \d+\.\d\d s, first token after \d+\.\d\d s`, `prompt  21 tokens in \d+\.\d\d s(, \d+\.\d tokens/s)?`,
		`decode  15 tokens in \d+\.\d\d s(, \d+\.\d tokens/s)?`, `memory  \d+ MB .+`, `ended   end of turn`} {
		if !regexp.MustCompile("(?m)^" + line + "$").MatchString(got.stderr) {
			t.Errorf("the summary lacks a line %q:\n%s", line, got.stderr)
		}
	}
	if strings.Contains(got.stderr, "wörld") {
		t.Errorf("text on stderr: %s", got.stderr)
	}
}

func TestPrompts(t *testing.T) {
	bos := []int32{bosID}
	for name, c := range map[string]struct {
		change map[string]any
		stdin  string
		args   []string
		want   []int32
	}{
		"system":   {args: []string{"-p", "hi", "-system", "Be brief."}, want: slices.Concat(bos, ids("[system]Be brief."), []int32{eosID}, ids("[user]hi"), []int32{eosID}, ids("[assistant]"))},
		"raw":      {args: []string{"-raw", "-p", "Once</s>"}, want: slices.Concat(bos, ids("Once"), []int32{eosID})},
		"stdin":    {stdin: "from stdin\n", args: []string{"-raw", "-p", "-"}, want: slices.Concat(bos, ids("from stdin\n"))},
		"no BOS":   {change: map[string]any{"tokenizer.ggml.add_bos_token": false}, args: []string{"-raw", "-p", "x"}, want: ids("x")},
		"template": {change: map[string]any{"tokenizer.chat_template": "{{ messages[-1].content }}!"}, args: []string{"-p", "x"}, want: slices.Concat(bos, ids("x!"))},
		"lost":     {change: map[string]any{"tokenizer.ggml.tokens": changed("tokenizer.ggml.tokens", firstByte+'z', "unused")}, args: []string{"-raw", "-p", "xzyz"}, want: slices.Concat(bos, ids("xy"))},
		"none":     {change: map[string]any{"tokenizer.chat_template": nil}, args: []string{"-p", "x"}, want: slices.Concat(bos, ids("x"))},
	} {
		f := &fake{script: said("ok")}
		got := runWith(t.Context(), f, c.stdin, append([]string{"-model", writeModel(t, c.change)}, c.args...)...)
		if got.status != exitOK || !slices.Equal(f.prompt, c.want) {
			t.Errorf("%s: status %d, prompt %v, want %v: %s", name, got.status, f.prompt, c.want, got.stderr)
		}
		if lost := name == "lost"; lost != strings.Contains(got.stderr, "no token for 2 bytes") {
			t.Errorf("%s: %s", name, got.stderr)
		}
		if name == "none" && !strings.Contains(got.stderr, "no chat template") {
			t.Errorf("no note that there is no template: %s", got.stderr)
		}
	}
}

func TestEnds(t *testing.T) {
	path := writeModel(t, nil)
	for name, c := range map[string]struct {
		script []int32
		args   []string
		text   string
		steps  int
		says   string
	}{
		"at once":         {[]int32{eosID}, nil, "", 0, "end of turn"},
		"-n":              {ids("abcdef"), []string{"-n", "3"}, "abc", 2, "3 tokens (-n)"},
		"-n 1":            {ids("abcdef"), []string{"-n", "1"}, "a", 0, "1 tokens (-n)"},
		"context":         {ids("abcdef"), []string{"-raw", "-ctx", "4"}, "abc", 2, "the context of 4 tokens is full"}, // BOS, x and two steps
		"no bound":        {ids("a"), []string{"-raw", "-n", "0"}, strings.Repeat("a", 99), 98, "the context of 100 tokens is full"},
		"half character":  {append(ids("a\xe4\xb8"), eosID), nil, "a\uFFFD\uFFFD", 3, "end of turn"},
		"-n in character": {ids("中"), []string{"-n", "2"}, "\uFFFD\uFFFD", 1, "2 tokens (-n)"},
	} {
		f := &fake{script: c.script}
		got := runWith(t.Context(), f, "", append([]string{"-model", path, "-p", "x"}, c.args...)...)
		if got.status != exitOK || got.stdout != c.text || len(f.seen) != c.steps || !strings.Contains(got.stderr, c.says) {
			t.Errorf("%s: status %d, text %q, %d steps, want %q and %d: %s", name, got.status, got.stdout, len(f.seen), c.text, c.steps, got.stderr)
		}
	}
}

// writes keeps each write apart.
type writes struct{ parts []string }

func (w *writes) Write(p []byte) (int, error) {
	w.parts = append(w.parts, string(p))
	return len(p), nil
}

// Text goes out as it comes, in whole characters.
func TestStreaming(t *testing.T) {
	out := &writes{}
	f := &fake{script: said("aé中👍b")}
	f.hook = func(step int) {
		if want := map[int]int{1: 1, 2: 1, 3: 2, 6: 3, 10: 4}[step]; want != 0 && len(out.parts) != want {
			t.Errorf("before step %d %q is out, want %d parts", step, out.parts, want)
		}
	}
	p := &program{stdout: out, stderr: io.Discard, started: time.Now(), open: f.open}
	p.run(t.Context(), []string{"-model", writeModel(t, nil), "-p", "x"})
	if !slices.Equal(out.parts, []string{"a", "é", "中", "👍", "b"}) {
		t.Errorf("got %q", out.parts)
	}
}

func TestInterrupt(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	f := &fake{script: ids("abcdef"), hook: func(step int) {
		if step == 3 {
			cancel()
		}
	}}
	got := runWith(ctx, f, "", "-model", writeModel(t, nil), "-p", "x", "-n", "0")
	if got.status != exitInterrupted || got.stdout != "abc" || f.closed != 1 {
		t.Errorf("status %d, text %q, closed %d times", got.status, got.stdout, f.closed)
	}
	if !strings.Contains(got.stderr, "ended   interrupted") || !strings.Contains(got.stderr, "decode  2 tokens") || strings.Contains(got.stderr, "canceled") {
		t.Errorf("got %s", got.stderr)
	}
}

// Ctrl-C as the system sends it: the process ends its text, prints the summary and exits with 130.
func TestSignal(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Windows can't send Ctrl-C to one process")
	}
	cmd, reader, stderr := start(t, "runs")
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	rest, err := io.ReadAll(reader)
	if err != nil {
		t.Fatal(err)
	}
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != exitInterrupted {
		t.Errorf("got %v, want exit status %d", err, exitInterrupted)
	}
	if !utf8.Valid(rest) || !strings.Contains(stderr.String(), "ended   interrupted") || !strings.Contains(stderr.String(), "memory") {
		t.Errorf("rest %q, stderr %s", rest, stderr.String())
	}
}

// A second Ctrl-C ends a process that is stuck.
func TestSecondSignal(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Windows can't send Ctrl-C to one process")
	}
	cmd, _, _ := start(t, "stuck")
	gone := make(chan error, 1)
	go func() { gone <- cmd.Wait() }()
	for range 250 {
		if err := cmd.Process.Signal(os.Interrupt); err != nil && !errors.Is(err, os.ErrProcessDone) {
			t.Fatal(err)
		}
		select {
		case err := <-gone:
			if err == nil {
				t.Error("a stuck process ended well")
			}
			return
		case <-time.After(20 * time.Millisecond):
		}
	}
	t.Error("the process ignores further signals")
	if err := cmd.Process.Kill(); err != nil {
		t.Error(err)
	}
}

// start runs this test binary as the command, and returns once it has written a character.
func start(t *testing.T, how string) (cmd *exec.Cmd, stdout *bufio.Reader, stderr *bytes.Buffer) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	cmd = exec.CommandContext(ctx, os.Args[0], "-model", writeModel(t, nil), "-p", "x", "-n", "0", "-ctx", "100")
	cmd.Env = append(os.Environ(), "LLAMA_TEST_RUN="+how)
	stderr = &bytes.Buffer{}
	cmd.Stderr = stderr
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stdout = bufio.NewReader(pipe)
	if r, _, err := stdout.ReadRune(); r != 'é' || err != nil { // comes while the model still runs
		t.Errorf("first character %q, %v", r, err)
	}
	return cmd, stdout, stderr
}

type failing struct{}

var errDisk = errors.New("disk full")

func (failing) Write([]byte) (int, error) { return 0, errDisk }

func TestFailures(t *testing.T) {
	path := writeModel(t, nil)
	long := strings.Repeat("x", 101)
	for name, c := range map[string]struct {
		fake   *fake
		args   []string
		status int
		says   string
	}{
		"no file":         {&fake{}, []string{"-model", path + ".none", "-p", "x"}, exitFailed, "no such file"},
		"no model":        {&fake{}, []string{"-model", os.Args[0], "-p", "x"}, exitFailed, "GGUF"},
		"long prompt":     {&fake{}, []string{"-model", path, "-raw", "-p", long}, exitFailed, "prompt: got 102 tokens, want 1 to 100"},
		"longer than ctx": {&fake{}, []string{"-model", path, "-raw", "-ctx", "3", "-p", "xyz"}, exitFailed, "got 4 tokens, want 1 to 3"},
		"ctx too large":   {&fake{}, []string{"-model", path, "-ctx", "101", "-p", "x"}, exitFailed, "-ctx: got 101, want at most 100"},
		"empty stdin":     {&fake{}, []string{"-model", writeModel(t, map[string]any{"tokenizer.ggml.add_bos_token": false}), "-raw", "-p", "-"}, exitFailed, "got 0 tokens"},
		"system, no chat": {&fake{}, []string{"-model", writeModel(t, map[string]any{"tokenizer.chat_template": nil}), "-system", "s", "-p", "x"}, exitFailed, "-system"},
		"bad template":    {&fake{}, []string{"-model", writeModel(t, map[string]any{"tokenizer.chat_template": "{% for %}"}), "-p", "x"}, exitFailed, "chat template"},
		"refused":         {&fake{}, []string{"-model", writeModel(t, map[string]any{"tokenizer.chat_template": "{{ raise_exception('no users') }}"}), "-p", "x"}, exitFailed, "no users"},
		"tokenizer":       {&fake{}, []string{"-model", writeModel(t, map[string]any{"tokenizer.ggml.model": "bert"}), "-p", "x"}, exitFailed, "tokenizer.ggml.model"},
		"vocabulary": {&fake{}, []string{"-model", writeModel(t, map[string]any{"tokenizer.ggml.tokens": changed("tokenizer.ggml.tokens", vocabSize, "x"),
			"tokenizer.ggml.token_type": changed[int32]("tokenizer.ggml.token_type", vocabSize, 1), "tokenizer.ggml.scores": make([]float32, vocabSize+1)}), "-p", "x"},
			exitFailed, "got 260 rows, want one for each of 261 tokens"},
		"architecture": {&fake{}, []string{"-model", writeModel(t, map[string]any{"general.architecture": "gemma"}), "-p", "x"}, exitFailed, `got "gemma", want "llama"`},
		"step":         {&fake{script: ids("ab"), fail: errors.New("device lost")}, []string{"-model", path, "-p", "x"}, exitFailed, "device lost"},
		"flag":         {&fake{}, []string{"-model", path, "-p", "x", "-n", "many"}, exitUsage, `-n: got "many", want a whole number`},
	} {
		got := runWith(t.Context(), c.fake, "", c.args...)
		if got.status != c.status || !strings.Contains(got.stderr, c.says) {
			t.Errorf("%s: status %d, want %d; stderr lacks %q: %s", name, got.status, c.status, c.says, got.stderr)
		}
		if c.fake.script == nil && got.stdout != "" {
			t.Errorf("%s: stdout %q", name, got.stdout)
		}
	}
	// A failed step leaves the text and the summary before the error.
	f := &fake{script: ids("ab"), fail: errors.New("device lost")}
	if got := runWith(t.Context(), f, "", "-model", path, "-p", "x"); got.stdout != "ab" || !strings.Contains(got.stderr, "decode  1 tokens") || f.closed != 1 {
		t.Errorf("a failed step: %+v, closed %d times", got, f.closed)
	}
	// What can't be written is an error, and is found at once.
	f = &fake{script: ids("abc")}
	var stderr bytes.Buffer
	p := &program{stdout: failing{}, stderr: &stderr, started: time.Now(), open: f.open}
	if status := p.run(t.Context(), []string{"-model", path, "-p", "x"}); status != exitFailed || !strings.Contains(stderr.String(), errDisk.Error()) || len(f.seen) != 0 {
		t.Errorf("a full disk: status %d, %d steps, %s", status, len(f.seen), stderr.String())
	}
}

// Errors can be told apart by their types.
func TestTypedErrors(t *testing.T) {
	path := writeModel(t, nil)
	generate := func(f *fake, o options) error {
		if o.prompt == "" {
			o.prompt = "x"
		}
		o.model = path
		p := &program{stdout: io.Discard, stderr: io.Discard, started: time.Now(), open: f.open}
		return p.generate(t.Context(), o, &stats{})
	}
	var tooLong *contextError
	if err := generate(&fake{}, options{prompt: strings.Repeat("x", 200)}); !errors.As(err, &tooLong) || tooLong.Want != 100 {
		t.Errorf("a long prompt: %v", err)
	}
	if err := generate(&fake{}, options{sampling: sample.Params{TopP: 2}}); !errors.Is(err, sample.ErrParam) {
		t.Errorf("a bad parameter: %v", err)
	}
	p := &program{stdout: io.Discard, stderr: io.Discard, started: time.Now(), open: func(*gguf.File, modelConfig) (model, error) { return &nanModel{}, nil }}
	if err := p.generate(t.Context(), options{model: path, prompt: "x"}, &stats{}); !errors.Is(err, sample.ErrLogits) {
		t.Errorf("NaN logits: %v", err)
	}
}

// nanModel's arithmetic has gone wrong.
type nanModel struct{ fake }

func (*nanModel) Prefill(context.Context, []int32) ([]float32, error) {
	return []float32{0, float32(math.NaN())}, nil
}

func TestConfig(t *testing.T) {
	path := writeModel(t, map[string]any{"llama.context_length": uint32(8192)})
	for args, want := range map[string]modelConfig{
		"": {Context: 4096, PageSize: 16}, "-ctx 8192 -threads 3 -page-size 32": {Context: 8192, PageSize: 32, Threads: 3},
	} {
		f := &fake{script: said("ok")}
		got := runWith(t.Context(), f, "", append(strings.Fields(args), "-model", path, "-p", "x", "-v")...)
		if f.config.Context != want.Context || f.config.PageSize != want.PageSize || f.config.Threads != want.Threads || f.config.Layers != 1 {
			t.Errorf("%q: got %+v", args, f.config)
		}
		if !strings.Contains(got.stderr, "F16 ×1") || !strings.Contains(got.stderr, "of the model's 8192") || got.stdout != "ok" {
			t.Errorf("%q: -v says %s", args, got.stderr)
		}
	}
}

// Sampling parameters reach the sampler: at a high temperature the same seed repeats a text and another one doesn't.
func TestSeedFlag(t *testing.T) {
	path := writeModel(t, nil)
	text := func(seed string) string {
		return runWith(t.Context(), &fake{script: ids("a")}, "", "-model", path, "-p", "x", "-n", "30", "-temp", "50", "-top-k", "0", "-top-p", "1", "-seed", seed).stdout
	}
	if a := text("1"); a != text("1") || a == text("2") || a == strings.Repeat("a", 30) {
		t.Errorf("seed 1 gives %q, then %q; seed 2 %q", a, text("1"), text("2"))
	}
}

// The repeat penalty counts the prompt's tokens and the generated ones.
func TestRepeatPenaltyFlag(t *testing.T) {
	path := writeModel(t, nil)
	for prompt, want := range map[string]string{"x": "abaa", "a": "baab"} {
		f := &fake{script: ids("a")}
		got := runWith(t.Context(), f, "", "-model", path, "-raw", "-p", prompt, "-n", "4", "-repeat-penalty", "4", "-repeat-last", "2")
		if got.stdout != want {
			t.Errorf("after %q: got %q, want %q", prompt, got.stdout, want)
		}
	}
}
