package main

import (
	"bytes"
	"errors"
	"flag"
	"io"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/gaze-ml/gaze/examples/llama/sample"
)

func TestFlags(t *testing.T) {
	got, err := parseFlags([]string{"-model", "m", "-p", "x"}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	want := options{model: "m", prompts: []string{"x"}, tokens: 256, parallel: 8, chunk: 256, device: "cpu", kvType: "f32", pageSize: 16, logitsTop: 10, rounds: 6,
		sampling: sample.Params{TopK: 40, TopP: 0.95, RepeatPenalty: 1, RepeatLast: 64}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("defaults: got %+v, want %+v", got, want)
	}
	got, err = parseFlags(strings.Fields("-model=m -p x -p - -prompts f -system s -n 7 -ctx 9 -stop a -stop b -temp 0.5 -top-k 3 -top-p 0.25 -min-p 0.125 -repeat-penalty 1.5 "+
		"-repeat-last 5 -seed 18446744073709551615 -threads 2 -parallel 3 -cache 512 -chunk 31 -device cuda -kv-type bf16 -page-size 64 -logits l.json -logits-top 4 -rounds 2 -v -v -log-calls"), io.Discard)
	want = options{model: "m", prompts: []string{"x", "-"}, file: "f", system: "s", tokens: 7, context: 9, stop: []string{"a", "b"}, threads: 2, parallel: 3, cache: 512, chunk: 31,
		device: "cuda", kvType: "bf16", pageSize: 64, logits: "l.json", logitsTop: 4, rounds: 2, verbose: 2, logCalls: true, sampling: sample.Params{
			Temperature: 0.5, TopK: 3, TopP: 0.25, MinP: 0.125, RepeatPenalty: 1.5, RepeatLast: 5, Seed: 1<<64 - 1}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
	if got, err := parseFlags(strings.Fields("-model m -p x -device cuda"), io.Discard); err != nil || got.kvType != "f16" {
		t.Errorf("got %+v, %v, want a cache of f16 on a GPU", got, err)
	}
	if got.sampling.Validate() != nil {
		t.Error("the flags allow what the sampler refuses")
	}
	if got, err := parseFlags(strings.Fields("-model m -raw -bench=false -p x"), io.Discard); err != nil || !got.raw || got.bench {
		t.Errorf("got %+v, %v", got, err)
	}
	if got, err := parseFlags(strings.Fields("-model m -bench"), io.Discard); err != nil || !got.bench {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestBadFlags(t *testing.T) {
	for args, name := range map[string]string{
		"-p x": "model", "-model m": "p", "-model m -p x -system s -raw": "system", "-model m -p x more words": "p",
		"-n -1": "n", "-n 1.5": "n", "-n many": "n", "-n 99999999999999999999": "n", "-ctx -1": "ctx", "-temp -0.1": "temp", "-temp NaN": "temp",
		"-temp Inf": "temp", "-temp hot": "temp", "-top-k -1": "top-k", "-top-p 1.1": "top-p", "-top-p -1": "top-p", "-min-p 2": "min-p",
		"-repeat-penalty -1": "repeat-penalty", "-repeat-last 0": "repeat-last", "-seed -1": "seed", "-threads -1": "threads",
		"-threads 5000": "threads", "-page-size 0": "page-size", "-kv-type f8": "kv-type", "-device gpu": "device", "-model m -p x -page-size 24": "page-size",
	} {
		_, err := parseFlags(strings.Fields(args), io.Discard)
		var typed *flagError
		if !errors.As(err, &typed) || typed.Flag != name || typed.Got == "" || typed.Want == "" {
			t.Errorf("%s: got %v, want a *flagError for -%s", args, err, name)
		}
	}
	if _, err := parseFlags([]string{"-frobnicate"}, io.Discard); err == nil || !strings.Contains(err.Error(), "-frobnicate") {
		t.Errorf("an unknown flag: %v", err)
	}
	text := usage()
	var usage bytes.Buffer
	if _, err := parseFlags([]string{"-h"}, &usage); !errors.Is(err, flag.ErrHelp) {
		t.Errorf("-h: %v", err)
	}
	if usage.String() != text || text == "" {
		t.Errorf("-h says\n%s", &usage)
	}
}

// -h says every flag once, with its default; the README shows what it says.
func TestUsage(t *testing.T) {
	for _, row := range table {
		if row.name != "" && strings.Count("\n"+usage(), "\n  -"+row.name+" ") != 1 {
			t.Errorf("-h doesn't say -%s", row.name)
		}
	}
	for _, part := range []string{"-n tokens ", "(default 256)", "(default 0.95)", "(default cpu)"} {
		if !strings.Contains(usage(), part) {
			t.Errorf("-h doesn't say %q", part)
		}
	}
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(strings.ReplaceAll(string(readme), "\r\n", "\n"), "\n```\n"+usage()+"```\n") {
		t.Error("README.md doesn't show what -h says now")
	}
}
