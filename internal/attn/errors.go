package attn

import (
	"errors"
	"fmt"
)

// Sentinels for errors.Is: what kind of thing was wrong.
var (
	ErrShape       = errors.New("bad shape")
	ErrDType       = errors.New("bad dtype")
	ErrArgument    = errors.New("bad argument")
	ErrDevice      = errors.New("wrong device")
	ErrUnsupported = errors.New("unsupported")
	ErrNoDevice    = errors.New("no such device")
	ErrCacheFull   = errors.New("cache full")
	ErrOutOfMemory = errors.New("out of memory")
)

// Error is the one error type of gaze: which op refused which argument, what it got and what it wants. It unwraps to its Kind.
type Error struct {
	Kind error  // one of the sentinels
	Op   string // "decode", "prefill", …
	Arg  string // FlashInfer's name of the argument, "block_tables"
	Got  string
	Want string
}

func (e *Error) Error() string {
	s := "gaze: " + e.Op
	if e.Arg != "" {
		s += ": " + e.Arg
	}
	return fmt.Sprintf("%s: %v: got %s, want %s", s, e.Kind, e.Got, e.Want)
}

// Unwrap gives the sentinel.
func (e *Error) Unwrap() error { return e.Kind }

// Errorf makes an Error; got is formatted, want is the last argument's text.
func Errorf(kind error, op, arg, want, got string, a ...any) *Error {
	return &Error{Kind: kind, Op: op, Arg: arg, Got: fmt.Sprintf(got, a...), Want: want}
}

// Panicked is the error of an op in which v was a panic, with its stack.
func Panicked(op string, v any, stack []byte) *Error {
	return Errorf(ErrArgument, op, "", "operands that it can run on", "a panic: %v\n%s", v, stack)
}

// checker gathers every reason why a call is refused. Its methods allocate only when something is wrong.
type checker struct {
	op   string
	errs []error
}

func (c *checker) add(kind error, arg, want, got string, a ...any) {
	c.errs = append(c.errs, Errorf(kind, c.op, arg, want, got, a...))
}

func (c *checker) ok() bool { return len(c.errs) == 0 }

func (c *checker) err() error {
	if len(c.errs) == 1 {
		return c.errs[0]
	}
	return errors.Join(c.errs...)
}
