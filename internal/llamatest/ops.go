package llamatest

import (
	"fmt"
	"slices"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/gaze-ml/gaze/graph"
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
	order := slices.Clone(g.AllNodes())
	slices.SortStableFunc(order, func(a, b *gorgonia.Node) int { return int(a.ID() - b.ID()) })
	values := map[int64]gorgonia.Value{}
	for _, n := range order {
		op := n.Op()
		if op == nil {
			v := n.Value()
			if n.Name() == "ids" {
				ids, err := graph.Upload(m.dev, v.(*tensor.Dense))
				if err != nil {
					return err
				}
				v = ids
				m.weights["ids of "+fmt.Sprintf("%p", s)] = ids // to be given back with them
			}
			values[n.ID()] = v
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
