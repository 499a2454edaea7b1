package graph_test

import (
	"bytes"
	"errors"
	"testing"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/gaze-ml/gaze/graph"
	"github.com/gaze-ml/gaze/internal/attn"
	"github.com/gaze-ml/gaze/internal/fakedevice"
	"github.com/gaze-ml/gaze/ops"
)

// captured makes both stages replay what they did for an empty batch.
func (r *runner) captured() *runner {
	r.t.Helper()
	for _, s := range []*stage{r.decode, r.prefill} {
		if err := s.batch.Set(); err != nil {
			r.t.Fatal(err)
		}
		var err error
		s.capture, err = s.machine.Capture()
		must(r.t, s.capture, err)
	}
	return r
}

// A Llama whose steps were captured with an empty batch gives, for prompts, single tokens and forks over page boundaries, the logits of
// the CPU, bit by bit; every step is one replay that makes the same launches as a run, and allocates nothing anywhere.
func TestCaptureLlama(t *testing.T) {
	for _, c := range []struct {
		tiny    int
		act, kv tensor.Dtype
	}{{0, tensor.Float32, tensor.Float32}, {1, ops.Float16, ops.Float16}, {2, ops.BFloat16, ops.BFloat16}} {
		m := newTiny(tinies[c.tiny].cfg, 9)
		want := newRunnerOf(t, m, c.act, c.kv).story()
		sameLogits(t, "on the CPU", newRunnerOf(t, m, c.act, c.kv).captured().story(), want)
		d := newDevice(t)
		r := newRunnerOn(t, d, m, c.act, c.kv)
		before := d.Counts()
		sameLogits(t, "by runs", r.story(), want)
		launches := d.Counts().Launches - before.Launches
		r.captured()
		before = d.Counts()
		sameLogits(t, "by replays", r.story(), want)
		after := d.Counts()
		const steps = 4
		if n := after.Replays - before.Replays; n != steps {
			t.Errorf("%d replays in %d steps", n, steps)
		}
		if n := after.Launches - before.Launches; n != launches {
			t.Errorf("%d launches by replays, %d by runs", n, launches)
		}
		if after.Allocs != before.Allocs {
			t.Error("a replay allocates on the device")
		}
		seq := r.sequence()
		r.run(r.decode, turn{seq, []int32{1}})
		reqs := []graph.Request{{Seq: seq, Tokens: 1}}
		if n := testing.AllocsPerRun(20, func() {
			if err := errors.Join(r.decode.batch.Set(reqs...), r.decode.capture.Run()); err != nil {
				t.Fatal(err)
			}
		}); n != 0 {
			t.Errorf("a replay allocates %v times", n)
		}
		r.close()
	}
}

// gated is silu(x)·(scale·x) with a norm, on inputs that a test changes.
func gated(t *testing.T) (n *net, x, w, out *gorgonia.Node) {
	n = newNet(t)
	x, w = n.random(tensor.Float32, 4, 16), n.random(tensor.Float32, 16)
	a, err := ops.RMSNorm(x, w, 1e-5)
	must(t, a, err)
	b, err := gorgonia.Add(a, x)
	must(t, b, err)
	out, err = ops.SiLUMul(a, b)
	return n, x, w, must(t, out, err)
}

