package llamatest

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	"gorgonia.org/tensor"

	"github.com/gaze-ml/gaze/graph"
	"github.com/gaze-ml/gaze/ops"
)

// turn is a request's part in a step: these tokens follow what its sequence has.
type turn struct {
	seq    *graph.Sequence
	tokens []int32
}

// step replays one step and gives each request's logits and the token chosen from them.
func (m *model) step(s *stage, turns ...turn) (logits [][]float32, chosen []int32, err error) {
	clear(s.ids)
	row := 0
	var reqs []graph.Request
	for _, u := range turns {
		if err := m.cache.Append(u.seq, len(u.tokens)); err != nil {
			return nil, nil, err
		}
		row += copy(s.ids[row:], u.tokens)
		reqs = append(reqs, graph.Request{Seq: u.seq, Tokens: len(u.tokens)})
	}
	if err := errors.Join(s.batch.Set(reqs...), s.capture.Run()); err != nil {
		return nil, nil, err
	}
	all, err := s.machine.Host(s.logits)
	if err != nil {
		return nil, nil, err
	}
	greedy, err := s.machine.Host(s.greedy)
	if err != nil {
		return nil, nil, err
	}
	x, err := ops.Float32s(all)
	for i := range turns {
		logits = append(logits, x[i*vocab:][:vocab])
	}
	return logits, greedy.Data().([]int32)[:len(turns)], err
}

// Result is what Check saw.
type Result struct {
	Steps   int
	Largest float64 // difference of a logit, over the largest logit of its row
	NMSE    float64 // over all logits
	Changed int     // tokens that the device chose otherwise than the CPU, by its own rounding
}

// Check runs a model with weights, activations and cache of dtype dt on a device and on the CPU: two prompts, the longer one in chunks,
// 40 decode steps of both and a fork of one over page boundaries, whose first write copies a shared page on the device, and a prompt
// that follows. Every step is a replay of a capture. Logits may differ by largest of the largest of their row, and in all by nmse; the
// device's choice is the largest of its own logits.
func Check(t testing.TB, dev graph.Device, dt tensor.Dtype, largest, nmse float64) (res Result) {
	t.Helper()
	const seed = 20
	t.Logf("seed %d", seed)
	pair := [2]*model{}
	for i, d := range []graph.Device{dev, graph.CPU} {
		m, err := newModel(d, dt, seed)
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := m.close(); err != nil {
				t.Error(err)
			}
		}()
		pair[i] = m
	}
	r := rand.New(rand.NewPCG(seed, 1))
	tokens := func(n int) []int32 {
		x := make([]int32, n)
		for i := range x {
			x[i] = int32(r.IntN(vocab))
		}
		return x
	}
	seqs := [3][2]*graph.Sequence{} // by request and device
	start := func(k int, f func(m *model, i int) (*graph.Sequence, error)) {
		for i, m := range pair {
			var err error
			if seqs[k][i], err = f(m, i); err != nil {
				t.Fatal(err)
			}
		}
	}
	fresh := func(m *model, _ int) (*graph.Sequence, error) { return m.cache.NewSequence(0) }
	var num, den float64
	run := func(what string, prefill bool, of map[int][]int32) {
		t.Helper()
		var got [2][][]float32
		var chosen [2][]int32
		for i, m := range pair {
			var turns []turn
			for k := range seqs {
				if x, ok := of[k]; ok {
					turns = append(turns, turn{seqs[k][i], x})
				}
			}
			s := m.decode
			if prefill {
				s = m.prefill
			}
			var err error
			if got[i], chosen[i], err = m.step(s, turns...); err != nil {
				t.Fatalf("%s: %v", what, err)
			}
		}
		res.Steps++
		for k, want := range got[1] {
			row := compare(got[0][k], want)
			num, den = num+row.num, den+row.den
			res.Largest = max(res.Largest, row.worst)
			if !(row.worst <= largest) {
				t.Errorf("%s, request %d: a logit is off by %.3g of the largest", what, k, row.worst)
			}
			if best := argmax(got[0][k]); int(chosen[0][k]) != best {
				t.Errorf("%s, request %d: token %d was chosen, the largest logit is %d's", what, k, chosen[0][k], best)
			}
			if chosen[0][k] != chosen[1][k] {
				res.Changed++
			}
		}
	}
	start(0, fresh)
	start(1, fresh)
	long := tokens(37)
	run("prompts", true, map[int][]int32{0: long[:16], 1: tokens(9)})
	run("the rest of the first prompt", true, map[int][]int32{0: long[16:]})
	start(2, func(m *model, i int) (*graph.Sequence, error) { return m.cache.Fork(seqs[0][i], 37) }) // its third page is part-filled
	for range 40 {
		run("decode", false, map[int][]int32{0: tokens(1), 1: tokens(1), 2: tokens(1)})
	}
	for i, m := range pair {
		if err := m.cache.Free(seqs[0][i]); err != nil {
			t.Fatal(err)
		}
	}
	run("a second prompt", true, map[int][]int32{1: tokens(15), 2: tokens(17)})
	run("decode after it", false, map[int][]int32{2: tokens(1)})
	if res.NMSE = num / den; !(res.NMSE <= nmse) {
		t.Errorf("NMSE %.3g of the logits, want at most %.3g", res.NMSE, nmse)
	}
	return res
}

type difference struct{ worst, num, den float64 }

func compare(got, want []float32) (d difference) {
	top := 0.0
	for i, w := range want {
		e := math.Abs(float64(got[i]) - float64(w))
		if math.IsNaN(e) {
			e = math.Inf(1)
		}
		d.worst, d.num, d.den = max(d.worst, e), d.num+e*e, d.den+float64(w)*float64(w)
		top = max(top, math.Abs(float64(w)))
	}
	d.worst /= top
	return d
}

func argmax(x []float32) int {
	best := 0
	for i, v := range x {
		if v > x[best] {
			best = i
		}
	}
	return best
}

func join(a, b error) error {
	if a == nil {
		return b
	}
	return errors.Join(a, b)
}
