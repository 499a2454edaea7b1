package graph_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"gorgonia.org/tensor"

	"github.com/gaze-ml/gaze/graph"
	"github.com/gaze-ml/gaze/internal/fakedevice"
	"github.com/gaze-ml/gaze/ops"
)

// story runs a prompt, single tokens, a fork that writes into a shared page, and a second prompt, and gives all logits.
func (r *runner) story() (logits [][]float32) {
	rnd := rand.New(rand.NewPCG(21, 21))
	a, b := r.m.tokens(rnd, 20), r.m.tokens(rnd, 20)
	sa, sb := r.sequence(), r.sequence()
	logits = append(logits, r.run(r.prefill, turn{sa, a[:6]}, turn{sb, b[:3]})...)
	logits = append(logits, r.run(r.decode, turn{sb, b[3:4]}, turn{sa, a[6:7]})...)
	sc, err := r.cache.Fork(sa, 6) // its second page is part-filled
	must(r.t, sc, err)
	logits = append(logits, r.run(r.decode, turn{sc, b[9:10]}, turn{sa, a[7:8]}, turn{sb, b[4:5]})...)
	logits = append(logits, r.run(r.prefill, turn{sc, b[10:15]})...)
	for _, s := range []*graph.Sequence{sa, sb, sc} {
		if err := r.cache.Free(s); err != nil {
			r.t.Fatal(err)
		}
	}
	return logits
}

func sameLogits(t *testing.T, what string, got, want [][]float32) {
	t.Helper()
	for i := range want {
		if !slices.Equal(got[i], want[i]) {
			t.Errorf("%s: logits %d differ", what, i)
		}
	}
}

// A whole Llama on a device gives the CPU's logits, bit by bit, for every dtype of the cache, and when the device refuses ops. Its
// weights are uploaded once for each Machine; a step uploads the batch, with one copy, and the token ids.
func TestDeviceLlama(t *testing.T) {
	for _, c := range []struct {
		tiny    int
		act, kv tensor.Dtype
		refused string
	}{
		{0, tensor.Float32, tensor.Float32, "none"}, {1, tensor.Float32, tensor.Float32, "linear"}, {2, tensor.Float32, tensor.Float32, "rope"},
		{3, tensor.Float32, tensor.Float32, "all but append_kv"}, {0, tensor.Float32, ops.Float8E4M3, "none"}, {0, ops.BFloat16, ops.BFloat16, "decode"},
		{0, tensor.Float32, ops.Float16, "embedding"},
	} {
		t.Run(tinies[c.tiny].name+", "+c.kv.String()+", without "+c.refused, func(t *testing.T) {
			m := newTiny(tinies[c.tiny].cfg, 9)
			want := newRunnerOf(t, m, c.act, c.kv).story()
			d := newDevice(t)
			refusing(d, c.refused)
			r := newRunnerOn(t, d, m, c.act, c.kv)
			defer r.close()
			sameLogits(t, "the first time", r.story(), want)
			before := d.Counts()
			sameLogits(t, "the second time", r.story(), want)
			after := d.Counts()
			if c.refused != "none" {
				return
			}
			const steps = 4
			extra := 0
			if tinies[c.tiny].cfg.factors {
				extra = 1
			}
			if n := after.Writes - before.Writes; n != steps*(2+extra) {
				t.Errorf("%d uploads in %d steps, want the batch and the ids for each", n, steps)
			}
			if n := after.Reads - before.Reads; n != steps {
				t.Errorf("%d downloads in %d steps, want the logits", n, steps)
			}
			if n := after.Copies - before.Copies; n != m.layers {
				t.Errorf("%d copies on the device, want a page of each of %d layers", n, m.layers)
			}
			if after.Allocs != before.Allocs {
				t.Error("memory was allocated on the device after the first steps")
			}
		})
	}
}

// A step on a device allocates nothing, neither in Go nor there.
func TestDeviceDoesNotAllocate(t *testing.T) {
	for _, kind := range []string{"none", "all but append_kv"} {
		d := newDevice(t)
		refusing(d, kind)
		r := newRunnerOn(t, d, newTiny(tinies[0].cfg, 9), tensor.Float32, tensor.Float32)
		seq := r.sequence()
		r.run(r.decode, turn{seq, []int32{1}})
		reqs := []graph.Request{{Seq: seq, Tokens: 1}}
		before := d.Counts()
		if n := testing.AllocsPerRun(20, func() {
			if err := errors.Join(r.decode.batch.Set(reqs...), r.decode.machine.RunAll()); err != nil {
				t.Fatal(err)
			}
		}); n != 0 {
			t.Errorf("%s refused: a step allocates %v times", kind, n)
		}
		if after := d.Counts(); after.Allocs != before.Allocs {
			t.Errorf("%s refused: a step allocates on the device", kind)
		}
		r.close()
	}
}

