package ops_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/gaze-ml/gaze/graph"
	"github.com/gaze-ml/gaze/ops"
)

// hooked gathers what the hook sees while f runs.
func hooked(t *testing.T, f func()) (calls []ops.CallInfo) {
	t.Helper()
	ops.SetCallHook(func(c ops.CallInfo) { calls = append(calls, c) })
	defer ops.SetCallHook(nil)
	f()
	return calls
}

// rotation is a direct call of RoPE with a strided x.
func rotation(t *testing.T) (ops.RoPEArgs, *dense) {
	t.Helper()
	m := newMaker(t)
	wide := m.random(tensor.Float32, 2, 6, 4)
	view, err := wide.Slice(nil, tensor.S(0, 3))
	if err != nil {
		t.Fatal(err)
	}
	out := zeros(tensor.Float32, 2, 3, 4)
	positions := tensor.New(tensor.WithShape(2), tensor.WithBacking([]int32{7, -1}))
	return ops.RoPEArgs{X: view.(*dense), Positions: positions, Base: 10000, Out: out}, out
}

// The hook sees a direct call before it has written anything, with names, dtypes, shapes, strides, lengths and scalars, and what was
// not given is left out.
func TestCallHook(t *testing.T) {
	a, out := rotation(t)
	var before []float32
	ops.SetCallHook(func(c ops.CallInfo) {
		before = slices.Clone(out.Data().([]float32))
		const want = "rope on cpu: x float32[2 3 4] strides [24 4 1], positions int32[2] {7 -1}, pairing adjacent, base 10000, rotary_dim 2, out float32[2 3 4]"
		if got := c.String(); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	})
	defer ops.SetCallHook(nil)
	if err := ops.Rotate(a, ops.WithPairing(ops.Adjacent), ops.WithRotaryDim(2)); err != nil {
		t.Fatal(err)
	}
	if len(before) == 0 {
		t.Fatal("the hook saw nothing")
	}
	if slices.ContainsFunc(before, func(x float32) bool { return x != 0 }) || slices.Equal(before, out.Data().([]float32)) {
		t.Errorf("the hook was called after the call: out %v", before)
	}
	ops.SetCallHook(nil)
	if n := len(before); n == 0 {
		t.Fatal(n)
	}
	before = nil
	if err := ops.Rotate(a); err != nil || before != nil {
		t.Errorf("a hook that was turned off: %v, %v", before, err)
	}
}

// A refused call isn't seen: it doesn't run.
func TestCallHookRefused(t *testing.T) {
	a, _ := rotation(t)
	a.Base = -1
	if calls := hooked(t, func() {
		if ops.Rotate(a) == nil {
			t.Error("a negative base was taken")
		}
	}); len(calls) != 0 {
		t.Errorf("the hook saw %v", calls)
	}
}

