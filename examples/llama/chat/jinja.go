package chat

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/nikolalohinski/gonja/v2/builtins"
	structures "github.com/nikolalohinski/gonja/v2/builtins/control_structures"
	"github.com/nikolalohinski/gonja/v2/exec"
	"github.com/nikolalohinski/gonja/v2/nodes"
	"github.com/nikolalohinski/gonja/v2/parser"
)

// Where gonja and Jinja2 still differ, after what this file mends: x[-1] is undefined for a string of one character and
// for a list of one element that was written or concatenated in the template; a power of integers is a float; None
// prints as nothing.

// state is what one rendering leaves behind: the fault that gonja would bury in text.
type state struct{ fault error }

func (s *state) environment() *exec.Environment {
	control := map[string]parser.ControlStructureParser{"generation": generation, "macro": s.macro}
	for _, name := range []string{"break", "call", "continue", "do", "filter", "for", "if", "raw", "set", "with"} {
		control[name], _ = builtins.ControlStructures.Get(name)
	}
	methods := builtins.Methods
	methods.Str, methods.Dict = stringMethods(), dictMethods()
	return &exec.Environment{
		Context:           s.globals(),
		Filters:           s.filters(),
		Tests:             builtins.Tests,
		ControlStructures: exec.NewControlStructureSet(control),
		Methods:           methods,
	}
}

func (s *state) globals() *exec.Context {
	globals := exec.NewContext(map[string]any{"range": s.integers, "raise_exception": s.raise, "strftime_now": strftimeNow})
	for _, name := range []string{"cycler", "dict", "joiner", "namespace"} {
		value, _ := builtins.GlobalFunctions.Get(name)
		globals.Set(name, value)
	}
	return globals
}

// integers is Python's range([start,] stop[, step]), as a list.
func (s *state) integers(arguments *exec.VarArgs) (any, error) {
	var n []int
	for _, a := range arguments.Args {
		if !a.IsInteger() {
			return nil, fmt.Errorf("range: got %s, want integers", a)
		}
		n = append(n, a.Integer())
	}
	switch len(n) {
	case 1:
		n = []int{0, n[0], 1}
	case 2:
		n = append(n, 1)
	case 3:
	default:
		return nil, fmt.Errorf("range: got %d arguments, want 1 to 3", len(n))
	}
	l := list{}
	for i := n[0]; n[2] > 0 && i < n[1] || n[2] < 0 && i > n[1]; i += n[2] {
		if len(l) == maxRange {
			s.fault = &Error{ErrLimit, fmt.Sprintf("got range(%d, %d, %d), want at most %d integers", n[0], n[1], n[2], maxRange)}
			return nil, s.fault
		}
		l = append(l, i)
	}
	return l, nil
}

// filters are gonja's, with our tojson, and with bounds for those that make as much as a number says.
func (s *state) filters() *exec.FilterSet {
	set := exec.NewFilterSet(map[string]exec.FilterFunction{}).Update(builtins.Filters)
	own := map[string]exec.FilterFunction{"tojson": toJSON}
	for _, name := range []string{"batch", "center", "indent", "slice"} {
		if filter, ok := builtins.Filters.Get(name); ok {
			own[name] = s.sized(name, filter)
		}
	}
	for name, filter := range own {
		if err := set.Replace(name, filter); err != nil {
			panic(err) // gonja has lost a filter; parse recovers
		}
	}
	return set
}

// sized is a filter that takes no number above maxRange.
func (s *state) sized(name string, filter exec.FilterFunction) exec.FilterFunction {
	return func(e *exec.Evaluator, in *exec.Value, arguments *exec.VarArgs) *exec.Value {
		for _, a := range slices.Concat(arguments.Args, slices.Collect(maps.Values(arguments.KwArgs))) {
			if a.IsInteger() && a.Integer() > maxRange {
				s.fault = &Error{ErrLimit, fmt.Sprintf("got %s of %d, want at most %d", name, a.Integer(), maxRange)}
				return exec.AsValue(s.fault)
			}
		}
		return filter(e, in, arguments)
	}
}

// raise is the templates' raise_exception.
func (s *state) raise(arguments *exec.VarArgs) (string, error) {
	s.fault = &Error{ErrRaised, arguments.First().String()}
	return "", s.fault
}

// strftimeNow formats today's date with the C directives that templates use.
func strftimeNow(format string) string {
	now := time.Now()
	return strings.NewReplacer("%%", "%", "%Y", now.Format("2006"), "%m", now.Format("01"), "%d", now.Format("02"),
		"%B", now.Format("January"), "%b", now.Format("Jan"), "%A", now.Format("Monday"), "%a", now.Format("Mon"),
		"%H", now.Format("15"), "%M", now.Format("04"), "%S", now.Format("05")).Replace(format)
}

// list is a list whose last element is [-1] also when it is the only one, which gonja's own lists get wrong. A slice of it
// is a list too.
type list []any

// GetItem returns the element at an index, from the end if it is negative.
func (l list) GetItem(key any) (*exec.Value, bool) {
	i, ok := key.(int)
	if ok && i < 0 {
		i += len(l)
	}
	if !ok || i < 0 || i >= len(l) {
		return exec.AsValue(nil), false
	}
	return exec.ToValue(l[i]), true
}

