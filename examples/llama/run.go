// Command llama streams the answer of a Llama model: the decode loop of a language model on gaze's ops. It reads the
// model, its tokenizer and its chat template from one GGUF file.
//
//	llama -model SmolLM2-135M-Instruct.Q4_1.gguf -p "Why is the sky blue?"
//
// The text goes to standard output and everything else to standard error. Ctrl-C ends the text and prints the summary.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/gaze-ml/gaze/examples/llama/gguf"
	"github.com/gaze-ml/gaze/examples/llama/sample"
	"github.com/gaze-ml/gaze/examples/llama/tokenizer"
)

// Exit statuses.
const (
	exitOK          = 0
	exitFailed      = 1
	exitUsage       = 2
	exitInterrupted = 130 // as a shell reports SIGINT
)

// modelConfig is what a model is opened with.
type modelConfig struct {
	hparams
	Context  int    // most tokens of the sequence, at most MaxContext
	PageSize int    // tokens per page of the KV cache
	KVType   string // of the KV cache: a key of kvTypes
	Threads  int    // 0: one for each core
}

// program is the command with what it touches outside.
type program struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	started        time.Time
	// open builds the model of a file. The file stays open until the model is closed.
	open func(f *gguf.File, c modelConfig) (model, error)
}

// execute is main but for the kind of model: it runs the command on the process's own arguments and files and returns the
// exit status. The first Ctrl-C ends the text, a second one the process.
func execute(open func(*gguf.File, modelConfig) (model, error)) int {
	started := time.Now()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)
	p := &program{stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr, started: started, open: open}
	return p.run(ctx, os.Args[1:])
}

// run is the whole command; it returns the exit status.
func (p *program) run(ctx context.Context, args []string) int {
	o, err := parseFlags(args, p.stderr)
	if errors.Is(err, flag.ErrHelp) {
		return exitOK
	}
	if err != nil {
		fmt.Fprintf(p.stderr, "llama: %v\nllama -h lists the flags.\n", err)
		return exitUsage
	}
	s := &stats{}
	err = p.generate(ctx, o, s)
	if s.promptTokens > 0 || s.stopped != "" {
		s.write(p.stderr)
	}
	switch {
	case err != nil:
		fmt.Fprintf(p.stderr, "llama: %v\n", err)
		return exitFailed
	case ctx.Err() != nil:
		return exitInterrupted
	}
	return exitOK
}

func (p *program) generate(ctx context.Context, o options, s *stats) (err error) {
	if o.prompt == "-" {
		text, err := io.ReadAll(p.stdin)
		if err != nil {
			return fmt.Errorf("standard input: %w", err)
		}
		o.prompt = string(text)
	}
	sampler, err := sample.New(o.sampling)
	if err != nil {
		return err
	}
	f, err := gguf.Open(o.model)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	h, err := readHParams(f)
	if err != nil {
		return err
	}
	tok, err := tokenizer.FromGGUF(f)
	if err != nil {
		return err
	}
	if h.Vocab < tok.Size() {
		return &gguf.Error{Item: `tensor "token_embd.weight"`, Got: fmt.Sprintf("%d rows", h.Vocab),
			Want: fmt.Sprintf("one for each of %d tokens", tok.Size()), Err: gguf.ErrFormat}
	}
	c := modelConfig{hparams: h, Context: min(h.MaxContext, defaultContext), PageSize: o.pageSize, KVType: o.kvType, Threads: o.threads}
	if o.context > h.MaxContext {
		return &flagError{"ctx", fmt.Sprint(o.context), fmt.Sprintf("at most %d, which the model was trained for", h.MaxContext)}
	}
	if o.context > 0 {
		c.Context = o.context
	}
	prompt, text, err := encodePrompt(f, tok, o, p.stderr)
	if err != nil {
		return err
	}
	if o.verbose {
		describe(p.stderr, f, c, text, prompt)
	}
	if len(prompt) < 1 || len(prompt) > c.Context { // before the work of building the model
		return &contextError{len(prompt), c.Context}
	}
	m, err := p.open(f, c)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	s.load = time.Since(p.started)
	g := generator{model: m, tok: tok, sampler: sampler, context: c.Context, tokens: o.tokens, out: p.stdout, started: p.started}
	return g.run(ctx, prompt, s)
}

// describe is what -v tells.
func describe(w io.Writer, f *gguf.File, c modelConfig, text string, prompt []int32) {
	elems, bytes, count := 0, 0, map[gguf.Type]int{}
	for _, t := range f.Tensors {
		elems += t.Elems()
		bytes += len(t.Data)
		count[t.Type]++
	}
	var types []string
	for _, t := range slices.Sorted(maps.Keys(count)) {
		types = append(types, fmt.Sprintf("%v ×%d", t, count[t]))
	}
	name, err := gguf.GetOr(f, "general.name", "")
	if err != nil || name == "" {
		name = "no name"
	}
	fmt.Fprintf(w, "model   %s, %.1f million weights in %.1f MB: %s\n", name, float64(elems)/1e6, float64(bytes)/1e6, strings.Join(types, ", "))
	fmt.Fprintf(w, "shape   %d layers, hidden %d, feed-forward %d, heads %d/%d of %d, vocabulary %d\n",
		c.Layers, c.Hidden, c.FFN, c.Heads, c.KVHeads, c.HeadDim, c.Vocab)
	fmt.Fprintf(w, "context %d tokens in pages of %d, %s, of the model's %d\n", c.Context, c.PageSize, c.KVType, c.MaxContext)
	fmt.Fprintf(w, "prompt  %q, %d tokens: %v\n", text, len(prompt), prompt)
}
