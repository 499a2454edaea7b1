package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/gaze-ml/gaze/examples/llama/sample"
)

// options are the command line.
type options struct {
	model    string
	prompt   string
	system   string
	raw      bool
	tokens   int    // most to generate; 0: until the model ends its turn or the context is full
	context  int    // in tokens; 0: the model's, at most defaultContext
	pageSize int    // tokens per page of the KV cache
	kvType   string // of the KV cache: a key of kvTypes
	threads  int    // 0: every core
	verbose  bool
	sampling sample.Params
}

const defaultContext = 4096

// flagError is a flag whose value can't be used.
type flagError struct {
	Flag, Got, Want string
}

func (e *flagError) Error() string { return "-" + e.Flag + ": got " + e.Got + ", want " + e.Want }

// parseFlags reads the command line. The error is a *flagError, or flag.ErrHelp once the usage is written to w.
func parseFlags(args []string, w io.Writer) (options, error) {
	o := options{tokens: 256, pageSize: 16, kvType: "f32", sampling: sample.Params{TopK: 40, TopP: 0.95, RepeatPenalty: 1, RepeatLast: 64}}
	f := flagSet{FlagSet: flag.NewFlagSet("llama", flag.ContinueOnError)}
	f.SetOutput(io.Discard)

	f.StringVar(&o.model, "model", "", "GGUF `file` of a Llama-architecture model (required)")
	f.StringVar(&o.prompt, "p", "", "prompt `text` (required); - reads standard input")
	f.StringVar(&o.system, "system", "", "system message, `text` of a conversation's first turn")
	f.BoolVar(&o.raw, "raw", false, "continue the prompt as it is, without the model's chat template")
	f.whole("n", &o.tokens, 0, math.MaxInt32, "most `tokens` to generate; 0: until the model ends or the context is full")
	f.whole("ctx", &o.context, 0, math.MaxInt32, fmt.Sprintf("context in `tokens`; 0: the model's, at most %d", defaultContext))
	f.real("temp", &o.sampling.Temperature, 0, math.MaxFloat64, "`temperature`; 0: always the likeliest token")
	f.whole("top-k", &o.sampling.TopK, 0, math.MaxInt32, "sample from the `K` likeliest tokens; 0: all")
	f.real("top-p", &o.sampling.TopP, 0, 1, "sample from the likeliest tokens that sum to probability `P`; 1: all")
	f.real("min-p", &o.sampling.MinP, 0, 1, "sample from tokens at least `P` times as likely as the likeliest; 0: all")
	f.real("repeat-penalty", &o.sampling.RepeatPenalty, 0, math.MaxFloat64, "`factor` against recent tokens; 1: none")
	f.whole("repeat-last", &o.sampling.RepeatLast, 1, math.MaxInt32, "how many `tokens` are recent")
	f.seed("seed", &o.sampling.Seed, "`number` that fixes the random draws")
	f.whole("threads", &o.threads, 0, 4096, "`threads` to compute with; 0: one for each core")
	f.whole("page-size", &o.pageSize, 1, 4096, "`tokens` per page of the KV cache, a power of two")
	f.choice("kv-type", &o.kvType, []string{"f32", "f16", "bf16", "e4m3"}, "`type` of the KV cache: f32, f16, bf16 or e4m3")
	f.BoolVar(&o.verbose, "v", false, "tell about the model and the prompt on standard error")

	err := f.Parse(args)
	switch {
	case f.err != nil:
		return o, f.err
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprintf(w, "llama streams a Llama model's answer: llama -model FILE -p TEXT\n\n")
		f.SetOutput(w)
		f.PrintDefaults()
		return o, err
	case err != nil: // an unknown flag, a missing or non-boolean value
		return o, err
	case f.NArg() > 0:
		return o, &flagError{"p", fmt.Sprintf("the further argument %q", f.Arg(0)), "flags only: quote the prompt"}
	case o.model == "":
		return o, &flagError{"model", "nothing", "the path of a GGUF file"}
	case o.prompt == "":
		return o, &flagError{"p", "nothing", "a prompt"}
	case o.raw && o.system != "":
		return o, &flagError{"system", fmt.Sprintf("%q", o.system), "none with -raw, which uses no chat template"}
	case o.pageSize&(o.pageSize-1) != 0:
		return o, &flagError{"page-size", strconv.Itoa(o.pageSize), "a power of two"}
	}
	return o, nil
}

// flagSet adds flags that check their range and say what they want.
type flagSet struct {
	*flag.FlagSet
	err error // the first value out of range, which package flag would turn into text
}

// add registers a flag whose values set accepts or refuses.
func (f *flagSet) add(name, usage, value, want string, set func(text string) bool) {
	f.Func(name, usage+" (default "+value+")", func(text string) error {
		if set(text) {
			return nil
		}
		if f.err == nil {
			f.err = &flagError{name, strconv.Quote(text), want}
		}
		return f.err
	})
}

func (f *flagSet) whole(name string, dst *int, low, high int, usage string) {
	want := fmt.Sprintf("a whole number from %d", low)
	if high < math.MaxInt32 {
		want += fmt.Sprintf(" to %d", high)
	}
	f.add(name, usage, strconv.Itoa(*dst), want, func(text string) bool {
		n, err := strconv.Atoi(text)
		*dst = n
		return err == nil && n >= low && n <= high
	})
}

func (f *flagSet) real(name string, dst *float64, low, high float64, usage string) {
	want := fmt.Sprintf("a number from %v", low)
	if high < math.MaxFloat64 {
		want += fmt.Sprintf(" to %v", high)
	}
	f.add(name, usage, fmt.Sprint(*dst), want, func(text string) bool {
		x, err := strconv.ParseFloat(text, 64)
		*dst = x
		return err == nil && x >= low && x <= high
	})
}

func (f *flagSet) choice(name string, dst *string, names []string, usage string) {
	f.add(name, usage, *dst, "one of "+strings.Join(names, ", "), func(text string) bool {
		*dst = text
		return slices.Contains(names, text)
	})
}

func (f *flagSet) seed(name string, dst *uint64, usage string) {
	f.add(name, usage, fmt.Sprint(*dst), "a whole number from 0 to 2^64-1", func(text string) bool {
		n, err := strconv.ParseUint(text, 10, 64)
		*dst = n
		return err == nil
	})
}
