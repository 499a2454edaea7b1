package sample

import (
	"cmp"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

func sampler(t testing.TB, p Params) *Sampler {
	t.Helper()
	s, err := New(p)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func pick(t testing.TB, s *Sampler, logits []float32) int32 {
	t.Helper()
	id, err := s.Sample(logits)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// random returns n normally distributed logits.
func random(n int, seed uint64) []float32 {
	rng := rand.New(rand.NewPCG(seed, 0))
	logits := make([]float32, n)
	for i := range logits {
		logits[i] = float32(3 * rng.NormFloat64())
	}
	return logits
}

// logs returns logits whose softmax is the given probabilities.
func logs(probabilities ...float64) []float32 {
	var logits []float32
	for _, p := range probabilities {
		logits = append(logits, float32(math.Log(p))+7)
	}
	return logits
}

// drawn returns the ids that n draws give.
func drawn(t testing.TB, p Params, logits []float32, n int) (ids []int32) {
	t.Helper()
	s := sampler(t, p)
	for range n {
		if id := pick(t, s, logits); !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

var inf = float32(math.Inf(1))

func TestGreedy(t *testing.T) {
	for seed := range uint64(20) {
		logits := random(1000, seed)
		best := int32(slices.Index(logits, slices.Max(logits)))
		for _, p := range []Params{{}, {TopK: 50, TopP: 0.5}, {Temperature: 2, TopK: 1, Seed: seed}, {Temperature: 1, MinP: 1}, {Temperature: 1e-300}, {Temperature: 1, TopP: 1e-300}} {
			if got := pick(t, sampler(t, p), logits); got != best {
				t.Errorf("seed %d, %+v: got %d, want %d", seed, p, got, best)
			}
		}
	}
	// The lowest id of equals.
	for _, p := range []Params{{}, {Temperature: 1, TopK: 1}, {Temperature: 1, TopP: 1e-9}} {
		if got := pick(t, sampler(t, p), []float32{-inf, 1, 3, 3, 2, 3}); got != 2 {
			t.Errorf("%+v: got %d of equals, want 2", p, got)
		}
	}
	if got := pick(t, sampler(t, Params{}), []float32{-inf, -math.MaxFloat32}); got != 1 {
		t.Errorf("got %d, want the only finite one", got)
	}
}

// Which tokens each filter keeps; enough draws show them all.
func TestFilters(t *testing.T) {
	logits := logs(0.1, 0.4, 0.05, 0.3, 0.15)
	for _, c := range []struct {
		p    Params
		want []int32
	}{
		{Params{}, []int32{0, 1, 2, 3, 4}},
		{Params{TopK: 2}, []int32{1, 3}},
		{Params{TopK: 3}, []int32{1, 3, 4}},
		{Params{TopK: 99}, []int32{0, 1, 2, 3, 4}},
		{Params{TopP: 0.39}, []int32{1}},
		{Params{TopP: 0.41}, []int32{1, 3}},
		{Params{TopP: 0.69}, []int32{1, 3}},
		{Params{TopP: 0.71}, []int32{1, 3, 4}},
		{Params{TopP: 0.96}, []int32{0, 1, 2, 3, 4}},
		{Params{TopP: 1}, []int32{0, 1, 2, 3, 4}},
		{Params{MinP: 0.74}, []int32{1, 3}},
		{Params{MinP: 0.76}, []int32{1}},
		{Params{MinP: 0.2}, []int32{0, 1, 3, 4}},
		// top-p counts among what top-k keeps: 0.4/0.7 is 0.57 of it
		{Params{TopK: 2, TopP: 0.56}, []int32{1}},
		{Params{TopK: 2, TopP: 0.58}, []int32{1, 3}},
		// min-p comes after top-p, which therefore counts the unlikely ones too
		{Params{TopP: 0.84, MinP: 0.3}, []int32{1, 3, 4}},
		{Params{TopK: 3, TopP: 0.99, MinP: 0.5}, []int32{1, 3}},
		// a temperature of 2 takes square roots: 0.4 against 0.1 is 1 against 0.5
		{Params{Temperature: 2, MinP: 0.49}, []int32{0, 1, 3, 4}},
		{Params{Temperature: 2, MinP: 0.51}, []int32{1, 3, 4}},
		{Params{Temperature: 0.5, MinP: 0.5}, []int32{1, 3}},
		{Params{Temperature: 0.5, MinP: 0.6}, []int32{1}},
	} {
		if c.p.Temperature == 0 {
			c.p.Temperature = 1
		}
		if got := drawn(t, c.p, logits, 500); !slices.Equal(got, c.want) {
			t.Errorf("%+v: got %v, want %v", c.p, got, c.want)
		}
	}
	for _, k := range []int{0, 3} {
		if got := drawn(t, Params{Temperature: 1e9, TopK: k}, []float32{1, -inf, 2, -inf}, 100); !slices.Equal(got, []int32{0, 2}) {
			t.Errorf("top-k %d: got %v, want no token of -Inf", k, got)
		}
	}
}

// top-p keeps the smallest set: without its least likely member it is too small. Checked against a full sort.
func TestTopPIsSmallest(t *testing.T) {
	for seed := range uint64(30) {
		logits := random(300, seed)
		p := 0.05 + 0.9*float64(seed)/30
		for _, k := range []int{0, 40} {
			s := sampler(t, Params{Temperature: 1, TopP: p, TopK: k})
			kept, sorted := s.first(logits)
			kept, _ = s.filter(kept, sorted, slices.Max(logits))

			order := make([]int32, len(logits))
			for i := range order {
				order[i] = int32(i)
			}
			slices.SortFunc(order, func(a, b int32) int {
				if logits[a] > logits[b] {
					return -1
				}
				return 1
			})
			if k > 0 {
				order = order[:k]
			}
			total, sum, n := 0.0, 0.0, 0
			for _, id := range order {
				total += math.Exp(float64(logits[id]))
			}
			for sum < p*total {
				sum += math.Exp(float64(logits[order[n]]))
				n++
			}
			var ids []int32
			for _, token := range kept {
				ids = append(ids, token.id)
			}
			if !slices.Equal(ids, order[:n]) {
				t.Fatalf("seed %d, p %v, k %d: kept %v, want %v", seed, p, k, ids, order[:n])
			}
		}
	}
}

// Frequencies follow the softmax: the chi-squared statistic of 100,000 draws stays near its degrees of freedom.
func TestDistribution(t *testing.T) {
	logits := random(20, 1)
	for _, p := range []Params{{Temperature: 1}, {Temperature: 0.7}, {Temperature: 1.5, TopK: 8}, {Temperature: 1, TopP: 0.8}, {Temperature: 2, MinP: 0.1}} {
		p.Seed = 11
		s := sampler(t, p)
		want := make([]float64, len(logits)) // by the definition, over what is kept
		kept, sorted := s.first(logits)
		kept, total := s.filter(kept, sorted, slices.Max(logits))
		sum := 0.0
		for _, token := range kept {
			want[token.id] = math.Exp(float64(logits[token.id]) / p.Temperature)
			sum += want[token.id]
		}
		if len(kept) < 2 || total <= 0 {
			t.Fatalf("%+v keeps %d tokens", p, len(kept))
		}
		const draws = 100_000
		got := make([]float64, len(logits))
		for range draws {
			got[pick(t, s, logits)]++
		}
		chi, freedom := 0.0, -1.0
		for i := range got {
			expected := draws * want[i] / sum
			if expected == 0 {
				if got[i] > 0 {
					t.Errorf("%+v: token %d drawn, not kept", p, i)
				}
				continue
			}
			chi += (got[i] - expected) * (got[i] - expected) / expected
			freedom++
		}
		if limit := freedom + 5*math.Sqrt(2*freedom); chi > limit { // mean + 5 standard deviations
			t.Errorf("%+v: chi-squared %.1f of %v degrees, want below %.1f", p, chi, freedom, limit)
		}
	}
}

// Rounding of the sums never picks a token without a weight.
func TestDrawRounding(t *testing.T) {
	s := sampler(t, Params{Temperature: 1})
	kept := []token{{id: 4}, {id: 5, weight: 0.5}, {id: 6}}
	for range 100 {
		if got := s.draw(kept, 2); got != 5 { // a total that is too large leaves a rest
			t.Fatalf("got %d, want 5", got)
		}
	}
}

func TestSeed(t *testing.T) {
	sequence := func(seed uint64) (ids []int32) {
		s := sampler(t, Params{Temperature: 1, Seed: seed})
		for i := range uint64(50) {
			ids = append(ids, pick(t, s, random(100, i)))
		}
		return ids
	}
	if !slices.Equal(sequence(7), sequence(7)) {
		t.Error("the same seed gives other tokens")
	}
	if slices.Equal(sequence(7), sequence(8)) {
		t.Error("another seed gives the same tokens")
	}
}

func TestRepeatPenalty(t *testing.T) {
	logits := []float32{4, 3, -1, -1.5}
	before := slices.Clone(logits)
	s := sampler(t, Params{RepeatPenalty: 2, RepeatLast: 3})
	accept := func(ids ...int32) {
		for _, id := range ids {
			s.Accept(id)
		}
	}
	steps := []struct {
		accept []int32
		want   int32
	}{
		{nil, 0},
		{[]int32{0}, 1},          // 4/2 is less than 3
		{[]int32{0, 0}, 1},       // once, however often it came
		{[]int32{1}, 0},          // 2 against 1.5
		{[]int32{2, 2, 2}, 0},    // the first ones are forgotten
		{[]int32{-1, 99, 99}, 0}, // ids that have no logit
	}
	for i, step := range steps {
		accept(step.accept...)
		if got := pick(t, s, logits); got != step.want {
			t.Errorf("step %d: got %d, want %d", i, got, step.want)
		}
	}
	if !slices.Equal(logits, before) {
		t.Error("the caller's logits are changed")
	}
	// Negative logits move down too.
	s = sampler(t, Params{RepeatPenalty: 2})
	s.Accept(0)
	if got := pick(t, s, []float32{-1, -1.5}); got != 1 {
		t.Errorf("negative logits: got %d, want 1", got)
	}
	// 64 by default.
	s = sampler(t, Params{RepeatPenalty: 2})
	s.Accept(0)
	for range 63 {
		s.Accept(2)
	}
	if got := pick(t, s, logits); got != 1 {
		t.Error("forgotten within 64 tokens")
	}
	s.Accept(2)
	if got := pick(t, s, logits); got != 0 {
		t.Error("remembered after 64 tokens")
	}
}

func TestBadLogits(t *testing.T) {
	nan := float32(math.NaN())
	for _, p := range []Params{{}, {Temperature: 1}, {Temperature: 1, TopK: 2, TopP: 0.5, RepeatPenalty: 1.1}} {
		s := sampler(t, p)
		for says, logits := range map[string][]float32{
			"logit 2: got NaN":  {1, 2, nan},
			"logit 0: got NaN":  {nan},
			"logit 1: got +Inf": {1, inf, 2},
			"0 of them":         {},
			"3 of them":         {-inf, -inf, -inf},
		} {
			_, err := s.Sample(logits)
			var typed *Error
			if !errors.As(err, &typed) || !errors.Is(err, ErrLogits) || !strings.Contains(err.Error(), says) {
				t.Errorf("%+v: got %v, want ErrLogits saying %q", p, err, says)
			}
		}
		if got := pick(t, s, []float32{0, 90, 0}); got != 1 {
			t.Errorf("%+v: after an error got %d, want 1", p, got)
		}
	}
	s := sampler(t, Params{RepeatPenalty: 0.1})
	s.Accept(0)
	if _, err := s.Sample([]float32{math.MaxFloat32}); !errors.Is(err, ErrLogits) {
		t.Errorf("a penalty that overflows: %v", err)
	}
}

func TestBadParams(t *testing.T) {
	nan := math.NaN()
	for item, ps := range map[string][]Params{
		"temperature":    {{Temperature: -0.1}, {Temperature: nan}, {Temperature: math.Inf(1)}},
		"top-k":          {{TopK: -1}},
		"top-p":          {{TopP: -0.1}, {TopP: 1.1}, {TopP: nan}},
		"min-p":          {{MinP: -0.1}, {MinP: 1.1}, {MinP: nan}},
		"repeat-penalty": {{RepeatPenalty: -1}, {RepeatPenalty: nan}, {RepeatPenalty: math.Inf(1)}},
		"repeat-last":    {{RepeatLast: -1}},
	} {
		for _, p := range ps {
			_, err := New(p)
			var typed *Error
			if !errors.As(err, &typed) || !errors.Is(err, ErrParam) || typed.Item != item || typed.Got == "" || typed.Want == "" {
				t.Errorf("%+v: got %v, want ErrParam for %s", p, err, item)
			}
		}
	}
}

func TestNoAllocation(t *testing.T) {
	logits := random(5000, 3)
	for _, p := range []Params{{}, {Temperature: 1}, {Temperature: 1, TopK: 40, TopP: 0.9, MinP: 0.05, RepeatPenalty: 1.1}, {Temperature: 1, TopP: 0.95}} {
		s := sampler(t, p)
		s.Accept(pick(t, s, logits))
		if n := testing.AllocsPerRun(100, func() { s.Accept(pick(t, s, logits)) }); n != 0 {
			t.Errorf("%+v: %v allocations for a token", p, n)
		}
	}
}

// candidates are the n largest logits in descending order, equals by id, as a device finds them.
func candidates(logits []float32, n int) (ids []int32, values []float32) {
	for i := range logits {
		ids = append(ids, int32(i))
	}
	slices.SortStableFunc(ids, func(a, b int32) int { return cmp.Compare(logits[b], logits[a]) })
	ids = ids[:min(n, len(ids))]
	for _, id := range ids {
		values = append(values, logits[id])
	}
	return ids, values
}

// The candidates give the tokens that all logits give, draw for draw, also where many are alike and where a penalty lets them fall.
func TestSampleFrom(t *testing.T) {
	for _, p := range []Params{
		{}, {Temperature: 1, TopK: 1}, {Temperature: 1, TopK: 2}, {Temperature: 0.8, TopK: 40}, {Temperature: 2, TopK: 40, TopP: 0.9}, {Temperature: 1, TopK: 20, MinP: 0.3},
		{RepeatPenalty: 1.5}, {RepeatPenalty: 9, RepeatLast: 3}, {Temperature: 1, TopK: 5, RepeatPenalty: 1.3}, {Temperature: 1.5, TopK: 30, TopP: 0.95, MinP: 0.05, RepeatPenalty: 4, RepeatLast: 20},
	} {
		for seed := range uint64(5) {
			p.Seed = seed
			whole, part := sampler(t, p), sampler(t, p)
			for step := range uint64(60) {
				logits := random(400, 1000*seed+step/3) // the same ones three times: what was picked would be picked again
				for i := range logits {
					logits[i] = float32(math.Round(float64(8*logits[i]))) / 8
					if i%7 == 0 {
						logits[i] = -inf
					}
				}
				want := pick(t, whole, logits)
				got, err := part.SampleFrom(candidates(logits, p.Candidates()))
				if err != nil || got != want {
					t.Fatalf("%+v, step %d: got %d and %v, want %d", p, step, got, err, want)
				}
				whole.Accept(want)
				part.Accept(want)
			}
		}
	}
	for _, p := range []Params{{Temperature: 1}, {Temperature: 1, TopP: 0.5, MinP: 0.1}, {Temperature: 1, TopK: 40, RepeatPenalty: 0.9}, {RepeatPenalty: 0.5}} {
		if n := p.Candidates(); n != 0 {
			t.Errorf("%+v: %d candidates, want to be told that it takes all", p, n)
		}
	}
	for _, values := range [][]float32{{}, {-inf, -inf}, {inf, 1}, {1, float32(math.NaN())}} {
		if _, err := sampler(t, Params{Temperature: 1, TopK: 2}).SampleFrom([]int32{5, 3}[:len(values)], values); !errors.Is(err, ErrLogits) {
			t.Errorf("of %v: %v, want %v", values, err, ErrLogits)
		}
	}
	s := sampler(t, Params{Temperature: 1, TopK: 40, TopP: 0.9, RepeatPenalty: 1.1})
	ids, values := candidates(random(1000, 1), s.p.Candidates())
	draw := func() {
		id, err := s.SampleFrom(ids, values)
		if err != nil {
			t.Fatal(err)
		}
		s.Accept(id)
	}
	draw()
	if n := testing.AllocsPerRun(200, draw); n != 0 {
		t.Errorf("%v allocations for a token", n)
	}
}

func BenchmarkSample(b *testing.B) {
	logits := random(49152, 4)
	for name, p := range map[string]Params{
		"greedy": {}, "temperature-0.8": {Temperature: 0.8}, "top-k-40": {Temperature: 0.8, TopK: 40}, "top-p-0.95": {Temperature: 0.8, TopP: 0.95},
		"all": {Temperature: 0.8, TopK: 40, TopP: 0.95, MinP: 0.05, RepeatPenalty: 1.1},
	} {
		b.Run("vocab=49152/mode="+name, func(b *testing.B) {
			s := sampler(b, p)
			for b.Loop() {
				s.Accept(pick(b, s, logits))
			}
		})
	}
}
