package ops

import (
	"fmt"
	"hash"
	"sync"

	"github.com/chewxy/hm"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/gaze-ml/gaze/internal/attn"
)

// Reshape names the memory of x by another shape with as many elements, such as [T,H·D] by [T,H,D]: nothing is copied and
// nothing runs. x must be contiguous. It is safe where gorgonia.Reshape is not: an element-wise op of Gorgonia after that may
// overwrite x.
func Reshape(x *gorgonia.Node, shape ...int) (*gorgonia.Node, error) {
	const name = "reshape"
	nodes := []*gorgonia.Node{x}
	g, err := graphOf(name, []string{"x"}, nodes)
	if err != nil {
		return nil, err
	}
	in, err := describeNode(name, "x", x)
	if err != nil {
		return nil, err
	}
	r := &reshape{shape: append([]int(nil), shape...), desc: []attn.Tensor{in}}
	rs, err := r.Plan(r.desc)
	if err != nil {
		return nil, err
	}
	r.result = rs[0].Tensor
	return addUnique(g, r, &r.serial, nodes)
}

type reshape struct {
	shape  []int
	desc   []attn.Tensor
	result attn.Tensor // as it was at building
	serial uint64

	mu    sync.Mutex  // guards what follows
	x     attn.Tensor // the last Do's operand
	seen  seen        // and what of its header isn't there
	given *header     // nil: no Do yet
}

var (
	_ Planned       = (*reshape)(nil)
	_ gorgonia.SDOp = (*reshape)(nil)
)

// Plan implements Planned: the one result is operand 0 under another shape.
func (r *reshape) Plan(in []attn.Tensor) ([]Result, error) {
	if len(in) != 1 {
		return nil, attn.Errorf(ErrArgument, r.String(), "operands", "1", "%d", len(in))
	}
	x := in[0]
	for _, n := range r.shape {
		if n < 0 {
			return nil, attn.Errorf(ErrShape, r.String(), "shape", "sizes ≥ 0", "%v", r.shape)
		}
	}
	t := attn.Of(x.DType, r.shape...)
	if !t.Valid() || t.Len() != x.Len() {
		return nil, attn.Errorf(ErrShape, r.String(), "shape", fmt.Sprintf("%d elements in %d dimensions or less", x.Len(), attn.MaxRank), "%v for %v", r.shape, &x)
	}
	if !x.Packed() {
		return nil, attn.Errorf(ErrShape, r.String(), "x", "a contiguous tensor", "strides %v of %v", x.Stride[:x.Rank], &x)
	}
	t.Ptr = x.Ptr
	return []Result{{Tensor: t, Alias: 0, Wanted: true}}, nil
}

// NewCall is nil: there is nothing to run.
func (r *reshape) NewCall() Call { return nil }

func (r *reshape) Arity() int { return 1 }

func (r *reshape) Type() hm.Type { return fnType(r.desc, attn.Of(r.desc[0].DType, r.shape...)) }

func (r *reshape) InferShape(ds ...gorgonia.DimSizer) (tensor.Shape, error) {
	in, err := reshaped(r.String(), r.desc, ds)
	if err != nil {
		return nil, err
	}
	if _, err := r.Plan(in); err != nil {
		return nil, err
	}
	return tensor.Shape(r.shape).Clone(), nil
}

// Do returns a tensor over x's memory, the same as before unless somebody has changed that since.
func (r *reshape) Do(vals ...gorgonia.Value) (v gorgonia.Value, err error) {
	const name = "reshape"
	defer recovered(name, &err)
	if len(vals) != 1 {
		return nil, attn.Errorf(ErrArgument, name, "operands", "1", "%d", len(vals))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	d, ok := vals[0].(*tensor.Dense)
	if ok && d != nil && r.given != nil && r.seen.again(d, &r.x) {
		return over(&r.given, d, r.shape, r.result.Stride[:r.result.Rank]), nil
	}
	r.given = nil
	if r.x, err = View(name, "x", vals[0]); err != nil {
		return nil, err
	}
	if _, err := r.Plan([]attn.Tensor{r.x}); err != nil {
		return nil, err
	}
	if !ok {
		return nil, attn.Errorf(ErrArgument, name, "x", "a *tensor.Dense", "%T", vals[0])
	}
	if d.IsMaterializable() { // Reshape knows what to do with what it was before
		d = d.ShallowClone()
		return d, d.Reshape(r.shape...)
	}
	r.seen = see(d)
	return over(&r.given, d, r.shape, r.result.Stride[:r.result.Rank]), nil
}

func (r *reshape) ReturnsPtr() bool          { return true }
func (r *reshape) CallsExtern() bool         { return false }
func (r *reshape) OverwritesInput() int      { return -1 }
func (r *reshape) WriteHash(h hash.Hash)     { fmt.Fprintf(h, "gaze.reshape %v %d", r.shape, r.serial) }
func (r *reshape) Hashcode() uint32          { return hashcode(r) }
func (r *reshape) String() string            { return "reshape" }
func (r *reshape) DiffWRT(inputs int) []bool { return make([]bool, inputs) }
func (r *reshape) SymDiff(gorgonia.Nodes, *gorgonia.Node, *gorgonia.Node) (gorgonia.Nodes, error) {
	return nil, noGradient(r.String())
}
