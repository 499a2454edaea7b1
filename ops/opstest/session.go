package opstest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/gaze-ml/gaze/internal/attn"
)

// session is one case being tried on a target.
type session struct {
	target      Target
	seed        [2]uint64
	rng         *rand.Rand
	fails       []string
	unsupported []string
	nmse        float64
}

// reseed starts the case's random numbers again.
func (s *session) reseed() { s.rng = rand.New(rand.NewPCG(s.seed[0], s.seed[1])) }

func (s *session) failf(format string, a ...any) {
	s.fails = append(s.fails, fmt.Sprintf(format, a...))
}

func (s *session) fail(err error) {
	if err != nil {
		s.fails = append(s.fails, err.Error())
	}
}

// instance is one call with its buffers and what is expected of it.
type instance struct {
	call     attn.Call
	operands []*operand
	checks   []func(*session) // after a call that should succeed
	refuse   *refusal         // the error wanted instead

	workspaceArg *attn.Tensor // where the call takes scratch, nil where it doesn't
}

// refusal is a typed error that a backend must give for bad values.
type refusal struct {
	kind    error
	args    []string // any of these names
	request int      // the request that the text must name, -1: none
}

// add makes an operand and registers it.
func (in *instance) add(arg string, bind *attn.Tensor, desc attn.Tensor) *operand {
	o := newOperand(arg, bind, desc)
	in.operands = append(in.operands, o)
	return o
}

// ints makes a packed int32 operand.
func (in *instance) ints(arg string, bind *attn.Tensor, v []int) *operand {
	o := in.add(arg, bind, attn.Of(attn.I32, len(v)))
	o.setInts(0, v...)
	return o
}

// scalar makes a one-element f32 operand.
func (in *instance) scalar(arg string, bind *attn.Tensor, v float64) *operand {
	o := in.add(arg, bind, attn.Of(attn.F32, 1))
	encodeRow(o.at(0, 4), attn.F32, []float64{v})
	return o
}

// output makes the operand of an output that Infer has described.
func (in *instance) output(arg string, bind *attn.Tensor) *operand {
	o := in.add(arg, bind, *bind)
	o.output = true
	return o
}

func (in *instance) operand(arg string) *operand {
	for _, o := range in.operands {
		if o.arg == arg {
			return o
		}
	}
	panic("opstest: no operand " + arg)
}

// run makes the call on the target and checks everything. It reports whether outputs may be looked at.
func (s *session) run(in *instance) bool {
	b, m := s.target.Backend, s.target.Memory
	if err := in.call.Infer(); err != nil {
		s.failf("Infer refuses the call: %v", err)
		return false
	}
	if reasons := b.Supports(in.call); len(reasons) > 0 {
		for _, r := range reasons {
			s.unsupported = append(s.unsupported, r.Error())
		}
		return false
	}
	if err := s.addWorkspace(in); err != nil {
		s.fail(err)
		return false
	}
	defer func() {
		for _, o := range in.operands {
			o.free(m)
		}
	}()
	for _, o := range in.operands {
		if err := o.upload(m); err != nil {
			s.unsupported = append(s.unsupported, fmt.Sprintf("memory for %s: %v", o.arg, err))
			return false
		}
	}
	err := in.call.Run(b)
	for _, o := range in.operands {
		if e := o.download(m); e != nil {
			s.failf("reading %s back: %v", o.arg, e)
			return false
		}
		s.fail(o.intact(in.refuse != nil))
	}
	if in.refuse != nil {
		s.fail(in.refuse.check(in.call.Op(), err))
		return false
	}
	if err != nil {
		s.failf("%s: %v", in.call.Op(), err)
		return false
	}
	for _, c := range in.checks {
		c(s)
	}
	return true
}

// addWorkspace gives the call the scratch that it asks for, full of NaN.
func (s *session) addWorkspace(in *instance) error {
	if in.workspaceArg == nil || in.workspaceArg.Valid() {
		return nil
	}
	n, err := s.target.Backend.WorkspaceSize(in.call)
	if err != nil {
		return fmt.Errorf("WorkspaceSize: %w", err)
	}
	if n > 0 {
		in.add("workspace", in.workspaceArg, attn.Of(attn.U8, n)).output = true
	}
	return nil
}

// check holds an error against what is wanted: the sentinel, the op, the argument, got and want, and the request.
func (r *refusal) check(op string, err error) error {
	if err == nil {
		return fmt.Errorf("%s: no error, want %v about %s", op, r.kind, strings.Join(r.args, " or "))
	}
	if !errors.Is(err, r.kind) {
		return fmt.Errorf("%s: error %q, want %v", op, err, r.kind)
	}
	for _, e := range typedErrors(err) {
		for _, a := range r.args {
			if e.Kind == r.kind && e.Arg == a {
				switch {
				case e.Op != op || e.Got == "" || e.Want == "":
					return fmt.Errorf("%s: error %q must name the op, what it got and what it wants", op, err)
				case r.request >= 0 && !strings.Contains(e.Error(), fmt.Sprintf("request %d", r.request)):
					return fmt.Errorf("%s: error %q doesn't name request %d", op, err, r.request)
				}
				return nil
			}
		}
	}
	return fmt.Errorf("%s: error %q, want one that names %s", op, err, strings.Join(r.args, " or "))
}

// typedErrors lists every *attn.Error in a tree of joined errors.
func typedErrors(err error) []*attn.Error {
	var out []*attn.Error
	switch e := err.(type) {
	case *attn.Error:
		out = append(out, e)
	case interface{ Unwrap() []error }:
		for _, x := range e.Unwrap() {
			out = append(out, typedErrors(x)...)
		}
	case interface{ Unwrap() error }:
		out = append(out, typedErrors(e.Unwrap())...)
	}
	return out
}
