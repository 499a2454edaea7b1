package attn

// The calls of a decoder layer besides attention. Unless said otherwise every float operand has one dtype, f32, f16 or bf16,
// sums are f32, and rows may be strided while their elements lie together.

// RMSNormCall is root-mean-square normalisation, with the residual add before it:
//
//	r = x + residual            (r = x where residual is absent)
//	out = r / sqrt(mean(r²) + eps) · weight
//
// Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019.
type RMSNormCall struct {
	X, Residual Tensor // [T,H]
	Weight      Tensor // [H], the dtype of x or f32
	Eps         float64
	Out         Tensor // [T,H]
	Sum         Tensor // [T,H] r, only with a residual; may be absent
}

// Op is "rms_norm".
func (c *RMSNormCall) Op() string { return "rms_norm" }

// Run gives the call to b.
func (c *RMSNormCall) Run(b Backend) error { return b.RMSNorm(c) }

// Infer checks the call and describes Out, and Sum where there is a residual.
func (c *RMSNormCall) Infer() error {
	k := checker{op: c.Op()}
	ok := k.tensor("x", &c.X, 2, F32, F16, BF16)
	ok = k.tensor("weight", &c.Weight, 1, F32, c.X.DType) && ok
	ok = k.optional("residual", &c.Residual, 2, c.X.DType) && ok
	k.factor("eps", c.Eps)
	if !ok {
		return k.err()
	}
	t, h := c.X.Shape[0], c.X.Shape[1]
	k.shape("residual", &c.Residual, t, h)
	k.shape("weight", &c.Weight, h)
	k.unitLast("x", &c.X)
	k.unitLast("residual", &c.Residual)
	k.packed("weight", &c.Weight)
	if h < 1 {
		k.add(ErrShape, "x", "rows of 1 element or more", "%v", c.X.String())
	}
	if k.ok() {
		k.output("out", &c.Out, c.X.DType, t, h)
		if c.Residual.Valid() {
			k.output("sum", &c.Sum, c.X.DType, t, h)
		}
		k.inPlace("out", &c.Out, named{"x", &c.X}, named{"residual", &c.Residual})
		k.inPlace("sum", &c.Sum, named{"x", &c.X}, named{"residual", &c.Residual})
		k.apart("out", &c.Out, named{"weight", &c.Weight}, named{"sum", &c.Sum})
		k.apart("sum", &c.Sum, named{"weight", &c.Weight})
	}
	return k.err()
}

// LinearCall is out = x·Wᵀ + bias, out[t,o] = Σ_i x[t,i]·w[o,i] + bias[o]. The weights may be GGUF blocks; activations are
// never quantised.
type LinearCall struct {
	X      Tensor // [T,In]
	Weight Tensor // [Out,In] of any float dtype, or [Out,In/BlockLen] blocks; contiguous rows
	Bias   Tensor // [Out] the dtype of x or f32, or absent
	Out    Tensor // [T,Out]
}

// Op is "linear".
func (c *LinearCall) Op() string { return "linear" }

// Run gives the call to b.
func (c *LinearCall) Run(b Backend) error { return b.Linear(c) }

// Infer checks the call and describes Out.
func (c *LinearCall) Infer() error {
	k := checker{op: c.Op()}
	ok := k.tensor("x", &c.X, 2, F32, F16, BF16)
	ok = k.weight(&c.Weight) && ok
	ok = k.optional("bias", &c.Bias, 1, F32, c.X.DType) && ok
	if !ok {
		return k.err()
	}
	in, n := c.X.Shape[1], c.Weight.Shape[0]
	k.weightRow(&c.Weight, in, "the columns of x")
	k.shape("bias", &c.Bias, n)
	k.packed("bias", &c.Bias)
	k.unitLast("x", &c.X)
	if k.ok() {
		k.output("out", &c.Out, c.X.DType, c.X.Shape[0], n)
		k.apart("out", &c.Out, named{"x", &c.X}, named{"weight", &c.Weight}, named{"bias", &c.Bias})
	}
	return k.err()
}

func (c *checker) weight(w *Tensor) bool {
	return c.tensor("weight", w, 2, F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K, Q6_K)
}

func (c *checker) weightRow(w *Tensor, n int, what string) {
	if have := w.Shape[1] * w.DType.BlockLen(); have != n {
		c.add(ErrShape, "weight", "rows of "+what, "%d weights a row (%v), %d columns", have, w.String(), n)
	}
	c.unitLast("weight", w)
}

// SiLUMulCall is out = gate / (1 + exp(-gate)) · up, the gated activation of Llama's MLP. Shazeer, "GLU Variants", 2020.
type SiLUMulCall struct {
	Gate, Up Tensor // [T,I]
	Out      Tensor // [T,I]
}

// Op is "silu_mul".
func (c *SiLUMulCall) Op() string { return "silu_mul" }

// Run gives the call to b.
func (c *SiLUMulCall) Run(b Backend) error { return b.SiLUMul(c) }

// Infer checks the call and describes Out.
func (c *SiLUMulCall) Infer() error {
	k := checker{op: c.Op()}
	ok := k.tensor("gate", &c.Gate, 2, F32, F16, BF16)
	ok = k.tensor("up", &c.Up, 2, c.Gate.DType) && ok
	if !ok {
		return k.err()
	}
	t, n := c.Gate.Shape[0], c.Gate.Shape[1]
	k.shape("up", &c.Up, t, n)
	k.unitLast("gate", &c.Gate)
	k.unitLast("up", &c.Up)
	if k.ok() {
		k.output("out", &c.Out, c.Gate.DType, t, n)
		k.inPlace("out", &c.Out, named{"gate", &c.Gate}, named{"up", &c.Up})
	}
	return k.err()
}