// Calls of graphs are seen under Gorgonia's VM and under the Machine, each run anew, with the values of that run; long operands
// show their beginning.
func TestCallHookGraph(t *testing.T) {
	m := newMaker(t)
	g := gorgonia.NewGraph()
	ids := make([]int32, 20)
	for i := range ids {
		ids[i] = int32(i % 3)
	}
	in, err := graph.Input(g, "ids", tensor.New(tensor.WithShape(20), tensor.WithBacking(ids)))
	must(t, in, err)
	w, err := graph.Input(g, "w", m.random(tensor.Float32, 3, 8))
	must(t, w, err)
	x, err := ops.Embedding(in, w, ops.WithOutDType(tensor.Float32))
	must(t, x, err)
	y, err := ops.SiLUMul(x, x)
	must(t, y, err)
	machine, err := graph.NewMachine(g)
	must(t, machine, err)
	tape := gorgonia.NewTapeMachine(g)
	defer tape.Close()
	want := func(first int) []string {
		values := make([]string, 16)
		for i := range values {
			values[i] = fmt.Sprint(ids[i])
		}
		return []string{
			fmt.Sprintf("embedding on cpu: ids int32[20] {%s …}, weight float32[3 8], out_dtype float32, out float32[20 8]", strings.Join(values, " ")),
			"silu_mul on cpu: gate float32[20 8], up float32[20 8], out float32[20 8]",
		}
	}
	for run := range 2 {
		ids[0] = int32(run)
		for name, all := range map[string]func() error{"machine": machine.RunAll, "tape": func() error { defer tape.Reset(); return tape.RunAll() }} {
			var got []string
			for _, c := range hooked(t, func() {
				if err := all(); err != nil {
					t.Fatal(err)
				}
			}) {
				got = append(got, c.String())
			}
			if !slices.Equal(got, want(run)) {
				t.Errorf("%s, run %d:\n got %q\nwant %q", name, run, got, want(run))
			}
		}
	}
	// Nobody looks: nothing is allocated.
	ops.SetCallHook(nil)
	if n := testing.AllocsPerRun(20, func() {
		if err := machine.RunAll(); err != nil {
			t.Error(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations a run without a hook", n)
	}
}

// LogCalls writes a line a call, before the call, unless the logger's level is above debug.
func TestLogCalls(t *testing.T) {
	a, _ := rotation(t)
	for level, lines := range map[slog.Level]int{slog.LevelDebug: 2, slog.LevelInfo: 0} {
		var out bytes.Buffer
		ops.LogCalls(slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: level})))
		for range 2 {
			if err := ops.Rotate(a); err != nil {
				t.Fatal(err)
			}
		}
		ops.LogCalls(nil)
		if err := ops.Rotate(a); err != nil {
			t.Fatal(err)
		}
		if got := strings.Count(out.String(), `msg=rope backend=cpu x="float32[2 3 4] strides [24 4 1]" positions="int32[2] {7 -1}" base=10000`); got != lines || strings.Count(out.String(), "\n") != lines {
			t.Errorf("level %v: %d lines, want %d:\n%s", level, got, lines, &out)
		}
	}
}

// Every op of a decoder layer has a name of FlashInfer's kind for each of its operands.
func TestCallHookNames(t *testing.T) {
	m := newMaker(t)
	cache := zeros(tensor.Float32, 2, 2, 1, 4, 8)
	tables, lens := tensor.New(tensor.WithShape(1, 2), tensor.WithBacking([]int32{1, 0})), tensor.New(tensor.WithShape(1), tensor.WithBacking([]int32{5}))
	calls := hooked(t, func() {
		if err := ops.Decode(ops.DecodeArgs{Query: m.random(tensor.Float32, 1, 2, 8), KV: ops.StackedKV(cache, ops.HND), BlockTables: tables, SeqLens: lens,
			Out: zeros(tensor.Float32, 1, 2, 8)}, ops.WithWindowLeft(3)); err != nil {
			t.Fatal(err)
		}
	})
	if len(calls) != 1 {
		t.Fatalf("%d calls", len(calls))
	}
	var names []string
	for _, a := range calls[0].Args {
		names = append(names, a.Name)
	}
	want := []string{"query", "key", "value", "block_tables", "seq_lens", "bmm1_scale", "bmm2_scale", "window_left", "o_scale", "out"}
	if !slices.Equal(names, want) {
		t.Errorf("got %v, want %v", names, want)
	}
	if got := calls[0].Args[3].Values; !slices.Equal(got, []int64{1, 0}) {
		t.Errorf("block_tables %v", got)
	}
}

func ExampleSetCallHook() {
	ops.SetCallHook(func(c ops.CallInfo) { fmt.Println(c) })
	defer ops.SetCallHook(nil)
	ids, table := tensor.New(tensor.WithShape(3), tensor.WithBacking([]int32{2, 0, 1})), tensor.New(tensor.WithShape(4, 8), tensor.Of(tensor.Float32))
	if err := ops.Embed(ids, table, tensor.New(tensor.WithShape(3, 8), tensor.Of(tensor.Float32))); err != nil {
		fmt.Println(err)
	}
	// Output: embedding on cpu: ids int32[3] {2 0 1}, weight float32[4 8], out float32[3 8]
}
