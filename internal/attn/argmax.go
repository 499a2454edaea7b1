package attn

// ArgmaxCall gives the index of each row's largest element, the first among equals: the greedy choice of a token. NaN counts as less
// than everything, so a row of nothing but NaN gives 0.
type ArgmaxCall struct {
	X   Tensor // [T,V] f32, f16 or bf16, V from 1 to 2^31-1; rows may be strided
	Out Tensor // [T] int32
}

// Op is "argmax".
func (c *ArgmaxCall) Op() string { return "argmax" }

// Run gives the call to b.
func (c *ArgmaxCall) Run(b Backend) error { return b.Argmax(c) }

// Infer checks the call and describes Out.
func (c *ArgmaxCall) Infer() error {
	k := checker{op: c.Op()}
	if !k.tensor("x", &c.X, 2, F32, F16, BF16) {
		return k.err()
	}
	k.unitLast("x", &c.X)
	if v := c.X.Shape[1]; v < 1 || v > 1<<31-1 {
		k.add(ErrShape, "x", "rows of 1 to 2^31-1 elements", "%v", c.X.String())
	}
	if k.ok() {
		k.output("out", &c.Out, I32, c.X.Shape[0])
	}
	return k.err()
}
