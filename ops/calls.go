package ops

import (
	"context"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"sync/atomic"
	"unicode"

	"gorgonia.org/tensor"

	"github.com/gaze-ml/gaze/internal/attn"
)

// CallInfo is what a call is about to run on.
type CallInfo struct {
	Op      string // "decode"
	Backend string // "cpu"
	Args    []CallArg
}

// CallArg is one operand or scalar of a call. Absent operands and scalars of value zero, which stand for "not given", are left out.
type CallArg struct {
	Name    string       // "block_tables"
	DType   tensor.Dtype // of a tensor; the zero Dtype for a scalar
	Shape   []int        // [] for a tensor of one element without dimensions
	Strides []int        // in elements; nil where the elements lie packed
	Values  []int64      // the first elements, 16 at most, of a host tensor of integers: lengths, positions, tables, ids
	Scalar  any          // nil for a tensor
}

// maxValues bounds what of a tensor is read.
const maxValues = 16

// hook is what sees calls; nil: nobody.
var hook atomic.Pointer[func(attn.Call, attn.Backend)]

// SetCallHook makes f see every call of an op of gaze before it runs: direct calls, and those of graphs under any VM, whichever
// goroutine they come from. Operands have passed the checks that need no values. nil turns it off, as it is at first; then it costs
// one atomic load a call and allocates nothing. f must not change what it is given and must not run ops itself.
func SetCallHook(f func(CallInfo)) {
	if f == nil {
		hook.Store(nil)
		return
	}
	g := func(c attn.Call, be attn.Backend) { f(describeCall(c, be)) }
	hook.Store(&g)
}

// LogCalls logs every call before it runs, as [SetCallHook] sees it, at [slog.LevelDebug]: a call that brings the process down is
// the last one of the log. nil turns it off.
func LogCalls(l *slog.Logger) {
	if l == nil {
		hook.Store(nil)
		return
	}
	g := func(c attn.Call, be attn.Backend) {
		if ctx := context.Background(); l.Enabled(ctx, slog.LevelDebug) {
			info := describeCall(c, be)
			attrs := []slog.Attr{slog.String("backend", info.Backend)}
			for _, a := range info.Args {
				attrs = append(attrs, slog.String(a.Name, a.text()))
			}
			l.LogAttrs(ctx, slog.LevelDebug, info.Op, attrs...)
		}
	}
	hook.Store(&g)
}

// observed runs a call on a backend, after the hook has seen it.
func observed(c attn.Call, be attn.Backend) error {
	if h := hook.Load(); h != nil {
		(*h)(c, be)
	}
	return c.Run(be)
}

// String is one line: "decode on cpu: query float32[1 9 64], seq_lens int32[1] {42}, bmm1_scale 0.125".
func (c CallInfo) String() string {
	args := make([]string, len(c.Args))
	for i, a := range c.Args {
		args[i] = a.Name + " " + a.text()
	}
	return fmt.Sprintf("%s on %s: %s", c.Op, c.Backend, strings.Join(args, ", "))
}

func (a CallArg) text() string {
	if a.Scalar != nil {
		return fmt.Sprint(a.Scalar)
	}
	t := attn.Of(DTypeOf(a.DType), a.Shape...)
	s := t.String()
	if a.Strides != nil {
		s += fmt.Sprintf(" strides %v", a.Strides)
	}
	if a.Values != nil {
		values := strings.Trim(fmt.Sprint(a.Values), "[]")
		if t.Len() > len(a.Values) {
			values += " …"
		}
		s += " {" + values + "}"
	}
	return s
}

// describeCall reads the fields of a call struct, so that none can be forgotten.
func describeCall(c attn.Call, be attn.Backend) CallInfo {
	info := CallInfo{Op: c.Op(), Backend: be.Name()}
	info.add(reflect.ValueOf(c).Elem())
	return info
}

// add adds the fields of a struct, and those of structs embedded in it.
func (c *CallInfo) add(v reflect.Value) {
	for i := range v.NumField() {
		f := v.Field(i)
		switch {
		case !f.CanInterface():
			continue
		case v.Type().Field(i).Anonymous:
			c.add(f)
			continue
		}
		name := snake(v.Type().Field(i).Name)
		switch x := f.Interface().(type) {
		case attn.Tensor:
			if x.Valid() {
				c.Args = append(c.Args, describeArg(name, &x, c.Backend))
			}
		default:
			if !f.IsZero() {
				c.Args = append(c.Args, CallArg{Name: name, Scalar: x})
			}
		}
	}
}

// describeArg describes a tensor, and reads small integers where they are in the host's memory.
func describeArg(name string, t *attn.Tensor, backend string) CallArg {
	a := CallArg{Name: name, DType: Dtype(t.DType), Shape: append([]int{}, t.Shape[:t.Rank]...)}
	if !t.Packed() {
		a.Strides = append([]int{}, t.Stride[:t.Rank]...)
	}
	at, ok := integers[t.DType]
	if !ok || backend != "cpu" || t.Ptr == nil {
		return a
	}
	for i := range min(t.Len(), maxValues) {
		offset, rest := 0, i
		for d := t.Rank - 1; d >= 0; d-- {
			offset += rest % t.Shape[d] * t.Stride[d]
			rest /= t.Shape[d]
		}
		a.Values = append(a.Values, at(t, offset))
	}
	return a
}

// integers read an element.
var integers = map[attn.DType]func(t *attn.Tensor, offset int) int64{
	attn.I32: func(t *attn.Tensor, o int) int64 { return int64(*(*int32)(t.At(o))) },
	attn.U32: func(t *attn.Tensor, o int) int64 { return int64(*(*uint32)(t.At(o))) },
	attn.I64: func(t *attn.Tensor, o int) int64 { return *(*int64)(t.At(o)) },
}

// snake spells the name of a field as FlashInfer spells its arguments: BlockTables is block_tables, QLenPerReq q_len_per_req, OutDType
// out_dtype.
func snake(field string) string {
	var s strings.Builder
	r := []rune(strings.ReplaceAll(field, "DType", "Dtype"))
	for i, c := range r {
		if i > 0 && unicode.IsUpper(c) {
			next := i+1 < len(r) && unicode.IsLower(r[i+1]) && string(r[i+1:]) != "s" // a new word, but not the plural of initials
			if !unicode.IsUpper(r[i-1]) || next {
				s.WriteByte('_')
			}
		}
		s.WriteRune(unicode.ToLower(c))
	}
	return s.String()
}
