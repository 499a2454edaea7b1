package ops

import (
	"errors"
	"fmt"
	"sync"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/gaze-ml/gaze/internal/attn"
)

// Planned is an op of this package as a Machine sees it: it describes its results before it runs, and makes calls that own
// no memory.
type Planned interface {
	gorgonia.Op
	// Plan checks operands, which may have no memory yet, and describes every result.
	Plan(in []attn.Tensor) ([]Result, error)
	// NewCall makes a call for repeated use by one goroutine at a time.
	NewCall() Call
}

// Result describes one output of an op. The node of the op names the first; a [Projection] names another.
type Result struct {
	attn.Tensor      // dtype and shape
	Alias       int  // the operand that is written in place and is the result, or -1
	Wanted      bool // false for an optional result that no node names
}

// Call is one call that can be made again and again. Neither Bind nor Run allocates when all is well.
type Call interface {
	// Bind sets operands and results and checks them; results that are aliases or not wanted are ignored.
	Bind(in, out []attn.Tensor) error
	// Supports tells why a backend can't run the call as it was bound last, to operands with or without memory: nil, or every reason.
	Supports(attn.Backend) []error
	Run(attn.Backend) error
}

// op is the gorgonia.Op behind the constructors: a prototype of the call with its scalars set, and the operands and results
// that tie nodes to the call's tensors.
type op[C any, P callOf[C]] struct {
	proto C
	in    []operand[C]
	out   []result[C]

	desc   []attn.Tensor // the operands' dtypes and shapes, as they were at building
	plan   []Result
	serial uint64 // makes the hash new in its graph

	mu   sync.Mutex // guards tape
	tape *tape
}

// callOf is a pointer to a call struct.
type callOf[C any] interface {
	*C
	attn.Call
}

// operand is one input of an op: FlashInfer's name for it and how its tensor enters the call.
type operand[C any] struct {
	name string
	set  func(c *C, t attn.Tensor) error
}

// field is an operand that is one field of the call.
func field[C any](name string, f func(*C) *attn.Tensor) operand[C] {
	return operand[C]{name, func(c *C, t attn.Tensor) error { *f(c) = t; return nil }}
}

// result is one output of an op.
type result[C any] struct {
	at       func(*C) *attn.Tensor  // where it stands in the call, unless it is an alias
	alias    int                    // the operand that it is, or -1
	describe func(c *C) attn.Tensor // an optional result's dtype and shape; nil: never optional
	wanted   bool
}

// fill makes c the prototype with these operands.
func (o *op[C, P]) fill(c *C, in []attn.Tensor) error {
	*c = o.proto
	if len(in) != len(o.in) {
		return attn.Errorf(ErrArgument, P(c).Op(), "operands", fmt.Sprint(len(o.in)), "%d", len(in))
	}
	var errs []error
	for i := range o.in {
		if err := o.in[i].set(c, in[i]); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// Plan implements Planned.
func (o *op[C, P]) Plan(in []attn.Tensor) ([]Result, error) {
	c := new(C)
	if err := o.fill(c, in); err != nil {
		return nil, err
	}
	if err := P(c).Infer(); err != nil {
		return nil, err
	}
	rs := make([]Result, len(o.out))
	for i, r := range o.out {
		rs[i] = Result{Alias: r.alias, Wanted: r.describe == nil || r.wanted}
		switch {
		case r.alias >= 0:
			rs[i].Tensor = in[r.alias]
		case r.describe != nil:
			rs[i].Tensor = r.describe(c)
		default:
			rs[i].Tensor = *r.at(c)
		}
	}
	return rs, nil
}

// NewCall implements Planned.
func (o *op[C, P]) NewCall() Call { return &call[C, P]{op: o} }

type call[C any, P callOf[C]] struct {
	op *op[C, P]
	c  C
}

func (b *call[C, P]) Bind(in, out []attn.Tensor) error {
	if err := b.op.fill(&b.c, in); err != nil {
		return err
	}
	for i := range b.op.out {
		if r := &b.op.out[i]; r.alias < 0 && (r.describe == nil || r.wanted) {
			*r.at(&b.c) = out[i]
		}
	}
	return P(&b.c).Infer()
}

func (b *call[C, P]) Supports(be attn.Backend) []error { return be.Supports(P(&b.c)) }

func (b *call[C, P]) Run(be attn.Backend) error { return observed(P(&b.c), be) }

// apply checks the nodes and puts the op into their graph.
func (o *op[C, P]) apply(nodes ...*gorgonia.Node) (*gorgonia.Node, error) {
	name := P(&o.proto).Op()
	g, err := graphOf(name, o.names(), nodes)
	if err != nil {
		return nil, err
	}
	o.desc = make([]attn.Tensor, len(nodes))
	var errs []error
	for i, n := range nodes {
		if o.desc[i], err = describeNode(name, o.in[i].name, n); err != nil {
			errs = append(errs, err)
		}
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	if o.plan, err = o.Plan(o.desc); err != nil {
		return nil, err
	}
	return addUnique(g, o, &o.serial, nodes)
}

func (o *op[C, P]) names() []string {
	s := make([]string, len(o.in))
	for i := range o.in {
		s[i] = o.in[i].name
	}
	return s
}

// want turns on result i, which a projection is about to name.
func (o *op[C, P]) want(i int) (Result, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.tape = nil
	o.out[i].wanted = true
	rs, err := o.Plan(o.desc)
	if err != nil {
		return Result{}, err
	}
	o.plan = rs
	return rs[i], nil
}

// tape is what plain Do keeps between runs: the call and the outputs that the op owns.
type tape struct {
	call    Call
	in, out []attn.Tensor
	vals    []*tensor.Dense // the results
	given   *header         // of the first result
	dev     Device          // where the outputs are; nil: the host
	made    bool            // they are
	bound   bound
}

// give is result i under the header at h.
func (t *tape) give(h **header, i int) *tensor.Dense {
	d := t.vals[i]
	return over(h, d, d.Shape(), d.Strides())
}
