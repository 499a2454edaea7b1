package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"gorgonia.org/tensor"

	"github.com/gaze-ml/gaze/examples/llama/sample"
	"github.com/gaze-ml/gaze/ops"
)

// options are the command line.
type options struct {
	model   string
	prompts []string // as given by -p
	file    string   // of prompts, one a line
	system  string
	raw     bool

	tokens   int      // most to generate; 0: until the model ends its turn or the context is full
	context  int      // in tokens; 0: the model's, at most defaultContext
	stop     []string // texts that end an answer
	sampling sample.Params

	device   string
	threads  int    // 0: every core
	parallel int    // most prompts at once
	cache    int    // tokens that the KV cache holds; 0: enough
	chunk    int    // most prompt tokens of a step
	kvType   string // of the table below
	pageSize int    // tokens per page of the KV cache

	logits    string // file to write
	logitsTop int    // 0: all
	bench     bool
	rounds    int
	verbose   int
	logCalls  bool
}

const defaultContext = 4096

func defaults() options {
	return options{
		tokens: 256, sampling: sample.Params{TopK: 40, TopP: 0.95, RepeatPenalty: 1, RepeatLast: 64},
		parallel: 8, chunk: 256, device: "cpu", pageSize: 16, logitsTop: 10, rounds: 6,
	}
}

// kvTypes are the dtypes of -kv-type.
var kvTypes = []struct {
	name  string
	dtype tensor.Dtype
}{{"f32", tensor.Float32}, {"f16", ops.Float16}, {"bf16", ops.BFloat16}, {"e4m3", ops.Float8E4M3}}

// table is every flag, in the order in which -h lists them; a row without a name is a heading.
var table = []struct {
	name, arg, usage string
	bind             func(o *options) value
}{
	{usage: "The model and its prompts"},
	{"model", "file", "GGUF file of a Llama-architecture model (required)", func(o *options) value { return text(&o.model) }},
	{"p", "text", "prompt; given again, several are answered at once; - reads one from standard input", func(o *options) value { return texts(&o.prompts) }},
	{"prompts", "file", "prompts, one a line, beside those of -p; - reads standard input", func(o *options) value { return text(&o.file) }},
	{"system", "text", "system message, a conversation's first turn", func(o *options) value { return text(&o.system) }},
	{"raw", "", "continue prompts as they are, without the model's chat template", func(o *options) value { return on(&o.raw) }},

	{usage: "The end of an answer"},
	{"n", "tokens", "most tokens to generate; 0: until the model ends or the context is full", func(o *options) value { return whole(&o.tokens, 0, math.MaxInt32) }},
	{"stop", "text", "end an answer before this text; may be given again", func(o *options) value { return texts(&o.stop) }},
	{"ctx", "tokens", fmt.Sprintf("context: most tokens of a prompt and its answer; 0: the model's, at most %d", defaultContext), func(o *options) value { return whole(&o.context, 0, math.MaxInt32) }},

	{usage: "The choice of tokens, in this order"},
	{"repeat-penalty", "factor", "against recent tokens; 1: none", func(o *options) value { return real(&o.sampling.RepeatPenalty, 0, math.MaxFloat64) }},
	{"repeat-last", "tokens", "how many are recent", func(o *options) value { return whole(&o.sampling.RepeatLast, 1, math.MaxInt32) }},
	{"temp", "number", "temperature; 0: always the likeliest token", func(o *options) value { return real(&o.sampling.Temperature, 0, math.MaxFloat64) }},
	{"top-k", "K", "from the K likeliest; 0: all", func(o *options) value { return whole(&o.sampling.TopK, 0, math.MaxInt32) }},
	{"top-p", "P", "from the likeliest that sum to probability P; 1: all", func(o *options) value { return real(&o.sampling.TopP, 0, 1) }},
	{"min-p", "P", "from those at least P times as likely as the likeliest; 0: all", func(o *options) value { return real(&o.sampling.MinP, 0, 1) }},
	{"seed", "number", "fixes the random draws", func(o *options) value { return seed(&o.sampling.Seed) }},

	{usage: "How it runs"},
	{"device", "name", "cpu, or cuda: the first GPU, by a program built with -tags gpu", func(o *options) value { return device(&o.device) }},
	{"threads", "threads", "to compute with; 0: one for each core", func(o *options) value { return whole(&o.threads, 0, 4096) }},
	{"parallel", "prompts", "most prompts at once; others wait", func(o *options) value { return whole(&o.parallel, 1, 1024) }},
	{"chunk", "tokens", "most prompt tokens of a step", func(o *options) value { return whole(&o.chunk, 1, 1<<16) }},
	{"kv-type", "type", "of the KV cache: f32, f16, bf16 or e4m3; without it f32, on a GPU f16", func(o *options) value { return kvType(&o.kvType) }},
	{"cache", "tokens", "that the KV cache holds, all prompts together; 0: enough for those at once", func(o *options) value { return whole(&o.cache, 0, math.MaxInt32) }},
	{"page-size", "tokens", "per page of the KV cache, a power of two", func(o *options) value { return whole(&o.pageSize, 1, 4096) }},

	{usage: "What it tells"},
	{"logits", "file", "write ids and logits of every step as JSON", func(o *options) value { return text(&o.logits) }},
	{"logits-top", "tokens", "the likeliest ones of each step to write; 0: all", func(o *options) value { return whole(&o.logitsTop, 0, math.MaxInt32) }},
	{"bench", "", "time the model, without prompts, as Go benchmark lines", func(o *options) value { return on(&o.bench) }},
	{"rounds", "times", "each line of -bench is printed", func(o *options) value { return whole(&o.rounds, 1, 1000) }},
	{"v", "", "tell what was chosen and why; twice: log every call too", func(o *options) value { return count(&o.verbose) }},
	{"log-calls", "", "log every call of an op, before it runs: dtypes, shapes, lengths, scalars", func(o *options) value { return on(&o.logCalls) }},
}

