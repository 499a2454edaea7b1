package opstest

import (
	"fmt"
	"math"
	"slices"

	"github.com/gaze-ml/gaze/internal/attn"
)

// oddRows are rows of five logits that only rules decide.
func oddRows(row, d int) float64 {
	nan, inf := math.NaN(), math.Inf(1)
	return [][]float64{
		{nan, nan, nan, nan, nan}, {nan, -inf, nan, -inf, 1}, {1, nan, 2, nan, -3}, {-inf, -inf, -inf, -inf, -inf}, {nan, inf, inf, 1, -inf}, {-inf, 3, -inf, 3, 3},
		{0, math.Copysign(0, -1), 0, math.Copysign(0, -1), -1}, {inf, 0, 0, 0, 0},
	}[row][d]
}

const oddCount = 8

// softmaxCases are probabilities of logits.
func softmaxCases() []Case {
	var out []Case
	add := func(list List, name, why string, s softmaxSpec) {
		if s.temperature == 0 {
			s.temperature = 1
		}
		out = append(out, Case{Name: "softmax/" + name, Why: why, Op: "softmax", List: list, body: s})
	}
	for _, dt := range floatDTypes {
		add(Correctness, fmt.Sprintf("logits=%v", dt), "a vocabulary's probabilities", softmaxSpec{tokens: 3, width: 49152, dt: dt})
		for _, temperature := range []float64{0.1, 0.7, 2} {
			add(Correctness, fmt.Sprintf("temperature=%v/logits=%v", temperature, dt), "logits over the temperature", softmaxSpec{tokens: 5, width: 999, dt: dt, temperature: temperature})
		}
		add(Corner, fmt.Sprintf("strided/logits=%v", dt), "rows apart, with NaN between", softmaxSpec{tokens: 4, width: 77, dt: dt, gap: 5})
		add(Corner, fmt.Sprintf("odd/logits=%v", dt), "a row of -Inf alone is 0, NaN and +Inf make their own row NaN", softmaxSpec{tokens: oddCount, width: 5, dt: dt, fill: oddRows})
		add(Corner, fmt.Sprintf("large/logits=%v", dt), "logits of thousands: no overflow", softmaxSpec{tokens: 4, width: 300, dt: dt,
			fill: func(row, d int) float64 { return 30000*noise(row, 0, 0, 0) + 40*noise(row, d, 1, 0) }})
	}
	for _, width := range []int{1, 2, 7, 33, 1025} {
		add(Corner, fmt.Sprintf("width=%d", width), "widths that fill no vector", softmaxSpec{tokens: 3, width: width, dt: attn.F16})
	}
	add(Corner, "long_tail", "many small terms beside a large one", softmaxSpec{tokens: 2, width: 100000, dt: attn.F32, fill: func(_, d int) float64 { return -11.5 * (1 - b2f(d == 70000)) }})
	add(Corner, "temperature=1e-30", "the largest alone, and its equals", softmaxSpec{tokens: oddCount, width: 5, dt: attn.F32, temperature: 1e-30, fill: oddRows})
	add(Corner, "temperature=1e-300", "less than any float32", softmaxSpec{tokens: oddCount, width: 5, dt: attn.F32, temperature: 1e-300, fill: oddRows})
	add(Corner, "temperature=1e300", "all alike but -Inf", softmaxSpec{tokens: oddCount, width: 5, dt: attn.F32, temperature: 1e300, fill: oddRows})
	add(Corner, "tokens=0", "no row", softmaxSpec{tokens: 0, width: 8, dt: attn.F32})
	return out
}

// softmaxSpec is a softmax as data.
type softmaxSpec struct {
	tokens, width int
	dt            attn.DType
	temperature   float64
	gap           int
	fill          func(row, d int) float64
}

func (s softmaxSpec) check(ses *session) {
	call := &attn.SoftmaxCall{Temperature: s.temperature}
	in := &instance{call: call}
	x := placeMatrix(in, ses.rng, "logits", &call.Logits, s.dt, s.gap, s.fill, s.tokens, s.width)
	if err := call.Infer(); err != nil {
		ses.fail(err)
		return
	}
	out := in.output("out", &call.Out)
	in.checks = append(in.checks, func(ses *session) {
		got := out.floats()
		for t := range s.tokens {
			row := x.values[t*s.width : (t+1)*s.width]
			top := slices.Max(row)
			for i, want := range softmax(row, s.temperature) {
				// The exponent is off by roundings of itself, what comes of it is relative.
				bound := 1e-6*want*(2+math.Abs(row[i]-top)/s.temperature) + 0x1p-125
				if want == 0 {
					bound = 0x1p-125
				}
				if g := got[t*s.width+i]; math.IsNaN(g) != math.IsNaN(want) || math.Abs(g-want) > bound {
					ses.failf("out: row %d column %d: got %v, want %v", t, i, g, want)
					return
				}
			}
		}
	})
	ses.run(in)
}

// softmax gives the probabilities of a row.
func softmax(x []float64, temperature float64) []float64 {
	p, sum, top := make([]float64, len(x)), 0.0, math.Inf(-1)
	for _, v := range x {
		top = math.Max(top, v) // NaN, where there is one
	}
	if math.IsInf(top, -1) {
		return p
	}
	for i, v := range x {
		p[i] = math.Exp((v - top) / temperature)
		sum += p[i]
	}
	for i := range p {
		p[i] /= sum
	}
	return p
}

// Softmax computes the call.
func (r *Reference) Softmax(c *attn.SoftmaxCall) error {
	x, width := rows(&c.Logits), c.Logits.Shape[1]
	for t := range c.Logits.Shape[0] {
		row := x[t*width : (t+1)*width]
		if r.skips("the largest logit") {
			for i := range row {
				row[i] = math.Min(row[i], 80)
			}
		}
		p := softmax(row, c.Temperature)
		if r.skips("a row without a token") && math.IsInf(slices.Max(row), -1) {
			for i := range p {
				p[i] = 1 / float64(width)
			}
		}
		r.set(&c.Out, t*width, p...)
	}
	return nil
}

