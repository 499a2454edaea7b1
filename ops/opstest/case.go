package opstest

import (
	"fmt"
	"hash/fnv"
	"math"
	"runtime/debug"
	"slices"
	"strings"
	"time"
)

// List says what a case is for.
type List string

// The lists.
const (
	Correctness List = "correctness" // ordinary use: values over sizes, dtypes, features
	Corner      List = "corner"      // where kernels go wrong: edges, poison, strides, bad values
	Performance List = "performance" // sizes that Bench times
)

// Case is one thing to try.
type Case struct {
	Name string // op/what, with key=value parts
	Why  string // the fault that it would show
	Op   string
	List List

	body body
}

// body is a case's data; check makes the inputs, runs the calls and compares.
type body interface{ check(*session) }

// Status is how a case ended.
type Status string

// The statuses.
const (
	Pass        Status = "pass"
	Fail        Status = "fail"
	Unsupported Status = "unsupported" // the backend's Supports says so
)

// Result is what came of one case.
type Result struct {
	Case    Case
	Status  Status
	Reasons []string // what failed, or why it is unsupported
	NMSE    float64  // the largest of the case's outputs
	Elapsed time.Duration
}

// String is one line.
func (r Result) String() string {
	s := fmt.Sprintf("%-11s %s", r.Status, r.Case.Name)
	if len(r.Reasons) > 0 {
		s += ": " + strings.Join(r.Reasons, "; ")
	}
	return s
}

// Filter chooses cases; its zero value is all but Performance, with a sample of the grids.
type Filter struct {
	Ops   []string // empty: every op
	Lists []List   // empty: Correctness and Corner
	Name  string   // a part of the name
	Grid  int      // points drawn of a large grid, small ones give less; 0: DefaultGrid, -1: none, AllPoints: tens of thousands
	Seed  uint64   // draws the inputs and the sample of the grids; 0: DefaultSeed
}

// Defaults and extremes of a Filter.
const (
	DefaultSeed = 1
	DefaultGrid = 80 // about 200 cases in all
	AllPoints   = math.MaxInt32
)

func (f *Filter) seed() uint64 {
	if f.Seed == 0 {
		return DefaultSeed
	}
	return f.Seed
}

func (f *Filter) has(c *Case) bool {
	lists := f.Lists
	if len(lists) == 0 {
		lists = []List{Correctness, Corner}
	}
	return slices.Contains(lists, c.List) && (len(f.Ops) == 0 || slices.Contains(f.Ops, c.Op)) &&
		strings.Contains(c.Name, f.Name)
}

// Cases lists what a filter chooses, in a fixed order.
func Cases(f Filter) []Case {
	var out []Case
	for _, list := range [][]Case{
		decodeCases(), decodeCornerCases(), decodeDTypeCases(), decodeErrorCases(), nvfp4Cases(), addressCases(),
		prefillCases(), prefillCornerCases(), prefillErrorCases(), appendCases(), layerCases(), linearCases(), mixedCases(),
		goldenCases(), gridCases(f.seed(), f.Grid), performanceCases(),
	} {
		for _, c := range list {
			if f.has(&c) {
				out = append(out, c)
			}
		}
	}
	return out
}

// Check runs the chosen cases.
func Check(target Target, f Filter) []Result {
	cases := Cases(f)
	out := make([]Result, len(cases))
	for i, c := range cases {
		out[i] = c.Check(target, f.seed())
	}
	return out
}

// Check runs one case, with inputs drawn from the seed and the case's name.
func (c Case) Check(target Target, seed uint64) (r Result) {
	if target.Memory == nil {
		target.Memory = &HostMemory{}
	}
	h := fnv.New64a()
	h.Write([]byte(c.Name))
	s := &session{target: target, seed: [2]uint64{seed, h.Sum64()}}
	s.reseed()
	start := time.Now()
	defer func() {
		if p := recover(); p != nil {
			s.failf("panic: %v\n%s", p, debug.Stack())
		}
		r = Result{Case: c, Status: Pass, NMSE: s.nmse, Elapsed: time.Since(start)}
		switch {
		case len(s.fails) > 0:
			r.Status, r.Reasons = Fail, s.fails
		case len(s.unsupported) > 0:
			r.Status, r.Reasons = Unsupported, s.unsupported
		}
	}()
	c.body.check(s)
	return r
}