// asList makes a list of a slice of gonja's, and leaves other values.
func asList(value any) any {
	slice := reflect.ValueOf(value)
	if slice.Kind() != reflect.Slice {
		return value
	}
	l := list{}
	for i := range slice.Len() {
		l = append(l, slice.Index(i).Interface())
	}
	return l
}

// stringMethods are gonja's, with lists that can be indexed from the end, and a split that counts as Python's.
func stringMethods() *exec.MethodSet[string] {
	methods := map[string]exec.Method[string]{"split": split}
	for _, name := range strings.Fields(`capitalize capwords casefold center count encode endswith expandtabs find format
		isalnum isalpha isascii isdecimal isdigit islower isnumeric isprintable isspace istitle isupper join ljust lower
		lstrip partition removeprefix removesuffix replace rfind rjust rpartition rsplit rstrip splitlines startswith
		strip swapcase title upper zfill`) {
		if method, ok := builtins.Methods.Str.Get(name); ok {
			methods[name] = func(self string, value *exec.Value, arguments *exec.VarArgs) (any, error) {
				result, err := method(self, value, arguments)
				return asList(result), err
			}
		}
	}
	return exec.NewMethodSet(methods)
}

// split is Python's str.split(sep=None, maxsplit=-1).
func split(self string, _ *exec.Value, arguments *exec.VarArgs) (any, error) {
	sep, most := arguments.GetKeywordArgument("sep", nil), arguments.GetKeywordArgument("maxsplit", -1)
	if len(arguments.Args) > 0 {
		sep = arguments.Args[0]
	}
	if len(arguments.Args) > 1 {
		most = arguments.Args[1]
	}
	n := most.Integer()
	if !sep.IsNil() {
		if sep.String() == "" {
			return nil, errors.New("split: empty separator")
		}
		if n < 0 {
			n = -2
		}
		return asList(strings.SplitN(self, sep.String(), n+1)), nil
	}
	l := list{}
	for self = strings.TrimSpace(self); self != ""; n-- {
		end := strings.IndexFunc(self, unicode.IsSpace)
		if n == 0 || end < 0 {
			l = append(l, self)
			break
		}
		l = append(l, self[:end])
		self = strings.TrimSpace(self[end:])
	}
	return l, nil
}

// dictMethods are gonja's for maps, with the keys in their own order where a dict has one.
func dictMethods() *exec.MethodSet[map[string]any] {
	methods := map[string]exec.Method[map[string]any]{}
	for name, part := range map[string]func(*exec.Pair) any{
		"keys":   func(p *exec.Pair) any { return p.Key },
		"values": func(p *exec.Pair) any { return p.Value },
		"items":  func(p *exec.Pair) any { return list{p.Key, p.Value} },
		"get":    nil, "pop": nil, "update": nil, "copy": nil, "setdefault": nil,
	} {
		method, ok := builtins.Methods.Dict.Get(name)
		if !ok {
			continue
		}
		methods[name] = func(self map[string]any, value *exec.Value, arguments *exec.VarArgs) (any, error) {
			dict, ordered := value.Interface().(*exec.Dict)
			if !ordered || part == nil {
				result, err := method(self, value, arguments)
				return asList(result), err
			}
			l := list{}
			for _, pair := range dict.Pairs {
				l = append(l, part(pair))
			}
			return l, nil
		}
	}
	return exec.NewMethodSet(methods)
}

// macro parses {% macro %}, and puts an end to its recursion, which would otherwise be that of the stack.
func (s *state) macro(p, args *parser.Parser) (nodes.ControlStructure, error) {
	parse, _ := builtins.ControlStructures.Get("macro")
	parsed, err := parse(p, args)
	if err != nil {
		return nil, err
	}
	macro, ok := parsed.(*structures.MacroControlStructure)
	if !ok {
		return nil, fmt.Errorf("macro: got a %T of the template engine", parsed)
	}
	return &bounded{macro, s}, nil
}

type bounded struct {
	*structures.MacroControlStructure
	state *state
}

func (b *bounded) Execute(r *exec.Renderer, tag *nodes.ControlStructureBlock) error {
	if err := b.MacroControlStructure.Execute(r, tag); err != nil {
		return err
	}
	value, _ := r.Environment.Context.Get(b.Name)
	macro, ok := value.(exec.Macro)
	if !ok {
		return fmt.Errorf("macro %s: got a %T of the template engine", b.Name, value)
	}
	calls := 0
	r.Environment.Context.Set(b.Name, exec.Macro(func(arguments *exec.VarArgs) *exec.Value {
		if calls >= maxCalls {
			b.state.fault = &Error{ErrLimit, fmt.Sprintf("got macro %s calling itself, want at most %d calls", b.Name, maxCalls)}
			return exec.AsValue(b.state.fault)
		}
		calls++
		defer func() { calls-- }()
		return macro(arguments)
	}))
	return nil
}

// generation parses {% generation %}…{% endgeneration %}, which marks the assistant's words for training and here is its
// body.
func generation(p, args *parser.Parser) (nodes.ControlStructure, error) {
	body, end, err := p.WrapUntil("endgeneration")
	if err != nil {
		return nil, err
	}
	if !args.End() || !end.End() {
		return nil, errors.New("generation takes no arguments")
	}
	return &marked{body}, nil
}

type marked struct{ *nodes.Wrapper }

func (m *marked) Execute(r *exec.Renderer, _ *nodes.ControlStructureBlock) error {
	return r.ExecuteWrapper(m.Wrapper)
}
