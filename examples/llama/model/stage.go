package model

import (
	"fmt"
	"slices"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/gaze-ml/gaze/graph"
	"github.com/gaze-ml/gaze/ops"
)

// shape is the size of a graph.
type shape struct {
	rows     int  // tokens
	requests int  // sequences
	packed   bool // several tokens of each; else one, and as many rows as requests
}

// Rows of the graphs for prompts, beside the largest: of one prompt's pieces, and of pieces of several. Rows without a token cost as
// much as others, and every graph some memory and time to make, so there are a few.
var (
	chunks = []int{256, 64, 16}
	packs  = []int{256, 128, 64, 32, 16}
)

// prompts are the rows of the graphs for pieces of so many prompts, the largest first.
func (c Config) prompts(requests int) []int {
	sizes, smaller := []int{c.Chunk}, chunks
	if requests > 1 {
		smaller = packs
	}
	for _, n := range smaller {
		if n < c.Chunk {
			sizes = append(sizes, n)
		}
	}
	return sizes
}

// piece is the largest graph's rows of which n tokens fill more than three quarters, else the smallest's, but no more than n.
func (c Config) piece(n int) int {
	sizes := c.prompts(1)
	for _, rows := range sizes {
		if 4*n > 3*rows {
			return min(n, rows)
		}
	}
	return min(n, sizes[len(sizes)-1])
}

// singles are the requests of the graphs for single tokens: powers of two and what is halfway between them.
func (c Config) singles() (sizes []int) {
	for n := 1; n < c.Requests; n *= 2 {
		sizes = append(sizes, n)
		if half := n + n/2; n > 1 && half < c.Requests {
			sizes = append(sizes, half)
		}
	}
	return append(sizes, c.Requests)
}

// bucket is the smallest number of requests with a graph that holds n.
func (c Config) bucket(n int) int {
	sizes := c.singles()
	i, _ := slices.BinarySearch(sizes, n)
	return sizes[i]
}

// fit chooses the graph for a step.
func (c Config) fit(parts []Part) (shape, error) {
	rows, packed := 0, false
	for i, p := range parts {
		if len(p.IDs) == 0 {
			return shape{}, &ops.Error{Kind: ops.ErrArgument, Op: "llama", Arg: fmt.Sprintf("parts[%d]", i), Got: "no tokens", Want: "1 or more"}
		}
		rows += len(p.IDs)
		packed = packed || len(p.IDs) > 1
	}
	refuse := func(arg string, got, most int) error {
		return &ops.Error{Kind: ops.ErrArgument, Op: "llama", Arg: arg, Got: fmt.Sprint(got), Want: fmt.Sprintf("1 to %d", most)}
	}
	if n := len(parts); n < 1 || n > c.Requests {
		return shape{}, refuse("parts", n, c.Requests)
	}
	if !packed {
		n := c.bucket(len(parts))
		return shape{rows: n, requests: n}, nil
	}
	if rows > c.Chunk {
		return shape{}, refuse("tokens", rows, c.Chunk)
	}
	requests := c.Requests
	if len(parts) == 1 {
		requests = 1
	}
	size := c.Chunk
	for _, n := range c.prompts(requests) {
		if n < rows {
			break
		}
		size = n
	}
	return shape{rows: size, requests: requests, packed: true}, nil
}

// stage is one graph and what it works on.
type stage struct {
	batch   *graph.Batch
	ids     []int32 // one a row, the memory of the graph's input
	reqs    []graph.Request
	machine *graph.Machine
	capture *graph.Capture // on a device: what every step replays
	logits  *gorgonia.Node // [requests, vocab], or of the candidates
	chosen  *gorgonia.Node // [requests, candidates] their ids; nil: every token's
	out     []Logits
}

// stage is the graph of a shape.
func (m *Model) stage(sh shape) (*stage, error) {
	if s := m.stages[sh]; s != nil {
		return s, nil
	}
	s := &stage{ids: make([]int32, sh.rows)}
	var err error
	if sh.packed {
		s.batch, err = m.cache.PrefillBatch(sh.requests, sh.rows, m.config.Context)
	} else {
		s.batch, err = m.cache.DecodeBatch(sh.requests, m.config.Context)
	}
	if err != nil {
		return nil, err
	}
	g := gorgonia.NewGraph()
	cfg, w, err := m.weights.nodes(g)
	if err != nil {
		return nil, err
	}
	kvs, err := m.cache.Nodes(g)
	if err != nil {
		return nil, err
	}
	step, err := s.batch.Nodes(g)
	if err != nil {
		return nil, err
	}
	ids, err := graph.Input(g, "ids", tensor.New(tensor.WithShape(sh.rows), tensor.WithBacking(s.ids)))
	if err != nil {
		return nil, err
	}
	if s.logits, err = graph.Llama(ids, cfg, w, kvs, step); err != nil {
		return nil, err
	}
	if n := m.config.candidates(s.logits.Shape()[1]); n > 0 {
		if s.logits, s.chosen, err = ops.TopK(s.logits, n); err != nil {
			return nil, err
		}
	}
	if s.machine, err = graph.NewMachine(g, graph.On(m.device)); err != nil {
		return nil, err
	}
	m.stages[sh] = s
	if m.cpu == nil {
		s.capture, err = s.machine.Capture() // of a step without requests
	}
	return s, err
}

// mostCandidates is how many the kernels of devices look for.
const mostCandidates = 1024

// candidates is the number of a row's logits that Run gives of a vocabulary; 0: all.
func (c Config) candidates(vocab int) int {
	if c.Candidates > mostCandidates || c.Candidates >= vocab {
		return 0
	}
	return c.Candidates
}

func (s *stage) run(parts []Part) ([]Logits, error) {
	s.reqs = s.reqs[:0]
	row := 0
	for _, p := range parts {
		s.reqs = append(s.reqs, graph.Request{Seq: p.Seq, Tokens: len(p.IDs)})
		row += copy(s.ids[row:], p.IDs)
	}
	clear(s.ids[row:])
	if err := s.batch.Set(s.reqs...); err != nil {
		return nil, err
	}
	if err := s.step(); err != nil {
		return nil, err
	}
	v, err := s.value(s.logits)
	if err != nil {
		return nil, err
	}
	logits, ok := v.Data().([]float32)
	if !ok {
		if logits, err = ops.Float32s(v); err != nil {
			return nil, err
		}
	}
	var ids []int32
	if s.chosen != nil {
		if v, err = s.value(s.chosen); err != nil {
			return nil, err
		}
		ids = v.Data().([]int32)
	}
	n := s.logits.Shape()[1]
	s.out = s.out[:0]
	for i := range parts {
		l := Logits{Values: logits[i*n:][:n]}
		if ids != nil {
			l.IDs = ids[i*n:][:n]
		}
		s.out = append(s.out, l)
	}
	return s.out, nil
}

// step runs the graph.
func (s *stage) step() error {
	if s.capture != nil {
		return s.capture.Run()
	}
	return s.machine.RunAll()
}

// value is a result in the host's memory: a copy of a device's.
func (s *stage) value(n *gorgonia.Node) (*tensor.Dense, error) {
	if s.capture != nil {
		return s.machine.Host(n)
	}
	v, err := s.machine.Value(n)
	if err != nil {
		return nil, err
	}
	return v.(*tensor.Dense), nil
}
