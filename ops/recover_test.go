package ops

import (
	"errors"
	"strings"
	"testing"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/gaze-ml/gaze/internal/attn"
)

// A panic inside an op is an error of its Do, and so of the TapeMachine, whose goroutine would end the process. The next run
// works.
func TestPanicIsAnError(t *testing.T) {
	type C = attn.SiLUMulCall
	g := gorgonia.NewGraph()
	x := gorgonia.NewMatrix(g, tensor.Float32, gorgonia.WithShape(2, 8), gorgonia.WithName("x"))
	bad := true
	var b builder[C, *C]
	b.need(x, operand[C]{"gate", func(c *C, t attn.Tensor) error {
		if c.Gate = t; bad && t.Ptr != nil { // not while the graph is built
			panic("ouch")
		}
		return nil
	}})
	b.need(x, field("up", func(c *C) *attn.Tensor { return &c.Up }))
	b.output("out", nil, func(c *C) *attn.Tensor { return &c.Out })
	y, err := b.build()
	if err != nil {
		t.Fatal(err)
	}
	if err := gorgonia.Let(x, tensor.New(tensor.Of(tensor.Float32), tensor.WithShape(2, 8))); err != nil {
		t.Fatal(err)
	}
	vm := gorgonia.NewTapeMachine(g)
	defer vm.Close()
	for range 2 {
		if err = vm.RunAll(); err == nil || !strings.Contains(err.Error(), "silu_mul") || !strings.Contains(err.Error(), "ouch") {
			t.Errorf("%v, want the op's name and the panic", err)
		}
		vm.Reset()
	}
	_, err = y.Op().Do(x.Value(), x.Value())
	var e *Error
	if !errors.Is(err, ErrArgument) || !errors.As(err, &e) || e.Op != "silu_mul" {
		t.Errorf("%v, want an *Error of silu_mul", err)
	}
	bad = false
	if err := vm.RunAll(); err != nil {
		t.Errorf("the next run: %v", err)
	}
}
