package cudaops

import (
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/gaze-ml/gaze/cudaops/internal/driver"
	"github.com/gaze-ml/gaze/internal/attn"
)

// Sentinels for errors.Is, besides those of package ops.
var (
	// ErrClosed is the use of a Runtime after Close.
	ErrClosed = errors.New("runtime is closed")
	// ErrFailed is a call of the driver that failed for another reason than those with a sentinel of their own.
	ErrFailed = errors.New("CUDA call failed")
	// ErrBroken is a device on which a kernel has failed. All Runtimes on it must be closed before it can be opened anew.
	ErrBroken = errors.New("device is broken until all its Runtimes are closed")
)

// CallError is a call of the driver that failed. It unwraps to its Kind and to the driver's error.
type CallError struct {
	Kind    error    // ErrFailed, ErrBroken, ops.ErrNoDevice or ops.ErrOutOfMemory
	Op      string   // what was being done: "decode", "alloc 4096 bytes"
	Launch  string   // for a launch: symbol, grid, block, shared memory, shapes
	Suspect []string // where a kernel has failed: the launches since the last wait, any of which may be at fault, oldest first
	Err     error    // the driver's
}

// Error says all of it in one line.
func (e *CallError) Error() string {
	s := fmt.Sprintf("gaze: %s: %v: %v", e.Op, e.Kind, e.Err)
	if e.Launch != "" {
		s += "; launching " + e.Launch
	}
	if len(e.Suspect) > 0 {
		s += "; an earlier launch may be at fault: " + strings.Join(e.Suspect, ", ")
	}
	return s
}

// Unwrap gives the kind and the cause.
func (e *CallError) Unwrap() []error { return []error{e.Kind, e.Err} }

// translate gives an error of package driver its kind. Other errors stay as they are.
func translate(op string, err error) error {
	if err == nil {
		return nil
	}
	var d *driver.Error
	if !errors.As(err, &d) {
		return err
	}
	e := &CallError{Op: op, Err: d, Kind: ErrFailed}
	switch {
	case d.Absent():
		e.Kind = attn.ErrNoDevice
	case d.OutOfMemory():
		e.Kind = attn.ErrOutOfMemory
	case d.Sticky():
		e.Kind = ErrBroken
	}
	return e
}

// shapes names the operands of a call that are there: "Query bfloat16[2 8 128], Key bfloat16[64 2 16 128]".
func shapes(c attn.Call) string {
	var s []string
	v := reflect.ValueOf(c).Elem()
	for i := range v.NumField() {
		if t, ok := v.Field(i).Interface().(attn.Tensor); ok && t.Valid() {
			s = append(s, v.Type().Field(i).Name+" "+t.String())
		}
	}
	return strings.Join(s, ", ")
}
