package main

import (
	"context"
	"encoding/json"
	"math"
	"os"
	"slices"
	"testing"

	"github.com/gaze-ml/gaze/examples/llama/gguf"
	"github.com/gaze-ml/gaze/examples/llama/internal/testmodel"
)

// golden is a prompt and what other software said after it, greedily: testdata/smollm2.json is llama.cpp's, whose 8-bit
// activations make noise of about 0.25 logits; testdata/smollm2_f64.json is an independent program's in float64, with the
// distance in logits between the best two tokens at each step.
type golden struct {
	Prompt  string
	IDs     []int32
	Out     []int32
	Top2Gap []float64 `json:"top2_gap"`
}

func readGolden(t testing.TB, name string) (g []golden) {
	t.Helper()
	data, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &g); err != nil {
		t.Fatal(err)
	}
	if len(g) != 4 {
		t.Fatalf("%s: %d prompts, want 4", name, len(g))
	}
	return g
}

// openSmolLM2 makes the model of the golden data.
func openSmolLM2(t testing.TB, pageSize int, kvType string) *llama {
	t.Helper()
	f, err := gguf.Open(testmodel.SmolLM2(t))
	if err != nil {
		t.Fatal(err)
	}
	h, err := readHParams(f)
	if err != nil {
		t.Fatal(err)
	}
	m, err := openLlama(f, modelConfig{hparams: h, Context: 512, PageSize: pageSize, KVType: kvType})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return m.(*llama)
}

// argmax is the first of the largest logits.
func argmax(logits []float32) int32 {
	best := 0
	for i, x := range logits {
		if x > logits[best] {
			best = i
		}
	}
	return int32(best)
}

// greedy gives the n likeliest tokens one after the other.
func greedy(t testing.TB, m *llama, prompt []int32, n int) (out []int32) {
	t.Helper()
	ctx := context.Background()
	logits, err := m.Prefill(ctx, prompt)
	for {
		if err != nil {
			t.Fatal(err)
		}
		if out = append(out, argmax(logits)); len(out) == n {
			return out
		}
		logits, err = m.Step(ctx, out[len(out)-1])
	}
}

// The greedy tokens are the float64 program's wherever its best two are at least 0.02 apart, up to the first permitted
// divergence, and llama.cpp's up to where its own noise parts it from float64.
func TestSmolLM2Tokens(t *testing.T) {
	exact, llamaCPP := readGolden(t, "smollm2_f64.json"), readGolden(t, "smollm2.json")
	equal := []int{5, 6, 48, 11} // tokens of llama.cpp that float64 gives too
	for i, g := range exact {
		m := openSmolLM2(t, 16, "f32")
		out := greedy(t, m, g.IDs, len(g.Out))
		for step, want := range g.Out {
			if out[step] == want {
				continue
			}
			if gap := g.Top2Gap[step]; gap >= 0.02 {
				t.Errorf("%q: token %d is %d, want %d, which is best by %v", g.Prompt, step, out[step], want, gap)
			} else {
				t.Logf("%q: token %d is %d, not %d, a near-tie of %v", g.Prompt, step, out[step], want, gap)
			}
			break
		}
		if l := llamaCPP[i]; l.Prompt != g.Prompt || !slices.Equal(l.IDs, g.IDs) || !slices.Equal(l.Out[:equal[i]], out[:equal[i]]) {
			t.Errorf("%q: %v, want llama.cpp's %v", g.Prompt, out[:equal[i]], l.Out[:equal[i]])
		}
	}
}

// A prompt whole, in chunks, and token by token, in pages of any size, gives the same logits within float32's rounding.
func TestSmolLM2Chunks(t *testing.T) {
	ctx := context.Background()
	g := readGolden(t, "smollm2_f64.json")[1]
	prompt := append(slices.Clone(g.IDs), g.Out...)
	whole, err := openSmolLM2(t, 16, "f32").Prefill(ctx, prompt)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ chunk, pageSize int }{{1, 16}, {7, 1}, {16, 64}, {33, 3}} {
		m := openSmolLM2(t, c.pageSize, "f32")
		var logits []float32
		for part := range slices.Chunk(prompt, c.chunk) {
			if logits, err = m.Prefill(ctx, part); err != nil {
				t.Fatal(err)
			}
		}
		worst := 0.0
		for i := range whole {
			worst = math.Max(worst, math.Abs(float64(logits[i]-whole[i])))
		}
		if !(worst < 1e-3) {
			t.Errorf("in chunks of %d, pages of %d: logits differ by %.2g", c.chunk, c.pageSize, worst)
		}
	}
}

// A cache of 16 bits changes the likeliest token only at a near-tie: where float64's best two are nearer to each other than twice
// what the cache changes in the logits, and than 0.25. One of 8 bits without scales changes few.
func TestSmolLM2KVTypes(t *testing.T) {
	ctx := context.Background()
	g := readGolden(t, "smollm2_f64.json")[1]
	along := func(kvType string) (logits [][]float32) { // after the prompt and each token of float64's answer
		m := openSmolLM2(t, 16, kvType)
		ids := g.IDs
		for _, out := range g.Out {
			x, err := m.Prefill(ctx, ids)
			if err != nil {
				t.Fatal(err)
			}
			logits = append(logits, slices.Clone(x))
			ids = []int32{out}
		}
		return logits
	}
	wide := along("f32")
	for _, kvType := range []string{"f16", "bf16", "e4m3"} {
		others := 0
		for step, b := range along(kvType) {
			a, worst := wide[step], 0.0
			for i := range a {
				worst = math.Max(worst, math.Abs(float64(a[i]-b[i])))
			}
			if worst == 0 {
				t.Errorf("%s, token %d: no logit differs from f32's", kvType, step)
			}
			if argmax(a) == argmax(b) {
				continue
			}
			others++
			if gap := g.Top2Gap[step]; kvType != "e4m3" && gap >= min(2*worst, 0.25) {
				t.Errorf("%s: token %d is %d, %d with f32: best by %v, logits differ by %.2g", kvType, step, argmax(b), argmax(a), gap, worst)
			}
		}
		if others > len(g.Out)/10 {
			t.Errorf("%s: %d of %d tokens differ", kvType, others, len(g.Out))
		}
	}
}