// flagError is a flag whose value can't be used.
type flagError struct {
	Flag, Got, Want string
}

func (e *flagError) Error() string { return "-" + e.Flag + ": got " + e.Got + ", want " + e.Want }

// parseFlags reads the command line. The error is a *flagError, or flag.ErrHelp once the usage is written to w.
func parseFlags(args []string, w io.Writer) (options, error) {
	o := defaults()
	f := flag.NewFlagSet("llama", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	var wrong *flagError // the first one, which package flag would turn into text
	for _, row := range table {
		if row.name == "" {
			continue
		}
		v := row.bind(&o)
		set := func(text string) error {
			if !v.set(text) && wrong == nil {
				wrong = &flagError{row.name, strconv.Quote(text), v.want}
			}
			if wrong != nil {
				return wrong
			}
			return nil
		}
		if row.arg == "" {
			f.BoolFunc(row.name, "", set)
		} else {
			f.Func(row.name, "", set)
		}
	}
	err := f.Parse(args)
	switch {
	case wrong != nil:
		return o, wrong
	case errors.Is(err, flag.ErrHelp):
		_, printed := io.WriteString(w, usage())
		return o, errors.Join(err, printed)
	case err != nil: // an unknown flag, a missing value
		return o, err
	case f.NArg() > 0:
		return o, &flagError{"p", fmt.Sprintf("the further argument %q", f.Arg(0)), "flags only: quote the prompt"}
	}
	if o.kvType == "" {
		o.kvType = map[string]string{"cpu": "f32", "cuda": "f16"}[o.device]
	}
	return o, o.check()
}

// check refuses what doesn't go together.
func (o *options) check() error {
	asked := len(o.prompts) > 0 || o.file != ""
	switch {
	case o.model == "":
		return &flagError{"model", "nothing", "the path of a GGUF file"}
	case o.bench && asked:
		return &flagError{"bench", "prompts too", "none: it makes its own"}
	case o.bench && o.logits != "":
		return &flagError{"logits", strconv.Quote(o.logits), "none with -bench"}
	case !o.bench && !asked:
		return &flagError{"p", "nothing", "a prompt, or a file of them (-prompts)"}
	case o.raw && o.system != "":
		return &flagError{"system", strconv.Quote(o.system), "none with -raw, which uses no chat template"}
	case o.pageSize&(o.pageSize-1) != 0:
		return &flagError{"page-size", strconv.Itoa(o.pageSize), "a power of two"}
	}
	stdin := 0
	for _, p := range append([]string{o.file}, o.prompts...) {
		if p == "-" {
			stdin++
		}
	}
	if stdin > 1 {
		return &flagError{"p", "standard input twice", "- once, in -p or -prompts"}
	}
	for _, p := range o.prompts {
		if p == "" {
			return &flagError{"p", `""`, "a prompt"}
		}
	}
	for _, s := range o.stop {
		if s == "" || !utf8.ValidString(s) {
			return &flagError{"stop", strconv.Quote(s), "a text in UTF-8"}
		}
	}
	return nil
}

// usage is what -h prints.
func usage() string {
	var s strings.Builder
	s.WriteString("llama streams a Llama model's answers: llama -model FILE -p TEXT\n")
	o := defaults()
	for _, row := range table {
		if row.name == "" {
			fmt.Fprintf(&s, "\n%s:\n", row.usage)
			continue
		}
		line := fmt.Sprintf("  %-24s%s", "-"+strings.TrimSpace(row.name+" "+row.arg), row.usage)
		if d := row.bind(&o).now; d != "" {
			line += " (default " + d + ")"
		}
		s.WriteString(line + "\n")
	}
	return s.String()
}

// value is where a flag's text goes.
type value struct {
	now  string // before any text, which is the default; empty: not worth telling
	want string
	set  func(text string) bool
}

func text(dst *string) value {
	return value{set: func(text string) bool { *dst = text; return true }}
}

func texts(dst *[]string) value {
	return value{set: func(text string) bool { *dst = append(*dst, text); return true }}
}

func on(dst *bool) value {
	return value{want: "true or false", set: func(text string) (ok bool) {
		b, err := strconv.ParseBool(text)
		*dst = b
		return err == nil
	}}
}

// count counts how often a flag is given.
func count(dst *int) value {
	return value{want: "no value", set: func(text string) bool { *dst++; return text == "true" }}
}

func whole(dst *int, low, high int) value {
	want := fmt.Sprintf("a whole number from %d", low)
	if high < math.MaxInt32 {
		want += fmt.Sprintf(" to %d", high)
	}
	return value{strconv.Itoa(*dst), want, func(text string) bool {
		n, err := strconv.Atoi(text)
		*dst = n
		return err == nil && n >= low && n <= high
	}}
}

func real(dst *float64, low, high float64) value {
	want := fmt.Sprintf("a number from %v", low)
	if high < math.MaxFloat64 {
		want += fmt.Sprintf(" to %v", high)
	}
	return value{fmt.Sprint(*dst), want, func(text string) bool {
		x, err := strconv.ParseFloat(text, 64)
		*dst = x
		return err == nil && x >= low && x <= high
	}}
}

func seed(dst *uint64) value {
	return value{fmt.Sprint(*dst), "a whole number from 0 to 2^64-1", func(text string) bool {
		n, err := strconv.ParseUint(text, 10, 64)
		*dst = n
		return err == nil
	}}
}

func kvType(dst *string) value {
	return value{*dst, "f32, f16, bf16 or e4m3", func(text string) bool {
		*dst = text
		for _, t := range kvTypes {
			if t.name == text {
				return true
			}
		}
		return false
	}}
}

func device(dst *string) value {
	return value{*dst, "cpu or cuda", func(text string) bool {
		*dst = text
		return text == "cpu" || text == "cuda"
	}}
}
