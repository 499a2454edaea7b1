package main

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"slices"
	"testing"

	"gorgonia.org/tensor"

	"github.com/gaze-ml/gaze/examples/llama/gguf"
	"github.com/gaze-ml/gaze/examples/llama/internal/testmodel"
	"github.com/gaze-ml/gaze/examples/llama/model"
	"github.com/gaze-ml/gaze/examples/llama/schedule"
	"github.com/gaze-ml/gaze/ops"
)

// golden is a prompt and what other software said after it, greedily: testdata/smollm2.json is llama.cpp's, whose 8-bit activations
// make noise of about 0.25 logits; testdata/smollm2_f64.json is an independent program's in float64, with the distance in logits between
// the best two tokens at each step.
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

// step is a token and the logits that it was picked from.
type step struct {
	id     int32
	logits []float32
}

func tokensOf(steps []step) (out []int32) {
	for _, s := range steps {
		out = append(out, s.id)
	}
	return out
}

// greedy gives what a model says after prompts, n[i] tokens after the i-th, run in one schedule.
func greedy(t testing.TB, f *gguf.File, c model.Config, prompts [][]int32, n []int) (out [][]step, reqs []*schedule.Request) {
	t.Helper()
	h, err := model.ReadHParams(f)
	if err != nil {
		t.Fatal(err)
	}
	m, err := model.Open(f, h, c)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	}()
	out = make([][]step, len(prompts))
	for i, p := range prompts {
		reqs = append(reqs, &schedule.Request{Prompt: p, Pick: func(logits model.Logits) (int32, bool, error) {
			id := logits.Likeliest()
			out[i] = append(out[i], step{id, slices.Clone(logits.Values)})
			return id, len(out[i]) == n[i], nil
		}})
	}
	if err := schedule.Run(t.Context(), m, schedule.Config{Requests: c.Requests, Context: c.Context, Chunk: c.Chunk}, reqs, &schedule.Stats{}); err != nil {
		t.Fatal(err)
	}
	return out, reqs
}