// EmbeddingCall gathers rows: out[t,:] = weight[ids[t],:]. Blocks are dequantised. An id outside [0,V) is ErrArgument, and on a device also
// a row of 0.
type EmbeddingCall struct {
	IDs      Tensor // [T] int32
	Weight   Tensor // [V,H] or [V,H/BlockLen] blocks
	OutDType DType  // Invalid: the dtype of Out, else of Weight, f32 for blocks
	Out      Tensor // [T,H] f32, f16 or bf16

	CheckValues bool // wait and check ids before the launch on a device; the CPU always checks
}

// Op is "embedding".
func (c *EmbeddingCall) Op() string { return "embedding" }

// Run gives the call to b.
func (c *EmbeddingCall) Run(b Backend) error { return b.Embedding(c) }

// Infer checks the call and describes Out.
func (c *EmbeddingCall) Infer() error {
	k := checker{op: c.Op()}
	ok := k.tensor("ids", &c.IDs, 1, I32)
	ok = k.weight(&c.Weight) && ok
	if !ok {
		return k.err()
	}
	out := c.OutDType
	switch {
	case out != Invalid:
	case c.Out.Valid():
		out = c.Out.DType
	case c.Weight.DType.Quantised():
		out = F32
	default:
		out = c.Weight.DType
	}
	if !out.Float() {
		k.add(ErrDType, "out_dtype", "float32, float16 or bfloat16", "%v", out)
	}
	k.packed("ids", &c.IDs)
	k.unitLast("weight", &c.Weight)
	if k.ok() {
		k.output("out", &c.Out, out, c.IDs.Shape[0], c.Weight.Shape[1]*c.Weight.DType.BlockLen())
		k.apart("out", &c.Out, named{"ids", &c.IDs}, named{"weight", &c.Weight})
	}
	return k.err()
}

// CastCall copies x to another dtype, rounded once, to nearest even and without a scale. What is beyond float16's range becomes infinite,
// what is beyond float8_e4m3's becomes ±448; NaN stays NaN.
type CastCall struct {
	X        Tensor // f32, f16, bf16 or e4m3 of any shape, contiguous
	OutDType DType  // Invalid: the dtype of Out, else of X
	Out      Tensor // f32, f16, bf16 or e4m3 in the shape of X
}

// Op is "cast".
func (c *CastCall) Op() string { return "cast" }

// Run gives the call to b.
func (c *CastCall) Run(b Backend) error { return b.Cast(c) }

// Infer checks the call and describes Out.
func (c *CastCall) Infer() error {
	k := checker{op: c.Op()}
	if !k.tensor("x", &c.X, c.X.Rank, F32, F16, BF16, E4M3) {
		return k.err()
	}
	out := c.OutDType
	switch {
	case out != Invalid:
	case c.Out.Valid():
		out = c.Out.DType
	default:
		out = c.X.DType
	}
	if !out.Float() && out != E4M3 {
		k.add(ErrDType, "out_dtype", "float32, float16, bfloat16 or float8_e4m3", "%v", out)
	}
	k.packed("x", &c.X)
	if k.ok() {
		k.output("out", &c.Out, out, c.X.Shape[:c.X.Rank]...)
		k.apart("out", &c.Out, named{"x", &c.X})
	}
	return k.err()
}

// MergeLSECall joins attention over two disjoint sets of keys. With natural logs, m = max(a, b):
//
//	lse = m + ln(exp(a-m) + exp(b-m)),  out = outA·exp(a-lse) + outB·exp(b-lse)
//
// Two LSEs of -inf give 0 and -inf. Ye et al., "FlashInfer", 2025, section 2.2 (the attention state's ⊕).
type MergeLSECall struct {
	OutA, OutB Tensor // [T,H,D]
	LSEA, LSEB Tensor // [T,H] f32
	Out        Tensor // [T,H,D]
	LSE        Tensor // [T,H] f32
}

// Op is "merge_lse".
func (c *MergeLSECall) Op() string { return "merge_lse" }

// Run gives the call to b.
func (c *MergeLSECall) Run(b Backend) error { return b.MergeLSE(c) }

// Infer checks the call and describes Out and LSE.
func (c *MergeLSECall) Infer() error {
	k := checker{op: c.Op()}
	ok := k.tensor("out_a", &c.OutA, 3, F32, F16, BF16)
	ok = k.tensor("out_b", &c.OutB, 3, c.OutA.DType) && ok
	ok = k.tensor("lse_a", &c.LSEA, 2, F32) && ok
	ok = k.tensor("lse_b", &c.LSEB, 2, F32) && ok
	if !ok {
		return k.err()
	}
	t, h, d := c.OutA.Shape[0], c.OutA.Shape[1], c.OutA.Shape[2]
	k.shape("out_b", &c.OutB, t, h, d)
	k.shape("lse_a", &c.LSEA, t, h)
	k.shape("lse_b", &c.LSEB, t, h)
	k.unitLast("out_a", &c.OutA)
	k.unitLast("out_b", &c.OutB)
	k.unitLast("lse_a", &c.LSEA)
	k.unitLast("lse_b", &c.LSEB)
	if k.ok() {
		k.output("out", &c.Out, c.OutA.DType, t, h, d)
		k.output("lse", &c.LSE, F32, t, h)
		k.inPlace("out", &c.Out, named{"out_a", &c.OutA}, named{"out_b", &c.OutB})
		k.inPlace("lse", &c.LSE, named{"lse_a", &c.LSEA}, named{"lse_b", &c.LSEB})
		k.apart("out", &c.Out, named{"lse_a", &c.LSEA}, named{"lse_b", &c.LSEB}, named{"lse", &c.LSE})
		k.apart("lse", &c.LSE, named{"out_a", &c.OutA}, named{"out_b", &c.OutB})
	}
	return k.err()
}
