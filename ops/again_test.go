package ops_test

import (
	"bytes"
	"errors"
	"testing"

	"gorgonia.org/gorgonia"

	"github.com/gaze-ml/gaze/graph"
	"github.com/gaze-ml/gaze/internal/fakedevice"
	"github.com/gaze-ml/gaze/ops"
)

// A Do sees whatever has changed since the last: contents, memory, strides, dtype, shape, the device, a device that was closed.
func TestDoAgain(t *testing.T) {
	m := newMaker(t)
	g := gorgonia.NewGraph()
	n, err := ops.SiLUMul(input(g, 0, f32, 4, 8), input(g, 1, f32, 4, 8))
	must(t, n, err)
	do := func(what string, gate, up *dense) *dense {
		t.Helper()
		v, err := n.Op().Do(gate, up)
		must(t, v, err)
		want := zeros(f32, 4, 8)
		if err := ops.Gate(gate.Materialize().(*dense), up, want); err != nil {
			t.Fatal(err)
		}
		if got := v.(*dense); !bytes.Equal(raw(got), raw(want)) {
			t.Errorf("%s: another result", what)
		}
		return v.(*dense)
	}
	a, b, c := m.random(f32, 4, 8), m.random(f32, 4, 8), m.random(f32, 4, 8)
	do("the first time", a, b)
	do("the same", a, b)
	a.Data().([]float32)[3] = 7
	do("new contents", a, b)
	do("other memory", c, b)
	wide := m.random(f32, 4, 16)
	view, err := wide.Slice(nil, ms{0, 8})
	must(t, view, err)
	do("rows apart", view.(*dense), b)
	do("a header of the same memory", c.ShallowClone(), b)
	_, err = n.Op().Do(c, m.random(f16, 4, 8))
	wantRefusal(t, "another dtype", err, "silu_mul", "up", ops.ErrDType)
	if err := c.Reshape(8, 4); err != nil {
		t.Fatal(err)
	}
	_, err = n.Op().Do(c, b)
	wantRefusal(t, "another shape", err, "silu_mul", "up", ops.ErrShape)
	do("after refusals", a, b)

	d, err := fakedevice.New("fake", 1<<20)
	if errors.Is(err, ops.ErrNoDevice) {
		t.Skip(err)
	}
	must(t, d, err)
	da, err := graph.Upload(d, a)
	must(t, da, err)
	for range 2 {
		v, err := n.Op().Do(da, da)
		must(t, v, err)
		if view, err := ops.View("test", "out", v); err != nil || !d.Owns(view.Ptr, view.Bytes()) {
			t.Errorf("a result that is not the device's (%v)", err)
		}
	}
	if err := graph.Release(d, da); err != nil {
		t.Fatal(err)
	}
	if _, err := n.Op().Do(da, da); !errors.Is(err, ops.ErrDevice) {
		t.Errorf("freed memory: %v, want ErrDevice", err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := n.Op().Do(da, da); !errors.Is(err, ops.ErrDevice) {
		t.Errorf("a closed device: %v, want ErrDevice", err)
	}
	do("back on the host", a, b)
}

// ms is a range of a dimension.
type ms struct{ start, end int }

func (s ms) Start() int { return s.start }
func (s ms) End() int   { return s.end }
func (s ms) Step() int  { return 1 }