// A cache can't be written on the CPU when it is the device's: every reason is said.
func TestDeviceNeverWritesInPlaceElsewhere(t *testing.T) {
	d := newDevice(t)
	r := newRunnerOn(t, d, newTiny(tinies[0].cfg, 9), tensor.Float32, tensor.Float32)
	defer r.close()
	refusing(d, "append_kv")
	_, err := graph.NewMachine(r.decode.logits.Graph(), graph.On(d))
	wantError(t, err, ops.ErrUnsupported, "append_kv", "in place", "first got", "second got", "fake")
}

// What fails on the device is an error, and the next step is right.
func TestDeviceFailures(t *testing.T) {
	m := newTiny(tinies[0].cfg, 9)
	boom := errors.New("boom")
	want := func() [][]float32 {
		r := newRunnerOf(t, m, tensor.Float32, tensor.Float32)
		return r.run(r.decode, turn{r.sequence(), []int32{3}})
	}()
	for _, kind := range []string{"write", "read", "copy", "launch", "alloc", "panic"} {
		for after := range 40 {
			d := newDevice(t)
			refusing(d, "silu_mul") // so that values cross within a run
			r := newRunnerOn(t, d, m, tensor.Float32, tensor.Float32)
			seq := r.sequence()
			if err := r.cache.Advance(seq); err != nil {
				t.Fatal(err)
			}
			r.decode.ids[0] = 3
			if kind == "panic" {
				d.PanicAfter("launch", after, "ouch")
			} else {
				d.FailAfter(kind, after, boom)
			}
			step := func() ([]float32, error) {
				if err := r.decode.batch.Set(graph.Request{Seq: seq, Tokens: 1}); err != nil {
					return nil, err
				}
				if err := r.decode.machine.RunAll(); err != nil {
					return nil, err
				}
				v, err := r.decode.machine.Host(r.decode.logits)
				if err != nil {
					return nil, err
				}
				return ops.Float32s(v)
			}
			_, err := step()
			switch {
			case err == nil: // so much isn't done in a step
				d.FailAfter(kind, 1<<30, boom)
				d.PanicAfter("launch", 1<<30, "ouch")
			case kind == "panic":
				wantError(t, err, ops.ErrArgument, "panic", "ouch", "node")
			case !errors.Is(err, boom):
				t.Errorf("%s %d: %v, want %v", kind, after, err, boom)
			}
			if x, err := step(); err != nil || !slices.Equal(x[:m.vocab], want[0]) {
				t.Errorf("%s %d: the step after the failure: %v, or other logits", kind, after, err)
			}
			r.close()
			if err == nil {
				if after == 0 && kind != "copy" {
					t.Errorf("no %s in a step", kind)
				}
				break
			}
		}
	}
}

