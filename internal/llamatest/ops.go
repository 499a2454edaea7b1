package llamatest

import (
	"fmt"
	"slices"
	"unsafe"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/gaze-ml/gaze/graph"
	"github.com/gaze-ml/gaze/internal/attn"
	"github.com/gaze-ml/gaze/ops"
)

// Ops gives, by name, the Do of each op of a decode step and of a prompt, with its operands on the device, and what gives everything
// back. The step and the prompt have no requests: every kernel is launched, and has little to do.
func Ops(dev graph.Device, dt tensor.Dtype) (do map[string]func() error, close func() error, err error) {
	m, err := newModel(dev, dt, 1)
	if err != nil {
		return nil, nil, err
	}
	do = map[string]func() error{}
	for _, s := range []*stage{m.decode, m.prefill} {
		if err := m.ops(s, do); err != nil {
			return nil, nil, join(err, m.close())
		}
	}
	return do, m.close, nil
}

// ops runs a stage's nodes one by one and keeps the first of each op.
func (m *model) ops(s *stage, do map[string]func() error) error {
	g := s.logits.Graph()
	if err := m.bindIDs(s); err != nil {
		return err
	}
	values := map[int64]gorgonia.Value{}
	for _, n := range inOrder(g) {
		op := n.Op()
		if op == nil {
			values[n.ID()] = n.Value()
			continue
		}
		var in []gorgonia.Value
		for it := g.From(n.ID()); it.Next(); {
			in = append(in, values[it.Node().ID()])
		}
		v, err := op.Do(in...)
		if err != nil {
			return fmt.Errorf("%v: %w", op, err)
		}
		values[n.ID()] = v
		if name := fmt.Sprint(op); do[name] == nil {
			do[name] = func() error { _, err := op.Do(in...); return err }
		}
	}
	return nil
}

// bindIDs puts a stage's ids on the device, once and for all.
func (m *model) bindIDs(s *stage) error {
	n := s.logits.Graph().ByName("ids")[0]
	ids, err := graph.Upload(m.dev, n.Value().(*tensor.Dense))
	if err != nil {
		return err
	}
	m.weights["ids of "+fmt.Sprintf("%p", s)] = ids // to be given back with them
	return gorgonia.Let(n, ids)
}

// inOrder is a graph's nodes in the order in which they were made.
func inOrder(g *gorgonia.ExprGraph) []*gorgonia.Node {
	return slices.SortedFunc(slices.Values(g.AllNodes()), func(a, b *gorgonia.Node) int { return int(a.ID() - b.ID()) })
}

// Runs are a decode step without requests in several ways.
type Runs struct {
	Machine func() error // Machine.RunAll
	Calls   func() error // the Machine's calls in a plain loop
	Replay  func() error // Capture.Run
	N       int          // calls of a step
}

// DecodeRuns gives such a step on a device, and what gives everything back.
func DecodeRuns(dev graph.Device, dt tensor.Dtype) (r Runs, close func() error, err error) {
	m, err := newModel(dev, dt, 1)
	if err != nil {
		return r, nil, err
	}
	if err := m.bindIDs(m.decode); err != nil {
		return r, nil, join(err, m.close())
	}
	if err := m.decode.capture.Close(); err != nil { // it has other ids
		return r, nil, join(err, m.close())
	}
	capture, err := m.decode.machine.Capture()
	if err != nil {
		return r, nil, join(err, m.close())
	}
	calls, free, err := Calls(dev, m.decode.logits.Graph())
	if err != nil {
		return r, nil, join(err, m.close())
	}
	be := dev.Backend()
	r = Runs{Machine: m.decode.machine.RunAll, Replay: capture.Run, N: len(calls), Calls: func() error {
		for _, c := range calls {
			if err := c.Run(be); err != nil {
				return err
			}
		}
		return nil
	}}
	return r, func() error { return join(free(), m.close()) }, nil
}

// Calls are the calls of a graph of gaze's ops, in order, each result in memory of its own on the device, which free gives back. The
// inputs' values lie there too.
func Calls(dev graph.Device, g *gorgonia.ExprGraph) (calls []ops.Call, free func() error, err error) {
	var own []unsafe.Pointer
	free = func() (err error) {
		for _, p := range own {
			err = join(err, dev.Free(p))
		}
		return err
	}
	defer func() {
		if err != nil {
			_ = free()
		}
	}()
	values := map[*gorgonia.Node][]attn.Tensor{} // the results of each node's op
	for _, n := range inOrder(g) {
		var in []attn.Tensor
		var from *gorgonia.Node
		for it := g.From(n.ID()); it.Next(); {
			from = it.Node().(*gorgonia.Node)
			in = append(in, values[from][0])
		}
		switch op := n.Op().(type) {
		case nil:
			t, err := ops.View("calls", n.Name(), n.Value())
			if err != nil {
				return nil, nil, err
			}
			values[n] = []attn.Tensor{t}
		case *ops.Projection:
			values[n] = values[from][op.Index():]
		case ops.Planned:
			rs, err := op.Plan(in)
			if err != nil {
				return nil, nil, err
			}
			for _, r := range rs {
				out := r.Tensor
				switch {
				case r.Alias >= 0:
					out.Ptr = in[r.Alias].Ptr
				case r.Wanted:
					if out.Ptr, err = dev.Alloc(out.Bytes()); err != nil {
						return nil, nil, err
					}
					own = append(own, out.Ptr)
				}
				values[n] = append(values[n], out)
			}
			if c := op.NewCall(); c != nil { // else it only renames memory
				if err := c.Bind(in, values[n]); err != nil {
					return nil, nil, err
				}
				calls = append(calls, c)
			}
		default:
			return nil, nil, fmt.Errorf("%v is no op of gaze", op)
		}
	}
	return calls, free, nil
}