// topKCases are candidates for sampling.
func topKCases() []Case {
	var out []Case
	add := func(list List, name, why string, s topKSpec) {
		out = append(out, Case{Name: "top_k/" + name, Why: why, Op: "top_k", List: list, body: s})
	}
	for _, dt := range floatDTypes {
		for _, k := range []int{1, 40, 1000} {
			add(Correctness, fmt.Sprintf("k=%d/logits=%v", k, dt), "the largest of a vocabulary in descending order", topKSpec{tokens: 3, width: 49152, k: k, dt: dt})
		}
		add(Correctness, fmt.Sprintf("ties/logits=%v", dt), "of equal logits those of the lowest columns, in their order", topKSpec{tokens: 5, width: 4100, k: 100, dt: dt,
			fill: func(row, d int) float64 { return float64(int(7*noise(row, d, 0, 0))) / 4 }})
		add(Corner, fmt.Sprintf("alike/logits=%v", dt), "nothing but equal logits", topKSpec{tokens: 2, width: 3000, k: 64, dt: dt, fill: func(row, _ int) float64 { return float64(row) - 1 }})
		add(Corner, fmt.Sprintf("strided/logits=%v", dt), "rows apart, with NaN between", topKSpec{tokens: 4, width: 77, k: 9, dt: dt, gap: 5})
		add(Corner, fmt.Sprintf("ascending/logits=%v", dt), "the largest are last", topKSpec{tokens: 2, width: 2047, k: 33, dt: dt, fill: func(row, d int) float64 { return float64(d-1000*row) / 64 }})
		for _, k := range []int{1, 2, 3, 4, 5} {
			add(Corner, fmt.Sprintf("odd/k=%d/logits=%v", k, dt), "NaN below -Inf, 0 and -0 alike but each given as it is", topKSpec{tokens: oddCount, width: 5, k: k, dt: dt, fill: oddRows})
		}
	}
	for _, width := range []int{1, 2, 7, 33, 1000} {
		add(Corner, fmt.Sprintf("whole/width=%d", width), "k is the width: the row in order", topKSpec{tokens: 3, width: width, k: width, dt: attn.F32})
	}
	add(Corner, "near", "float32 logits that differ in their last bit", topKSpec{tokens: 2, width: 5000, k: 200, dt: attn.F32,
		fill: func(row, d int) float64 { return math.Copysign(1+float64((d*2477+row)%5000)*0x1p-23, 0.5-float64(row)) }})
	add(Corner, "k=1024", "as many as a block has threads", topKSpec{tokens: 2, width: 6000, k: 1024, dt: attn.F16})
	add(Corner, "tokens=0", "no row", topKSpec{tokens: 0, width: 8, k: 3, dt: attn.F32})
	return out
}

// topKSpec looks for the largest elements of rows, as data.
type topKSpec struct {
	tokens, width, k int
	dt               attn.DType
	gap              int
	fill             func(row, d int) float64
}

func (s topKSpec) check(ses *session) {
	call := &attn.TopKCall{K: s.k}
	in := &instance{call: call}
	x := placeMatrix(in, ses.rng, "logits", &call.Logits, s.dt, s.gap, s.fill, s.tokens, s.width)
	if err := call.Infer(); err != nil {
		ses.fail(err)
		return
	}
	values, indices := in.output("values", &call.Values), in.output("indices", &call.Indices)
	in.checks = append(in.checks, func(ses *session) {
		got := values.floats()
		for t := range s.tokens {
			row := x.values[t*s.width : (t+1)*s.width]
			for i, want := range topK(row, s.k) {
				n := t*s.k + i
				if id := int(int32(le.Uint32(indices.got(4*n, 4)))); id != want {
					ses.failf("indices: row %d place %d: got %d, want %d", t, i, id, want)
					return
				}
				if v := row[want]; math.IsNaN(v) != math.IsNaN(got[n]) || v == v && (v != got[n] || math.Signbit(v) != math.Signbit(got[n])) {
					ses.failf("values: row %d place %d: got %v, want %v", t, i, got[n], v)
					return
				}
			}
		}
	})
	ses.run(in)
}

// topK lists the columns of the k largest, in descending order: all columns sorted, NaN last, equals as they stand.
func topK(x []float64, k int) []int {
	ids := make([]int, len(x))
	for i := range ids {
		ids[i] = i
	}
	slices.SortStableFunc(ids, func(a, b int) int {
		u, v := x[a], x[b]
		switch {
		case u > v || !math.IsNaN(u) && math.IsNaN(v):
			return -1
		case u < v || math.IsNaN(u) && !math.IsNaN(v):
			return 1
		}
		return 0
	})
	return ids[:k]
}

// TopK computes the call.
func (r *Reference) TopK(c *attn.TopKCall) error {
	x, width := rows(&c.Logits), c.Logits.Shape[1]
	for t := range c.Logits.Shape[0] {
		row := x[t*width : (t+1)*width]
		ids := topK(row, c.K)
		if r.skips("the order of equals") {
			slices.SortStableFunc(ids, func(a, b int) int {
				if row[a] == row[b] {
					return b - a
				}
				return 0
			})
		}
		if r.skips("descending order") {
			slices.Sort(ids)
		}
		for i, id := range ids {
			r.set(&c.Values, t*c.K+i, row[id])
			le.PutUint32(bytesAt(&c.Indices, t*c.K+i, 1), uint32(r.at("index", id, c)))
		}
	}
	return nil
}