// A device that is too small is ErrOutOfMemory, wherever that shows, and nothing stays allocated.
func TestDeviceOutOfMemory(t *testing.T) {
	m := newTiny(tinies[0].cfg, 9)
	for _, bytes := range []int{1 << 10, 40 << 10, 70 << 10, 74 << 10, 80 << 10, 100 << 10} {
		d, err := fakedevice.New("small", bytes)
		if errors.Is(err, ops.ErrNoDevice) {
			t.Skip(err)
		}
		must(t, d, err)
		cache, err := graph.NewKVCache(d, graph.KVCacheConfig{Layers: m.layers, KVHeads: m.kvHeads, HeadDim: m.headDim, PageSize: tinyPage, Pages: 32, DType: tensor.Float32})
		if err == nil {
			var batch *graph.Batch
			if batch, err = cache.DecodeBatch(3, tinyMax); err == nil {
				r := &runner{t: t, m: m, dev: d, act: tensor.Float32, cache: cache}
				g, _ := r.build(&stage{batch: batch, ids: make([]int32, 3)})
				var machine *graph.Machine
				if machine, err = graph.NewMachine(g, graph.On(d)); err == nil {
					if err = batch.Set(); err == nil {
						err = machine.RunAll()
					}
					if err := machine.Close(); err != nil {
						t.Error(err)
					}
				}
			}
			if err := cache.Close(); err != nil {
				t.Error(err)
			}
		}
		wantError(t, err, ops.ErrOutOfMemory, "alloc")
		if c := d.Counts(); c.Blocks != 0 {
			t.Errorf("%d bytes of %d stay allocated", c.UsedBytes, bytes)
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
}

// One graph under two Machines at once, and 64 goroutines with a Machine each, on one device.
func TestDeviceMachinesAtOnce(t *testing.T) {
	d := newDevice(t)
	refusing(d, "silu_mul")
	shared := newNet(t)
	build := func(n *net) *net {
		x, w := n.random(tensor.Float32, 4, 16), n.random(tensor.Float32, 16)
		a, err := ops.RMSNorm(x, w, 1e-5)
		must(t, a, err)
		b, err := ops.SiLUMul(a, x)
		must(t, b, err)
		c, err := ops.RMSNorm(b, w, 1e-5)
		must(t, c, err)
		return n
	}
	reference := build(newNet(t))
	all := reference.g.AllNodes()
	want, _ := reference.onMachine(all[len(all)-1:], 1)
	build(shared)
	var wg sync.WaitGroup
	for i := range 64 {
		wg.Go(func() {
			n := shared
			if i >= 2 {
				n = build(newNet(t))
			}
			m, err := graph.NewMachine(n.g, graph.On(d), graph.Resident(n.inputs[1].node))
			if err != nil {
				t.Error(err)
				return
			}
			defer m.Close()
			for j, v := range n.clones() {
				if err := m.Let(n.inputs[j].node, v); err != nil {
					t.Error(err)
				}
			}
			nodes := n.g.AllNodes()
			for range 5 {
				if err := m.RunAll(); err != nil {
					t.Error(err)
					return
				}
				if v, err := m.Host(nodes[len(nodes)-1]); err != nil || !bytes.Equal(raw(v), want[0][0].bytes) {
					t.Errorf("another result (%v)", err)
				}
			}
		})
	}
	wg.Wait()
}

// A closed device is an error everywhere, and so is what was made on it.
func TestDeviceClosed(t *testing.T) {
	d := newDevice(t)
	r := newRunnerOn(t, d, newTiny(tinies[0].cfg, 9), tensor.Float32, tensor.Float32)
	seq := r.sequence()
	r.run(r.decode, turn{seq, []int32{1}})
	r.close()
	if c := d.Counts(); c.Blocks != 0 {
		t.Errorf("%d bytes after everything was closed", c.UsedBytes)
	}
	r.close() // twice
	_, newErr := r.cache.NewSequence(1)
	_, batchErr := r.cache.DecodeBatch(1, 8)
	for what, err := range map[string]error{"set": r.decode.batch.Set(), "advance": r.cache.Advance(seq), "new": newErr, "batch": batchErr, "run": r.decode.machine.RunAll()} {
		if !errors.Is(err, ops.ErrArgument) || !strings.Contains(err.Error(), "closed") {
			t.Errorf("%s on what is closed: %v", what, err)
		}
	}
	n := newNet(t)
	x, w := n.random(tensor.Float32, 4, 16), n.random(tensor.Float32, 16)
	y, err := ops.RMSNorm(x, w, 1e-5)
	must(t, y, err)
	other, err := fakedevice.New("other", 1<<20)
	must(t, other, err)
	m, err := graph.NewMachine(n.g, graph.On(other))
	must(t, m, err)
	there, err := graph.Upload(other, n.inputs[0].value)
	must(t, there, err)
	if err := errors.Join(m.Let(x, there), m.Let(w, n.inputs[1].value), m.RunAll(), other.Close()); err != nil {
		t.Fatal(err)
	}
	wantError(t, m.RunAll(), ops.ErrDevice, "after Close")
	wantError(t, m.Let(x, there), ops.ErrDevice, "input0", "closed")
	_, err = graph.NewMachine(n.g, graph.On(other))
	wantError(t, err, ops.ErrDevice, "after Close")
	_, err = graph.NewKVCache(other, graph.KVCacheConfig{Layers: 1, KVHeads: 1, HeadDim: 8, PageSize: 1, Pages: 1, DType: tensor.Float32})
	wantError(t, err, ops.ErrDevice, "after Close")
}
