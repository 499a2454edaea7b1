package ops

import (
	"errors"

	"gorgonia.org/tensor"

	"github.com/gaze-ml/gaze/internal/attn"
)

// direct gathers the tensors of a call that runs at once.
type direct struct {
	op   string
	at   places
	errs []error
}

// need sets *t to a tensor that must be there.
func (d *direct) need(arg string, v *tensor.Dense, t *attn.Tensor) {
	var err error
	if *t, err = View(d.op, arg, v); err == nil {
		d.at.op = d.op
		err = d.at.see(arg, v, t)
	}
	d.check(err)
}

// check keeps an error.
func (d *direct) check(err error) {
	if err != nil {
		d.errs = append(d.errs, err)
	}
}

// may sets *t unless v is nil.
func (d *direct) may(arg string, v *tensor.Dense, t *attn.Tensor) {
	if v != nil {
		d.need(arg, v, t)
	}
}

// caches sets the call's K and V.
func caches[C any](d *direct, vs []*tensor.Dense, in []operand[C], c *C) {
	for i, v := range vs {
		var t attn.Tensor
		if d.need(in[i].name, v, &t); t.Valid() {
			d.check(in[i].set(c, t))
		}
	}
}

// run checks the call and gives it to the backend of the device where the tensors lie.
func (d *direct) run(c attn.Call) (err error) {
	defer recovered(d.op, &err)
	if len(d.errs) > 0 {
		return errors.Join(d.errs...)
	}
	if err := c.Infer(); err != nil {
		return err
	}
	be, err := d.at.backend(c)
	if err != nil {
		return err
	}
	return observed(c, be)
}
