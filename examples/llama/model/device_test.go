package model

import (
	"errors"
	"testing"

	"gorgonia.org/tensor"

	"github.com/gaze-ml/gaze/examples/llama/internal/tinymodel"
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
