package ops

import (
	"testing"

	"gorgonia.org/tensor"
)

// A view's header names its parent, which may be gone: it is made anew each time.
func TestHeaderOfView(t *testing.T) {
	whole := tensor.New(tensor.Of(tensor.Float32), tensor.WithShape(4, 8))
	view, err := whole.Slice(tensor.S(0, 2))
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range []*tensor.Dense{whole, view.(*tensor.Dense)} {
		var h *header
		a := over(&h, d, d.Shape(), d.Strides())
		b := over(&h, d, d.Shape(), d.Strides())
		if (a == b) == d.IsView() || a == d || !a.Shape().Eq(d.Shape()) || a.Uintptr() != d.Uintptr() || a.IsView() != d.IsView() {
			t.Errorf("view %v: %p and %p, shape %v", d.IsView(), a, b, a.Shape())
		}
	}
}
