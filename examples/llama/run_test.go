package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"gorgonia.org/tensor"

	"github.com/gaze-ml/gaze/examples/llama/gguf"
	"github.com/gaze-ml/gaze/examples/llama/model"
	"github.com/gaze-ml/gaze/examples/llama/sample"
	"github.com/gaze-ml/gaze/ops"
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
	p := programOf(f, "", out, io.Discard)
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
		"long prompt":     {&fake{}, []string{"-model", path, "-raw", "-p", long}, exitFailed, "prompt 1: bad argument: got 102 tokens, want 1 to 100"},
		"longer than ctx": {&fake{}, []string{"-model", path, "-raw", "-ctx", "3", "-p", "xyz"}, exitFailed, "got 4 tokens, want 1 to 3"},
		"for the cache":   {&fake{}, []string{"-model", path, "-raw", "-cache", "16", "-p", long[:40]}, exitFailed, "cache full: got 41 tokens, 3 pages, want 1 pages of 16 tokens"},
		"no prompts file": {&fake{}, []string{"-model", path, "-prompts", path + ".none"}, exitFailed, "no such file"},
		"empty prompts":   {&fake{}, []string{"-model", path, "-prompts", "-"}, exitFailed, "-prompts: got no prompts"},
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
	p := programOf(f, "", failing{}, &stderr)
	if status := p.run(t.Context(), []string{"-model", path, "-p", "x"}); status != exitFailed || !strings.Contains(stderr.String(), errDisk.Error()) || len(f.seen) != 0 {
		t.Errorf("a full disk: status %d, %d steps, %s", status, len(f.seen), stderr.String())
	}
}

