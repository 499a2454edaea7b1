package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gaze-ml/gaze/examples/llama/gguf"
	"github.com/gaze-ml/gaze/examples/llama/model"
	"github.com/gaze-ml/gaze/graph"
	"github.com/gaze-ml/gaze/internal/fakedevice"
	"github.com/gaze-ml/gaze/ops"
)

// Where only candidates leave the device the text is the one that all logits give, with the same seed, for one prompt and for several; so
// it is where the CPU looks for them.
func TestCandidatesSayTheSame(t *testing.T) {
	path := filepath.Join(t.TempDir(), "model.gguf")
	if err := os.WriteFile(path, wholes["SentencePiece, tied"]().Bytes(t, nil), 0o644); err != nil {
		t.Fatal(err)
	}
	devices := map[string]graph.Device{"cpu": nil}
	d, err := fakedevice.New("fake", 64<<20)
	if err == nil {
		defer d.Close()
		devices["fake"] = d
	} else if !errors.Is(err, ops.ErrNoDevice) {
		t.Fatal(err)
	}
	for name, dev := range devices {
		for _, flags := range []string{"-temp 0", "-temp 0 -repeat-penalty 1.3 -repeat-last 4", "-temp 1 -top-k 7 -top-p 0.9 -seed 3", "-temp 2 -top-k 5 -repeat-penalty 1.5 -repeat-last 3 -seed 5"} {
			t.Run(name+" "+flags, func(t *testing.T) {
				o, err := parseFlags(append(strings.Fields(flags), "-model", path, "-p", "x"), &bytes.Buffer{})
				if err != nil {
					t.Fatal(err)
				}
				n := o.sampling.Candidates()
				if n == 0 {
					t.Fatal("no candidates")
				}
				say := func(candidates int, more ...string) string {
					var out, notes bytes.Buffer
					p := &program{stdout: &out, stderr: &notes, started: time.Now(), memory: availableMemory,
						open: func(f *gguf.File, h model.HParams, c model.Config) (engine, error) {
							c.Device, c.Candidates = dev, candidates
							return model.Open(f, h, c)
						}}
					if status := p.run(t.Context(), append(append(strings.Fields(flags), "-model", path, "-raw", "-kv-type", "f16", "-n", "20", "-p", "hello, wörld"), more...)); status != exitOK {
						t.Fatal(notes.String())
					}
					return out.String()
				}
				for _, more := range [][]string{nil, {"-p", "hell", "-p", "you there"}} {
					if got, want := say(n, more...), say(0, more...); got != want || len(want) < 10 {
						t.Errorf("%d candidates say %q, all logits %q", n, got, want)
					}
				}
			})
		}
	}
}

// A device is asked for no more than the sampling needs; for all logits where they are written to a file, and of the CPU.
func TestConfigureCandidates(t *testing.T) {
	d, err := fakedevice.New("fake", 1<<20)
	if errors.Is(err, ops.ErrNoDevice) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	for flags, want := range map[string]int{"-temp 0": 1, "-temp 1 -top-k 9": 9, "-temp 1 -top-k 9 -repeat-penalty 2 -repeat-last 8": 17, "-temp 1 -top-k 0 -top-p 0.5": 0, "-temp 0 -logits x": 0} {
		o, err := parseFlags(append(strings.Fields(flags), "-model", "m", "-p", "x"), &bytes.Buffer{})
		if err != nil {
			t.Fatal(err)
		}
		h := model.HParams{MaxContext: 100, Vocab: 1000}
		if got := configure(o, h, []prompt{{ids: []int32{1}}}, d).Candidates; got != want {
			t.Errorf("%s: %d candidates, want %d", flags, got, want)
		}
		if got := configure(o, h, []prompt{{ids: []int32{1}}}, nil).Candidates; got != 0 {
			t.Errorf("%s on the CPU: %d candidates", flags, got)
		}
	}
}
