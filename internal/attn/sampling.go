package attn

// The calls that choose tokens from logits.

// SoftmaxCall turns each row of logits into probabilities:
//
//	m = max_v logits[t,v],  out[t,v] = exp((logits[t,v] - m)/temperature) / Σ_u exp((logits[t,u] - m)/temperature)
//
// A row of nothing but -inf, which allows no token, gives 0 everywhere; NaN or +inf in a row makes all of that row NaN.
type SoftmaxCall struct {
	Logits      Tensor  // [T,V] f32, f16 or bf16, V of 1 or more; rows may be strided
	Temperature float64 // above 0
	Out         Tensor  // [T,V] f32
}

// Op is "softmax".
func (c *SoftmaxCall) Op() string { return "softmax" }

// Run gives the call to b.
func (c *SoftmaxCall) Run(b Backend) error { return b.Softmax(c) }

// Infer checks the call and describes Out.
func (c *SoftmaxCall) Infer() error {
	k := checker{op: c.Op()}
	k.positive("temperature", c.Temperature)
	if !k.logits(&c.Logits) {
		return k.err()
	}
	if k.ok() {
		k.output("out", &c.Out, F32, c.Logits.Shape[0], c.Logits.Shape[1])
		k.inPlace("out", &c.Out, named{"logits", &c.Logits})
	}
	return k.err()
}

// TopKCall gives the K largest logits of each row, in descending order, and their columns. Of equal ones, 0 and -0 among them, the lower
// column comes first, and NaN counts as less than everything, as in [ArgmaxCall].
type TopKCall struct {
	Logits  Tensor // [T,V] f32, f16 or bf16, V from 1 to 2^31-1; rows may be strided
	K       int    // 1 to V
	Values  Tensor // [T,K] f32
	Indices Tensor // [T,K] int32
}

// Op is "top_k".
func (c *TopKCall) Op() string { return "top_k" }

// Run gives the call to b.
func (c *TopKCall) Run(b Backend) error { return b.TopK(c) }

// Infer checks the call and describes Values and Indices.
func (c *TopKCall) Infer() error {
	k := checker{op: c.Op()}
	if !k.logits(&c.Logits) {
		return k.err()
	}
	if v := c.Logits.Shape[1]; c.K < 1 || c.K > v {
		k.add(ErrArgument, "k", "1 to the number of columns", "%d of %d columns", c.K, v)
	}
	if k.ok() {
		k.output("values", &c.Values, F32, c.Logits.Shape[0], c.K)
		k.output("indices", &c.Indices, I32, c.Logits.Shape[0], c.K)
		k.apart("values", &c.Values, named{"logits", &c.Logits}, named{"indices", &c.Indices})
		k.apart("indices", &c.Indices, named{"logits", &c.Logits})
	}
	return k.err()
}

// logits checks rows of 1 to 2^31-1 elements.
func (c *checker) logits(t *Tensor) bool {
	if !c.tensor("logits", t, 2, F32, F16, BF16) {
		return false
	}
	c.unitLast("logits", t)
	if v := t.Shape[1]; v < 1 || v > 1<<31-1 {
		c.add(ErrShape, "logits", "rows of 1 to 2^31-1 elements", "%v", t.String())
	}
	return true
}
