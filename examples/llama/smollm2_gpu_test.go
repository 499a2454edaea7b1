//go:build gpu && linux && amd64 && cgo

package main

import (
	"errors"
	"fmt"
	"math"
	"os"
	"testing"

	"gorgonia.org/tensor"

	"github.com/gaze-ml/gaze/cudaops"
	"github.com/gaze-ml/gaze/ops"
)

// On a GPU, every step a replayed graph, SmolLM2 says what it says on the CPU up to a near-tie, the four prompts alone and together, with
// each type of cache that a GPU takes.
func TestSmolLM2OnGPU(t *testing.T) {
	rt, err := cudaops.Open(0)
	if errors.Is(err, ops.ErrNoDevice) && os.Getenv("GAZE_REQUIRE_GPU") == "" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := rt.Close(); err != nil {
			t.Error(err)
		}
	}()
	t.Log(rt.Properties())
	f := openSmolLM2(t)
	exact := readGolden(t, "smollm2_f64.json")
	var prompts [][]int32
	var n []int
	for _, g := range exact {
		prompts, n = append(prompts, g.IDs), append(n, len(g.Out))
	}
	cpu, _ := greedy(t, f, smolConfig(4), prompts, n)
	for _, kv := range []tensor.Dtype{ops.Float16, ops.BFloat16} {
		for _, requests := range []int{1, 4} {
			c := smolConfig(requests)
			c.Device, c.KV = rt, kv
			gpu, _ := greedy(t, f, c, prompts, n)
			c.Candidates = 5
			few, _ := greedy(t, f, c, prompts, n)
			worst := 0.0
			for i := range prompts {
				for j, x := range gpu[i][0].logits {
					worst = math.Max(worst, math.Abs(float64(x-cpu[i][0].logits[j])))
				}
				for j := range gpu[i] {
					if few[i][j].id != gpu[i][j].id {
						t.Errorf("%v, %d at once: %q: token %d is %d where only candidates leave the GPU, else %d", ops.DTypeOf(kv), requests, exact[i].Prompt, j, few[i][j].id, gpu[i][j].id)
						break
					}
				}
				sameUpToTies(t, fmt.Sprintf("%v, %d at once: %q", ops.DTypeOf(kv), requests, exact[i].Prompt), exact[i], cpu[i], gpu[i])
			}
			t.Logf("%v, %d at once: logits after the prompts differ by %.3g at most", ops.DTypeOf(kv), requests, worst)
			if !(worst > 0 && worst < 0.5) {
				t.Errorf("logits differ by %.3g from the CPU's", worst)
			}
		}
	}
}