// Errors can be told apart by their types.
func TestTypedErrors(t *testing.T) {
	path := writeModel(t, nil)
	generate := func(p *program, args ...string) error {
		o, err := parseFlags(append([]string{"-model", path}, args...), io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		return p.generate(t.Context(), o, &summary{})
	}
	quiet := func(f *fake) *program { return programOf(f, "", io.Discard, io.Discard) }
	if err := generate(quiet(&fake{}), "-p", strings.Repeat("x", 200)); !errors.Is(err, ops.ErrArgument) || !strings.Contains(err.Error(), "prompt 1") {
		t.Errorf("a long prompt: %v", err)
	}
	if err := generate(quiet(&fake{}), "-p", "x", "-p", strings.Repeat("x", 60), "-cache", "64"); !errors.Is(err, ops.ErrCacheFull) || !strings.Contains(err.Error(), "prompt 2") {
		t.Errorf("a prompt that the cache can't hold: %v", err)
	}
	p := quiet(&fake{})
	p.open = func(_ *gguf.File, h model.HParams, c model.Config) (engine, error) {
		m := &nanModel{}
		_, err := m.open(nil, h, c)
		return m, err
	}
	if err := generate(p, "-p", "x"); !errors.Is(err, sample.ErrLogits) {
		t.Errorf("NaN logits: %v", err)
	}
	// A machine that has just enough, and one that lacks a byte.
	p = quiet(&fake{script: said("ok")})
	asked := []string{"-p", "x", "-p", "y", "-p", "z", "-ctx", "100"}
	p.memory = func() (int64, string) { return 1, "a small machine" }
	var small *memoryError
	if err := generate(p, asked...); !errors.As(err, &small) || small.Fits != 0 {
		t.Fatalf("one byte: %v", err)
	}
	need := small.Need
	if need.Weights != vocabSize*hidden*2 || need.Cache != 3*112*2*2*8*4 || need.Buffers == 0 { // F16; whole pages, K and V of two heads
		t.Errorf("needs %+v", need)
	}
	have := need.Total()
	p.memory = func() (int64, string) { return have, "a small machine" }
	if err := generate(p, asked...); err != nil {
		t.Errorf("a model that fits: %v", err)
	}
	have--
	if err := generate(p, asked...); !errors.As(err, &small) || small.Have != have || small.Need != need || small.Fits != 3*112-16 || !strings.Contains(err.Error(), "a small machine") {
		t.Errorf("a model that doesn't fit: %v", err)
	}
	if err := generate(p, append(asked, "-cache", fmt.Sprint(small.Fits))...); err != nil {
		t.Errorf("what was said to fit doesn't: %v", err)
	}
	p.memory = func() (int64, string) { return 0, "" }
	if err := generate(p, "-p", "x"); err != nil {
		t.Errorf("a machine that doesn't tell: %v", err)
	}
}

// nanModel's arithmetic has gone wrong.
type nanModel struct{ fake }

func (*nanModel) Run(context.Context, []model.Part) ([]model.Logits, error) {
	return []model.Logits{{Values: []float32{0, float32(math.NaN())}}}, nil
}

// The sizes of the model are those asked for; the cache holds what the prompts that run at once may need, or a context for each.
func TestConfig(t *testing.T) {
	path := writeModel(t, map[string]any{"llama.context_length": uint32(8192)})
	for args, want := range map[string]model.Config{
		"-p x": {Context: 4096, Requests: 1, Tokens: 21 + 256 + 11, PageSize: 16, Chunk: 256, KV: tensor.Float32}, // in whole pages
		"-p x -p xyxyxyxyxyxyxyxyxyxy -p x -parallel 1 -n 5 -page-size 1": {Context: 4096, Requests: 1, Tokens: 44, PageSize: 1, Chunk: 256, KV: tensor.Float32}, // for the longest
		"-p x -n 0": {Context: 4096, Requests: 1, Tokens: 4096, PageSize: 16, Chunk: 256, KV: tensor.Float32},
		"-p x -p y -n 5 -kv-type e4m3 -page-size 4":                    {Context: 4096, Requests: 2, Tokens: 2 * 28, PageSize: 4, Chunk: 256, KV: ops.Float8E4M3},
		"-p x -ctx 8192 -threads 3 -page-size 32":                      {Context: 8192, Requests: 1, Tokens: 8192, PageSize: 32, Chunk: 256, Threads: 3, KV: tensor.Float32},
		"-p x -p y -p z -parallel 2 -ctx 50 -kv-type f16 -page-size 1": {Context: 50, Requests: 2, Tokens: 100, PageSize: 1, Chunk: 256, KV: ops.Float16},
		"-p x -p y -cache 1000 -chunk 7 -kv-type bf16":                 {Context: 4096, Requests: 2, Tokens: 1000, PageSize: 16, Chunk: 7, KV: ops.BFloat16},
		"-bench -parallel 4":                                           {Context: 4096, Requests: 4, Tokens: 4 * 144, PageSize: 16, Chunk: 256, KV: tensor.Float32},
		"-bench":                                                       {Context: 4096, Requests: 8, Tokens: 8 * 144, PageSize: 16, Chunk: 256, KV: tensor.Float32},
		"-bench -parallel 1":                                           {Context: 4096, Requests: 1, Tokens: 512, PageSize: 16, Chunk: 256, KV: tensor.Float32},
	} {
		f := &fake{script: said("ok")}
		got := runWith(t.Context(), f, "", append(strings.Fields(args), "-model", path)...)
		if f.config != want || f.sizes.Layers != 1 || got.status != exitOK {
			t.Errorf("%q: got %+v, want %+v; status %d, %s", args, f.config, want, got.status, got.stderr)
		}
	}
}

// -v says what was chosen, and why.
func TestVerbose(t *testing.T) {
	path := writeModel(t, map[string]any{"llama.context_length": uint32(8192)})
	for args, lines := range map[string][]string{
		"-p x": {"1 layers, hidden 32", "F16 ×1", "one for each core", "4096 tokens (the model's, at most 4096) of the model's 8192", "float32", "(what the prompts at once may need)",
			"up to 1 of 1 prompts at once", "of 1.1 GB (said the test)", `prompt  "<s>[user]x</s>[assistant]", 20 tokens: [1 `},
		"-p x -p y -threads 2 -ctx 64 -kv-type e4m3 -chunk 9": {"2 threads (-threads)", "64 tokens (-ctx)", "float8_e4m3 (-kv-type), 8 pages of 16 tokens (-ctx)", "up to 2 of 2 prompts at once, up to 9 prompt tokens"},
		"-p x -cache 320": {"20 pages of 16 tokens (-cache)"},
	} {
		got := runWith(t.Context(), &fake{script: said("ok")}, "", append(strings.Fields(args), "-model", path, "-v")...)
		for _, line := range lines {
			if !strings.Contains(got.stderr, line) {
				t.Errorf("%s: -v lacks %q:\n%s", args, line, got.stderr)
			}
		}
		if strings.Contains(got.stdout, "layers") || strings.Contains(got.stderr, "level=DEBUG") {
			t.Errorf("%s: %+v", args, got)
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

// Several prompts are answered at once; each line carries the number of its prompt.
func TestSeveralPrompts(t *testing.T) {
	path := writeModel(t, nil)
	file := filepath.Join(t.TempDir(), "prompts")
	if err := os.WriteFile(file, []byte("b\n\n  c  \r\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	scripts := map[byte][]int32{'a': said("A1\nA2"), 'b': said("B1\n\nB3\n"), 'c': said(""), 'd': said("中")}
	for name, c := range map[string]struct {
		stdin string
		args  []string
		want  string
		most  int
	}{
		"-p twice":       {"", []string{"-p", "a", "-p", "b"}, "[1] A1\n[1] A2\n[2] B1\n[2]\n[2] B3\n", 2},
		"a file":         {"", []string{"-prompts", file}, "[1] B1\n[1]\n[1] B3\n[2]\n", 2},
		"both":           {"", []string{"-p", "d", "-prompts", file}, "[1] 中\n[2] B1\n[2]\n[2] B3\n[3]\n", 3},
		"standard input": {"a\nd", []string{"-prompts", "-"}, "[1] A1\n[1] A2\n[2] 中\n", 2},
		"one at a time":  {"a\nb\nd", []string{"-prompts", "-", "-parallel", "1"}, "[1] A1\n[1] A2\n[2] B1\n[2]\n[2] B3\n[3] 中\n", 1},
		"one":            {"a\n", []string{"-prompts", "-"}, "A1\nA2", 1},
		"system":         {"", []string{"-p", "a", "-p", "d", "-system", "xxxxxxxxxxxxxxxxxxxxxxxx"}, "[1] A1\n[1] A2\n[2] 中\n", 2},
	} {
		f := &fake{scripts: scripts}
		got := runWith(t.Context(), f, c.stdin, append(c.args, "-model", path)...)
		lines := strings.SplitAfter(got.stdout, "\n")
		if name != "one" {
			slices.SortStableFunc(lines, func(a, b string) int { return strings.Compare(a[:min(3, len(a))], b[:min(3, len(b))]) })
		}
		if text := strings.Join(lines, ""); got.status != exitOK || text != c.want || f.most != c.most || f.closed != 1 {
			t.Errorf("%s: status %d, text %q, want %q; %d at once, want %d: %s", name, got.status, text, c.want, f.most, c.most, got.stderr)
		}
		if once := strings.Contains(got.stderr, "the first 32 of every prompt once"); once != (name == "system") {
			t.Errorf("%s: %s", name, got.stderr)
		}
	}
	got := runWith(t.Context(), &fake{scripts: scripts}, "", "-model", path, "-p", "a", "-p", "b", "-n", "3")
	for _, line := range []string{"ended   [1] after 3 tokens: 3 tokens (-n)", "ended   [2] after 3 tokens: 3 tokens (-n)", ", up to 2 at once"} {
		if !strings.Contains(got.stderr, line) {
			t.Errorf("the summary lacks %q: %s", line, got.stderr)
		}
	}
}

// Lines of several answers come when they are whole, and an answer that is interrupted ends its line.
func TestLabelledStream(t *testing.T) {
	out := &writes{}
	ctx, cancel := context.WithCancel(t.Context())
	f := &fake{scripts: map[byte][]int32{'a': ids("ab\ncd"), 'b': ids("xyzxyz")}, hook: func(step int) {
		if step == 11 {
			cancel()
		}
	}}
	p := programOf(f, "", out, io.Discard)
	if status := p.run(ctx, []string{"-model", writeModel(t, nil), "-p", "a", "-p", "b", "-n", "0"}); status != exitInterrupted {
		t.Errorf("status %d", status)
	}
	if want := []string{"[1] ab\n", "[1] cdd\n", "[2] xyzxyz\n"}; !slices.Equal(out.parts, want) {
		t.Errorf("got %q, want %q", out.parts, want)
	}
}

// A stop string ends an answer and is no part of it; what might have become one is written when it doesn't.
func TestStopFlag(t *testing.T) {
	path := writeModel(t, nil)
	for name, c := range map[string]struct {
		says  string
		stops []string
		want  string
		ended string
	}{
		"in the text":        {"one STOP two", []string{"STOP"}, "one ", `"STOP" (-stop)`},
		"never":              {"one STO", []string{"STOP"}, "one STO", "end of turn"},
		"the first of two":   {"a bc d", []string{"d", "bc"}, "a ", `"bc" (-stop)`},
		"over characters":    {"x中文y", []string{"文"}, "x中", `"文" (-stop)`},
		"half a character":   {"x\xe4\xb8", []string{"\uFFFD\uFFFD"}, "x", "\"\uFFFD\uFFFD\" (-stop)"},
		"an end that starts": {"ab", []string{"bc"}, "ab", "end of turn"},
		"at once":            {"ab", []string{"a"}, "", `"a" (-stop)`},
	} {
		f := &fake{script: said(c.says)}
		args := []string{"-model", path, "-p", "x"}
		for _, s := range c.stops {
			args = append(args, "-stop", s)
		}
		got := runWith(t.Context(), f, "", args...)
		if got.status != exitOK || got.stdout != c.want || !strings.Contains(got.stderr, "ended   "+c.ended+"\n") {
			t.Errorf("%s: text %q, want %q: %s", name, got.stdout, c.want, got.stderr)
		}
	}
}

// The logits file holds ids and logits of every step, of all or the likeliest tokens, to the last bit.
func TestLogitsFile(t *testing.T) {
	path, out := writeModel(t, nil), filepath.Join(t.TempDir(), "logits.json")
	read := func(args ...string) (l logitsFile) {
		t.Helper()
		if got := runWith(t.Context(), &fake{scripts: map[byte][]int32{'x': said("ab"), 'y': said("c")}}, "", append(args, "-model", path, "-logits", out)...); got.status != exitOK {
			t.Fatal(got.stderr)
		}
		data, err := os.ReadFile(out)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(data, &l); err != nil {
			t.Fatal(err)
		}
		return l
	}
	l := read("-p", "x", "-p", "y", "-logits-top", "3")
	if l.Model != path || l.Vocab != vocabSize || len(l.Prompts) != 2 {
		t.Fatalf("got %+v", l)
	}
	for i, want := range []string{"ab", "c"} {
		p := l.Prompts[i]
		if p.Prompt != "<s>[user]"+string("xy"[i])+"</s>[assistant]" || len(p.IDs) != 20 || p.Ended != "end of turn" || len(p.Steps) != len(want)+1 {
			t.Errorf("prompt %d: %+v", i, p)
			continue
		}
		for j, id := range said(want) {
			s := p.Steps[j]
			third := int32(0) // of equals the lowest
			if s.ID != id || !slices.Equal(s.Top, []int32{id, id + 1, third}) || !slices.Equal(s.Logits, numbers{10, 5, 0}) {
				t.Errorf("prompt %d, step %d: %+v", i, j, s)
			}
		}
	}
	if s := read("-p", "x", "-logits-top", "0").Prompts[0].Steps[1]; len(s.Top) != 0 || len(s.Logits) != vocabSize || s.Logits[s.ID] != 10 {
		t.Errorf("all: %+v", s)
	}
	got := runWith(t.Context(), &fake{script: said("ab")}, "", "-model", path, "-p", "x", "-logits", t.TempDir())
	if got.status != exitFailed || got.stdout != "ab" {
		t.Errorf("a folder as the logits file: %+v", got)
	}
}

func TestNumbersJSON(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	want := numbers{0, math.MaxFloat32, -math.SmallestNonzeroFloat32, 1e10, 0.1}
	for range 1000 {
		if x := math.Float32frombits(r.Uint32()); x-x == 0 {
			want = append(want, x)
		}
	}
	data, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	var got []float32
	if err := json.Unmarshal(data, &got); err != nil || !slices.Equal(got, want) {
		t.Errorf("%v: not the same numbers back", err)
	}
	if data, err := json.Marshal(numbers{1, float32(math.Inf(-1)), float32(math.NaN())}); err != nil || string(data) != "[1,null,null]" {
		t.Errorf("%s, %v", data, err)
	}
}

func TestLikeliest(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 2))
	for range 300 {
		logits := make([]float32, 1+r.IntN(30))
		for i := range logits {
			logits[i] = float32(r.IntN(8))
		}
		ids := make([]int32, len(logits))
		for i := range ids {
			ids[i] = int32(i)
		}
		slices.SortStableFunc(ids, func(a, b int32) int { return cmp.Compare(logits[b], logits[a]) })
		n := 1 + r.IntN(len(logits))
		if got := likeliest(logits, n); !slices.Equal(got, ids[:n]) {
			t.Fatalf("the %d largest of %v: %v, want %v", n, logits, got, ids[:n])
		}
	}
}

// -bench prints lines in Go's benchmark format, and nothing else there.
func TestBench(t *testing.T) {
	path := writeModel(t, map[string]any{"llama.context_length": uint32(1024)})
	f := &fake{}
	got := runWith(t.Context(), f, "", "-model", path, "-bench", "-rounds", "2", "-threads", "2", "-parallel", "4")
	want := `goos: ` + runtime.GOOS + `
goarch: ` + runtime.GOARCH + `
cpu: ` + cpuName() + `
model: model.gguf
device: cpu
threads: 2
kv-type: f32
` + strings.Repeat(`BenchmarkLlama/phase=prefill/tokens=512/impl=gaze 1 2000000000 ns/op 256.0 tokens/s
BenchmarkLlama/phase=decode/tokens=128/impl=gaze 1 1000000000 ns/op 128.0 tokens/s
BenchmarkLlama/phase=decode/tokens=128/requests=4/impl=gaze 1 4000000000 ns/op 128.0 tokens/s
`, 2)
	if got.status != exitOK || got.stdout != want || got.stderr != "" {
		t.Errorf("status %d, got\n%s\nwant\n%s%s", got.status, got.stdout, want, got.stderr)
	}
	if want := slices.Repeat([]int32{512, 1, 128, 4, 128}, 3); !slices.Equal(f.seen, want) { // a round more, to warm up
		t.Errorf("timed %v, want %v", f.seen, want)
	}
	if got := runWith(t.Context(), &fake{fail: errors.New("device lost")}, "", "-model", path, "-bench"); got.status != exitFailed || !strings.Contains(got.stderr, "device lost") {
		t.Errorf("a fault: %+v", got)
	}
}