func openSmolLM2(t testing.TB) *gguf.File {
	t.Helper()
	f, err := gguf.Open(testmodel.SmolLM2(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

func smolConfig(requests int) model.Config {
	return model.Config{Context: 256, Requests: requests, Tokens: 256 * requests, PageSize: 16, Chunk: 256, KV: tensor.Float32}
}

// The greedy tokens are the float64 program's wherever its best two are at least 0.02 apart, up to the first permitted divergence, and
// llama.cpp's up to where its own noise parts it from float64. The prompts together in one schedule give the same logits as each
// alone, to the last bit; in other pieces, pages or threads, over a common prefix, or after starting over, the same tokens up to a near-tie.
func TestSmolLM2Tokens(t *testing.T) {
	f := openSmolLM2(t)
	exact, llamaCPP := readGolden(t, "smollm2_f64.json"), readGolden(t, "smollm2.json")
	equal := []int{5, 6, 48, 11} // tokens of llama.cpp that float64 gives too
	var prompts [][]int32
	var n []int
	var alone [][]step
	for i, g := range exact {
		prompts, n = append(prompts, g.IDs), append(n, len(g.Out))
		steps, _ := greedy(t, f, smolConfig(1), prompts[i:], n[i:])
		alone = append(alone, steps[0])
		out := tokensOf(steps[0])
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

	together, _ := greedy(t, f, smolConfig(4), prompts, n)
	for i := range prompts {
		for j, s := range together[i] {
			if !slices.Equal(s.logits, alone[i][j].logits) {
				t.Errorf("%q: token %d among others has other logits than alone", exact[i].Prompt, j)
				break
			}
		}
	}

	for name, change := range map[string]func(*model.Config){
		"token by token": func(c *model.Config) { c.Chunk = 1 },
		"in pieces of 5": func(c *model.Config) { c.Chunk = 5 },
		"pages of 1":     func(c *model.Config) { c.PageSize = 1 },
		"one thread":     func(c *model.Config) { c.Threads = 1 },
		"two at once":    func(c *model.Config) { c.Requests, c.Chunk = 2, 8 },
		"a small cache":  func(c *model.Config) { c.Tokens = 128 }, // the four need 176
	} {
		c := smolConfig(4)
		change(&c)
		modes, reqs := greedy(t, f, c, prompts, n)
		again := 0
		for i := range prompts {
			sameUpToTies(t, fmt.Sprintf("%s: %q", name, exact[i].Prompt), exact[i], alone[i], modes[i])
			again += reqs[i].Again
		}
		if (again > 0) != (name == "a small cache") {
			t.Errorf("%s: %d prompts started over", name, again)
		}
	}

	// The last prompt, twice, shares all whole pages of itself.
	modes, reqs := greedy(t, f, smolConfig(2), [][]int32{prompts[3], prompts[3]}, []int{n[3], n[3]})
	for i := range modes {
		sameUpToTies(t, "over a common prefix", exact[3], alone[3], modes[i])
		if reqs[i].Shared != 16 {
			t.Errorf("%d tokens shared of %d", reqs[i].Shared, len(prompts[3]))
		}
	}
}

// sameUpToTies wants the same tokens in two modes. They may part at a near-tie: where float64 has the best two closer than twice the
// largest difference between the modes' logits, and than 0.25.
func sameUpToTies(t *testing.T, what string, g golden, a, b []step) {
	t.Helper()
	for i := range a {
		if a[i].id == b[i].id {
			continue
		}
		worst := 0.0
		for j := range a[i].logits {
			worst = math.Max(worst, math.Abs(float64(a[i].logits[j]-b[i].logits[j])))
		}
		known := slices.Equal(tokensOf(a[:i]), g.Out[:i]) // else the gap is that of another text
		if gap := g.Top2Gap[i]; !known || gap >= 2*worst || gap >= 0.25 {
			t.Errorf("%s: token %d is %d, want %d; the logits differ by %.2g, the best two by %.2g", what, i, b[i].id, a[i].id, worst, gap)
		} else {
			t.Logf("%s: token %d is %d, not %d, a near-tie: the logits differ by %.2g, the best two by %.2g", what, i, b[i].id, a[i].id, worst, gap)
		}
		return
	}
}

// A narrower cache moves the logits by little.
func TestSmolLM2Caches(t *testing.T) {
	f := openSmolLM2(t)
	exact := readGolden(t, "smollm2_f64.json")
	var prompts [][]int32
	for _, g := range exact {
		prompts = append(prompts, append(slices.Clone(g.IDs), g.Out[:8]...))
	}
	n := []int{1, 1, 1, 1}
	want, _ := greedy(t, f, smolConfig(4), prompts, n)
	for _, kv := range []struct {
		dtype tensor.Dtype
		most  float64
	}{{ops.Float16, 0.02}, {ops.BFloat16, 0.2}, {ops.Float8E4M3, 2}} {
		c := smolConfig(4)
		c.KV = kv.dtype
		got, _ := greedy(t, f, c, prompts, n)
		worst, sum := 0.0, 0.0
		for i := range got {
			for j, x := range got[i][0].logits {
				off := math.Abs(float64(x - want[i][0].logits[j]))
				worst, sum = math.Max(worst, off), sum+off*off
			}
			if got[i][0].id != want[i][0].id {
				t.Errorf("%v: %q goes on with %d, want %d", kv.dtype, exact[i].Prompt, got[i][0].id, want[i][0].id)
			}
		}
		t.Logf("%v: logits differ by %.3g at most, %.3g in the mean square", kv.dtype, worst, math.Sqrt(sum/float64(len(got)*len(got[0][0].logits))))
		if !(worst > 0 && worst < kv.most) {
			t.Errorf("%v: logits differ by %.3g, want less than %v", kv.dtype, worst, kv.most)
		}
	}
}