// What is frozen is refused by name when it changes, and nothing is launched; with what it was, replays go on. Contents are new in
// every replay.
func TestCaptureFreezes(t *testing.T) {
	for _, place := range []string{"cpu", "host tensors", "device tensors"} {
		t.Run(place, func(t *testing.T) {
			n, x, _, out := gated(t)
			var dev graph.Device = graph.CPU
			var d *fakedevice.Device
			if place != "cpu" {
				d = newDevice(t)
				dev = d
			}
			m, err := graph.NewMachine(n.g, graph.On(dev))
			must(t, m, err)
			defer m.Close()
			vs := n.clones()
			other := n.clones()[0]
			if place == "device tensors" {
				for _, v := range []**tensor.Dense{&vs[0], &vs[1], &other} {
					*v, err = graph.Upload(d, *v)
					must(t, *v, err)
					defer graph.Release(d, *v)
				}
			}
			if err := errors.Join(m.Let(n.inputs[0].node, vs[0]), m.Let(n.inputs[1].node, vs[1])); err != nil {
				t.Fatal(err)
			}
			c, err := m.Capture()
			must(t, c, err)
			result := func(run func() error) []byte {
				t.Helper()
				if err := run(); err != nil {
					t.Fatal(err)
				}
				v, err := m.Host(out)
				return bytes.Clone(raw(must(t, v, err)))
			}
			first := result(c.Run)
			if !bytes.Equal(first, result(m.RunAll)) {
				t.Error("a replay gives something else than a run")
			}
			refused := func(says ...string) {
				t.Helper()
				launches := 0
				if d != nil {
					launches = d.Counts().Launches
				}
				wantError(t, c.Run(), ops.ErrArgument, append(says, "captured", "input0")...)
				if _, err := m.Host(out); !errors.Is(err, ops.ErrArgument) {
					t.Errorf("a result after a refusal: %v", err)
				}
				if d != nil && d.Counts().Launches != launches {
					t.Error("something was launched")
				}
			}
			if err := m.Let(x, other); err != nil {
				t.Fatal(err)
			}
			refused("another one")
			result(m.RunAll) // which takes it
			if err := m.Let(x, vs[0]); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(result(c.Run), first) {
				t.Error("another result with the tensor that was captured")
			}
			if err := vs[0].Reshape(16, 4); err != nil {
				t.Fatal(err)
			}
			refused("[16 4]", "[4 16]")
			if err := vs[0].Reshape(4, 16); err != nil {
				t.Fatal(err)
			}
			// New contents where the tensor lies.
			view, err := ops.View("test", "x", vs[0])
			must(t, view, err)
			content := bytes.Repeat([]byte{0, 0, 0x80, 0x3f}, 64)
			if place == "device tensors" {
				err = d.Write(view.Ptr, content)
			} else {
				copy(raw(vs[0]), content)
			}
			if err != nil {
				t.Fatal(err)
			}
			second := result(c.Run)
			if bytes.Equal(second, first) || !bytes.Equal(second, result(m.RunAll)) {
				t.Error("a replay doesn't see new contents")
			}
			if err := errors.Join(c.Close(), c.Close()); err != nil {
				t.Error(err)
			}
			wantError(t, c.Run(), ops.ErrArgument, "closed")
		})
	}
}

// noRecorder hides what a device has beyond Device.
type noRecorder struct{ graph.Device }

// What can't be captured is refused with every reason: nodes on the CPU with theirs, a device that can't record, what is closed.
func TestCaptureRefuses(t *testing.T) {
	n, x, _, _ := gated(t)
	d := newDevice(t)
	d.Refuse(func(c attn.Call) []error {
		if c.Op() == "silu_mul" {
			return []error{attn.Errorf(ops.ErrUnsupported, c.Op(), "", "first want", "first got"), attn.Errorf(ops.ErrUnsupported, c.Op(), "", "second want", "second got")}
		}
		return nil
	})
	let := func(m *graph.Machine) *graph.Machine {
		t.Helper()
		for i, v := range n.clones() {
			if err := m.Let(n.inputs[i].node, v); err != nil {
				t.Fatal(err)
			}
		}
		return m
	}
	m := let(n.on(d))
	_, err := m.Capture()
	wantError(t, err, ops.ErrUnsupported, "capture", "silu_mul", "first got", "second got", "on the cpu", "every node on fake")
	d.Refuse(nil)
	m = let(n.on(d))
	c, err := m.Capture()
	must(t, c, err)
	boom := errors.New("boom")
	d.FailAfter("replay", 0, boom)
	if err := c.Run(); !errors.Is(err, boom) {
		t.Errorf("%v, want %v", err, boom)
	}
	if err := c.Run(); err != nil {
		t.Error(err)
	}
	d.FailAfter("record", 0, boom)
	if _, err := m.Capture(); !errors.Is(err, boom) {
		t.Errorf("%v, want %v", err, boom)
	}
	if err := m.Let(x, n.clones()[0]); err != nil {
		t.Fatal(err)
	}
	if err := m.RunAll(); err != nil { // the failed capture left nothing behind
		t.Error(err)
	}
	if err := m.Close(); err != nil {
		t.Error(err)
	}
	wantError(t, c.Run(), ops.ErrArgument, "closed")
	_, err = m.Capture()
	wantError(t, err, ops.ErrArgument, "closed")
	if err := c.Close(); err != nil {
		t.Error(err)
	}

	lone, err := graph.NewMachine(n.g, graph.On(noRecorder{d}))
	must(t, lone, err)
	defer lone.Close()
	_, err = let(lone).Capture()
	wantError(t, err, ops.ErrUnsupported, "a device that can record", "fake", "an engine for Gorgonia's own ops")
}
