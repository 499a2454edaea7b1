// Package llamaref is the formula of Llama in float64, as an oracle for tests: no cache, no batches, no kernels, and nothing in
// common with the ops that it is held against.
package llamaref

import "math"

// Model is a Llama's weights, row-major [out, in], and sizes.
type Model struct {
	Heads, KVHeads, HeadDim int
	Eps                     float64
	RoPE                    RoPE

	Embedding []float64 // [V, H]
	Layers    []Layer
	Norm      []float64 // [H]
	Head      []float64 // [V, H]; nil: Embedding

	// How queries, keys and values, and the attention's output are rounded on the way; nil: not at all.
	RoundQuery, RoundCache, RoundAttention func(float64) float64
}

// Layer is one layer's weights. Biases may be nil.
type Layer struct {
	AttnNorm            []float64
	Q, K, V             []float64
	QBias, KBias, VBias []float64
	O                   []float64
	MLPNorm             []float64
	Gate, Up, Down      []float64
}

// RoPE is how queries and keys turn.
type RoPE struct {
	Base     float64
	Adjacent bool // pairs 2i, 2i+1; otherwise i, i+Dim/2
	Dim      int  // the leading elements of a head that turn; 0: all
	Factors  []float64

	// Llama 3's rule for longer contexts, unless Factor is 0; with Low 0 every frequency is divided by Factor.
	Factor, Low, High, Context float64
}

// Logits gives the logits [V] after every token of a prompt.
func (m *Model) Logits(tokens []int32) [][]float64 {
	hidden := len(m.Norm)
	x := make([][]float64, len(tokens))
	for t, id := range tokens {
		x[t] = m.Embedding[int(id)*hidden:][:hidden]
	}
	for _, l := range m.Layers {
		var q, k, v [][]float64
		for t := range x {
			h := m.normed(x[t], l.AttnNorm)
			q = append(q, round(m.RoundQuery, m.turned(t, plus(times(l.Q, h), l.QBias))))
			k = append(k, round(m.RoundCache, m.turned(t, plus(times(l.K, h), l.KBias))))
			v = append(v, round(m.RoundCache, plus(times(l.V, h), l.VBias)))
		}
		for t := range x {
			x[t] = plus(x[t], times(l.O, round(m.RoundAttention, m.attend(q[t], k[:t+1], v))))
			h := m.normed(x[t], l.MLPNorm)
			gate, up := times(l.Gate, h), times(l.Up, h)
			for i, g := range gate {
				gate[i] = g / (1 + math.Exp(-g)) * up[i]
			}
			x[t] = plus(x[t], times(l.Down, gate))
		}
	}
	head := m.Head
	if head == nil {
		head = m.Embedding
	}
	for t := range x {
		x[t] = times(head, m.normed(x[t], m.Norm))
	}
	return x
}

func (m *Model) normed(x, w []float64) []float64 {
	sum := 0.0
	for _, v := range x {
		sum += v * v
	}
	y := make([]float64, len(x))
	for i, v := range x {
		y[i] = v / math.Sqrt(sum/float64(len(x))+m.Eps) * w[i]
	}
	return y
}

// times is w·x for w [len(w)/len(x), len(x)].
func times(w, x []float64) []float64 {
	y := make([]float64, len(w)/len(x))
	for o := range y {
		for i, v := range x {
			y[o] += w[o*len(x)+i] * v
		}
	}
	return y
}

// round rounds x in place.
func round(to func(float64) float64, x []float64) []float64 {
	if to != nil {
		for i := range x {
			x[i] = to(x[i])
		}
	}
	return x
}

// plus is x + y, or x if y is nil, in new memory.
func plus(x, y []float64) []float64 {
	z := append([]float64(nil), x...)
	for i := range y {
		z[i] += y[i]
	}
	return z
}

// attend is softmax(q·k/sqrt(D))·v over the keys up to one position.
func (m *Model) attend(q []float64, k, v [][]float64) []float64 {
	d := m.HeadDim
	out := make([]float64, len(q))
	for h := range m.Heads {
		kv := h / (m.Heads / m.KVHeads) * d
		sum := 0.0
		for j := range k {
			s := 0.0
			for i := range d {
				s += q[h*d+i] * k[j][kv+i]
			}
			p := math.Exp(s / math.Sqrt(float64(d)))
			sum += p
			for i := range d {
				out[h*d+i] += p * v[j][kv+i]
			}
		}
		for i := range d {
			out[h*d+i] /= sum
		}
	}
	return out
}

// turned is RoPE of all heads at position t.
func (m *Model) turned(t int, x []float64) []float64 {
	y := append([]float64(nil), x...)
	r := m.RoPE.Dim
	if r == 0 {
		r = m.HeadDim
	}
	for h := 0; h < len(x); h += m.HeadDim {
		for i := range r / 2 {
			a, b := h+i, h+i+r/2
			if m.RoPE.Adjacent {
				a, b = h+2*i, h+2*i+1
			}
			sin, cos := math.Sincos(float64(t) * m.RoPE.Frequency(i, r))
			y[a], y[b] = x[a]*cos-x[b]*sin, x[a]*sin+x[b]*cos
		}
	}
	return y
}

// Frequency is what positions are multiplied by to give the angle of pair i of a head whose dim elements turn.
func (r *RoPE) Frequency(i, dim int) float64 {
	f := math.Pow(r.Base, -2*float64(i)/float64(dim))
	switch length := 2 * math.Pi / f; {
	case r.Factor == 0:
	case r.Low == 0, length > r.Context/r.Low:
		f /= r.Factor
	case length >= r.Context/r.High:
		smooth := (r.Context/length - r.Low) / (r.High - r.Low)
		f = (1-smooth)*f/r.Factor + smooth*f
	}
	if r.Factors != nil {
		f /= r.Factors[i]
	}
	return f
}
