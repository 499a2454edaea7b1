package model

import (
	"cmp"
	"errors"
	"slices"
	"testing"

	"gorgonia.org/tensor"

	"github.com/gaze-ml/gaze/examples/llama/internal/tinymodel"
	"github.com/gaze-ml/gaze/graph"
	"github.com/gaze-ml/gaze/internal/fakedevice"
	"github.com/gaze-ml/gaze/ops"
)

// On a device a model gives the formula's logits up to float16 rounding, for every kind of file, prompts and single tokens of two
// sequences; every step is one replay, the weights go there once, and nothing stays there.
func TestModelOnDevice(t *testing.T) {
	for name, variant := range variants {
		t.Run(name, func(t *testing.T) {
			d, err := fakedevice.New("fake", 64<<20)
			if errors.Is(err, ops.ErrNoDevice) {
				t.Skip(err)
			}
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if n := d.Counts().Blocks; n != 0 {
					t.Errorf("%d blocks stay on the device", n)
				}
				if err := d.Close(); err != nil {
					t.Error(err)
				}
			}()
			f := variant()
			data, ids := f.Bytes(t, nil), f.Tokens(80)
			want := f.Ref.Logits(ids)
			c := config(2, len(ids))
			c.Device, c.KV = d, ops.Float16
			file, h := parse(t, data)
			m, err := Open(file, h, c)
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := errors.Join(m.Close(), m.Close()); err != nil {
					t.Error(err)
				}
			}()
			const tolerance = 0.03
			a := newChat(t, m)
			within(t, "a prompt", tolerance, a.prefill(ids[:37]), want[36])
			b := newChat(t, m)
			within(t, "another", tolerance, b.prefill(ids[:5]), want[4])
			replays, launches := d.Counts().Replays, 0
			for i := range 20 {
				before := d.Counts()
				within(t, "a token of a", tolerance, a.step(ids[37+i]), want[37+i])
				within(t, "a token of b", tolerance, b.step(ids[5+i]), want[5+i])
				if launches = d.Counts().Launches - before.Launches; launches < 2*h.Layers {
					t.Errorf("%d launches in two steps", launches)
				}
				if n := d.Counts().Allocs - before.Allocs; n != 0 && i > 0 {
					t.Errorf("%d allocations in a step", n)
				}
			}
			if n := d.Counts().Replays - replays; n != 40 {
				t.Errorf("%d replays in 40 steps", n)
			}
			if w := Estimate(file, h, c).Weights; w > int64(d.Counts().UsedBytes) {
				t.Errorf("weights of %d bytes estimated, %d bytes in use", w, d.Counts().UsedBytes)
			}
		})
	}
}

// A device that can't do all of a step refuses to be used, with the reasons.
func TestModelDeviceRefuses(t *testing.T) {
	d, err := fakedevice.New("fake", 64<<20)
	if errors.Is(err, ops.ErrNoDevice) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	d.FailAfter("record", 0, errors.New("boom"))
	file, h := parse(t, tinymodel.New(tinymodel.Plain, 1).Bytes(t, nil))
	c := config(1, 32)
	c.Device, c.KV = d, tensor.Float32
	if _, err := Open(file, h, c); err == nil || d.Counts().Blocks != 0 {
		t.Errorf("%v, %d blocks", err, d.Counts().Blocks)
	}
}

// With candidates a model gives the largest of the logits that it gives without, in order, on the CPU and on a device, for prompts and
// single tokens of two sequences; where they are the whole vocabulary, or more than devices look for, it gives all.
func TestCandidates(t *testing.T) {
	f := tinymodel.New(tinymodel.Plain, 3)
	data, ids := f.Bytes(t, nil), f.Tokens(30)
	d, err := fakedevice.New("fake", 64<<20)
	if err != nil && !errors.Is(err, ops.ErrNoDevice) {
		t.Fatal(err)
	}
	devices := map[string]graph.Device{"cpu": nil}
	if err == nil {
		defer d.Close()
		devices["fake"] = d
	}
	for name, dev := range devices {
		t.Run(name, func(t *testing.T) {
			c := config(2, 2*len(ids))
			c.Device, c.KV = dev, ops.Float16
			whole := open(t, data, c)
			c.Candidates = 7
			part := open(t, data, c)
			c.Candidates = mostCandidates + 1
			if same := open(t, data, c); same.stages[shape{rows: 1, requests: 1}].chosen != nil {
				t.Errorf("graphs look for %d candidates of a vocabulary of %d", c.Candidates, same.weights.h.Vocab)
			}
			a, b := newChat(t, whole), newChat(t, whole)
			var twins []Part
			for _, chat := range []*chat{newChat(t, part), newChat(t, part)} {
				twins = append(twins, Part{Seq: chat.seq})
			}
			for _, step := range [][2]int{{12, 3}, {1, 1}, {1, 1}, {4, 1}} {
				want := [][]float32{slices.Clone(a.step(ids[:step[0]]...)), b.step(ids[5 : 5+step[1]]...)}
				twins[0].IDs, twins[1].IDs = ids[:step[0]], ids[5:5+step[1]]
				for _, p := range twins {
					if err := part.Cache().Append(p.Seq, len(p.IDs)); err != nil {
						t.Fatal(err)
					}
				}
				got, err := part.Run(t.Context(), twins)
				if err != nil {
					t.Fatal(err)
				}
				for i, l := range got {
					order := make([]int32, len(want[i]))
					for id := range order {
						order[id] = int32(id)
					}
					slices.SortStableFunc(order, func(x, y int32) int { return cmp.Compare(want[i][y], want[i][x]) })
					if !slices.Equal(l.IDs, order[:7]) || l.Likeliest() != (Logits{Values: want[i]}).Likeliest() {
						t.Fatalf("%v: candidates %v, want %v", step, l.IDs, order[:7])
					}
					for k, id := range l.IDs {
						if l.Values[k] != want[i][id] {
							t.Errorf("%v: logit %v of token %d, want %v", step, l.Values[k], id, want[i][id])
						}
					}
				}
			}
		})
	}
}
