// Command llama streams the answers of a Llama model: the decode loop of a language model on gaze's ops. It reads the model, its
// tokenizer and its chat template from one GGUF file.
//
//	llama -model SmolLM2-135M-Instruct.Q4_1.gguf -p "Why is the sky blue?"
//
// The text goes to standard output and everything else to standard error. Ctrl-C ends the text and prints the summary. llama -h lists
// the flags.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/gaze-ml/gaze/examples/llama/gguf"
	"github.com/gaze-ml/gaze/examples/llama/model"
	"github.com/gaze-ml/gaze/examples/llama/schedule"
)

// Exit statuses.
const (
	exitOK          = 0
	exitFailed      = 1
	exitUsage       = 2
	exitInterrupted = 130 // as a shell reports SIGINT
)

// engine is a model as the command uses it; see [model.Model].
type engine interface {
	schedule.Model
	TimePrefill(ctx context.Context, tokens int) (time.Duration, error)
	TimeDecode(ctx context.Context, requests, steps int) (time.Duration, error)
	Close() error
}

// program is the command with what it touches outside.
type program struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	started        time.Time
	// open builds the model of a file, which stays open until the model is closed.
	open func(*gguf.File, model.HParams, model.Config) (engine, error)
	// memory is what the machine has for it, in bytes, and where that is from; 0: nobody knows.
	memory func() (bytes int64, source string)
}

func main() {
	os.Exit(execute(func(f *gguf.File, h model.HParams, c model.Config) (engine, error) { return model.Open(f, h, c) }))
}

// execute is main but for the kind of model: it runs the command on the process's own arguments and files and returns the exit status.
// The first Ctrl-C ends the text, a second one the process.
func execute(open func(*gguf.File, model.HParams, model.Config) (engine, error)) int {
	started := time.Now()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)
	p := &program{stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr, started: started, open: open, memory: availableMemory}
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
	s := &summary{}
	err = p.generate(ctx, o, s)
	s.write(p.stderr)
	switch {
	case err != nil:
		fmt.Fprintf(p.stderr, "llama: %v\n", err)
		return exitFailed
	case ctx.Err() != nil:
		return exitInterrupted
	}
	return exitOK
}
