package opstest

import (
	"math"

	"github.com/gaze-ml/gaze/internal/attn"
)

// linearSpec is a matrix product with weights in any format, or the gathering of an embedding's rows, as data.
type linearSpec struct {
	tokens, in, out int
	dt              attn.DType
	weight          attn.DType
	bias            attn.DType // Invalid: none
	gap             int        // unused elements after each row of x, unused blocks or weights after each row of weight
	fill            func(row, d int) float64
	fillW           func(row, d int) float64
}

func (s linearSpec) check(ses *session) {
	call := &attn.LinearCall{}
	in := &instance{call: call}
	x := placeMatrix(in, ses.rng, "x", &call.X, s.dt, s.gap, s.fill, s.tokens, s.in)
	w := placeWeights(in, ses, &call.Weight, s.weight, s.out, s.in, s.gap, s.fillW)
	bias := make([]float64, s.out)
	if s.bias != attn.Invalid {
		bias = placeMatrix(in, ses.rng, "bias", &call.Bias, s.bias, 0, nil, s.out).values
	}
	if err := call.Infer(); err != nil {
		ses.fail(err)
		return
	}
	out := in.output("out", &call.Out)
	in.checks = append(in.checks, func(ses *session) {
		want, size := make([]float64, s.tokens*s.out), make([]float64, s.tokens*s.out)
		parallel(s.tokens, func(t int) {
			row := x.values[t*s.in : (t+1)*s.in]
			for o := range s.out {
				n := t*s.out + o
				want[n] = bias[o] + dot(row, w[o*s.in:(o+1)*s.in])
				size[n] = math.Abs(bias[o])
				for i, a := range row {
					size[n] += math.Abs(a * w[o*s.in+i])
				}
			}
		})
		// f32 sums err in proportion to the sum of their terms' sizes.
		ses.checkLayer(out, want, func(i int) float64 { return finite(1e-6 * size[i]) })
	})
	ses.run(in)
}

func finite(x float64) float64 {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return 0
	}
	return x
}

// placeWeights makes a weight matrix [rows, cols] of any format and gives its values.
func placeWeights(in *instance, ses *session, bind *attn.Tensor, dt attn.DType, rows, cols, gap int, rule func(row, d int) float64) []float64 {
	if !dt.Quantised() {
		return placeMatrix(in, ses.rng, "weight", bind, dt, gap, rule, rows, cols).values
	}
	desc := attn.Of(dt, rows, cols/dt.BlockLen())
	if gap > 0 {
		desc.Stride[0]++
	}
	o := in.add("weight", bind, desc)
	values := make([]float64, rows*cols)
	n := desc.Shape[1] * dt.Size()
	for r := range rows {
		row := o.at(r*desc.Stride[0]*dt.Size(), n)
		for b := range desc.Shape[1] {
			at := r*cols + b*dt.BlockLen()
			randomBlock(ses.rng, dt, row[b*dt.Size():(b+1)*dt.Size()])
			dequantise(values[at:at+dt.BlockLen()], dt, row[b*dt.Size():])
		}
	}
	return values
}

// embeddingSpec gathers rows of a table.
type embeddingSpec struct {
	ids           []int
	vocab, hidden int
	weight, out   attn.DType
	gap           int
	bad           *badValue
}

func (s embeddingSpec) check(ses *session) {
	call := &attn.EmbeddingCall{OutDType: s.out, CheckValues: s.bad != nil}
	in := &instance{call: call}
	in.ints("ids", &call.IDs, s.ids)
	w := placeWeights(in, ses, &call.Weight, s.weight, s.vocab, s.hidden, s.gap, nil)
	if err := call.Infer(); err != nil {
		ses.fail(err)
		return
	}
	out := in.output("out", &call.Out)
	in.checks = append(in.checks, func(ses *session) {
		want := make([]float64, 0, len(s.ids)*s.hidden)
		for _, id := range s.ids {
			want = append(want, w[id*s.hidden:(id+1)*s.hidden]...)
		}
		ses.checkLayer(out, want, nil)
		if s.weight == out.desc.DType { // a copy
			for i, g := range out.floats() {
				if g != want[i] && !math.IsNaN(want[i]) {
					ses.failf("out: element %d is %v, a copy of %v wanted", i, g, want[i])
					return
				}
			}
		}
	})
	if s.bad != nil {
		in.operand(s.bad.arg).setInts(s.bad.index, s.bad.value)
		in.refuse = &s.bad.want
	}
	ses.run(in)
}
