package attn

import "math"

// Pairing says which elements of a head RoPE turns together.
type Pairing uint8

// The pairings.
const (
	HalfSplit Pairing = iota // i with i+R/2: GPT-NeoX, Hugging Face's Llama weights
	Adjacent                 // 2i with 2i+1: the paper, GGUF files of architecture llama
)

// String gives "half-split" or "adjacent".
func (p Pairing) String() string {
	if p == Adjacent {
		return "adjacent"
	}
	return "half-split"
}

// RoPEScaling stretches RoPE's wavelengths for contexts longer than those of the training. The zero value does nothing.
// With LowFreqFactor set it is Llama 3's rule, otherwise every frequency is divided by Factor.
type RoPEScaling struct {
	Factor          float64
	LowFreqFactor   float64
	HighFreqFactor  float64
	OriginalContext int // tokens
}

// RoPEConfig is which pairs RoPE turns and how fast, for [RoPECall] and [AppendCall].
type RoPEConfig struct {
	Pairing   Pairing
	Base      float64
	RotaryDim int // R, the leading elements of a head that turn; 0: all
	Scaling   RoPEScaling
}

// Rotary is the number of elements of a head of size d that turn.
func (r *RoPEConfig) Rotary(d int) int {
	if r.RotaryDim == 0 {
		return d
	}
	return r.RotaryDim
}

// Frequency is base^(-2i/R), stretched: the radians a position that pair i of a head of size d turns by, before factors. Llama 3's rule
// keeps wavelengths below original/high_freq_factor, multiplies those above original/low_freq_factor by factor and goes from one to the
// other between them (Meta's llama-models, apply_scaling).
func (r *RoPEConfig) Frequency(i, d int) float64 {
	f := math.Pow(r.Base, -2*float64(i)/float64(r.Rotary(d)))
	switch s := r.Scaling; {
	case s.LowFreqFactor != 0:
		turns := float64(s.OriginalContext) * f / (2 * math.Pi) // in the original context
		keep := min(max((turns-s.LowFreqFactor)/(s.HighFreqFactor-s.LowFreqFactor), 0), 1)
		return (1-keep)*f/s.Factor + keep*f
	case s.Factor != 0:
		return f / s.Factor
	}
	return f
}

// scalars checks what needs no tensor.
func (r *RoPEConfig) scalars(k *checker) {
	k.positive("base", r.Base)
	if r.Pairing > Adjacent {
		k.add(ErrArgument, "pairing", "half-split or adjacent", "%d", r.Pairing)
	}
	if s := r.Scaling; s != (RoPEScaling{}) {
		k.positive("scaling.factor", s.Factor)
		if s.LowFreqFactor != 0 || s.HighFreqFactor != 0 || s.OriginalContext != 0 {
			k.positive("scaling.low_freq_factor", s.LowFreqFactor)
			k.positive("scaling.original_context", float64(s.OriginalContext))
			if !(s.HighFreqFactor > s.LowFreqFactor) {
				k.add(ErrArgument, "scaling.high_freq_factor", "above low_freq_factor", "%v and %v", s.HighFreqFactor, s.LowFreqFactor)
			}
		}
	}
}

// head checks what heads of size d allow, and the factors.
func (r *RoPEConfig) head(k *checker, d int, factors *Tensor) {
	n := r.Rotary(d)
	if n < 0 || n%2 != 0 || n > d {
		k.add(ErrArgument, "rotary_dim", "even, 0 to head_dim", "%d with head_dim %d", n, d)
	}
	k.shape("factors", factors, n/2)
	k.packed("factors", factors)
}

// RoPECall rotates pairs of elements of every head by position·base^(-2i/R), i = 0 … R/2-1:
//
//	(x, y) → (x·cos - y·sin, x·sin + y·cos)
//
// Su et al., "RoFormer", 2021. A row with a position of -1 is copied as it is; a position below is ErrArgument, and on a device also a row
// of 0.
type RoPECall struct {
	X         Tensor // [T,H,D]
	Positions Tensor // [T] int32
	Factors   Tensor // [R/2] f32 that divide the frequencies (GGUF's rope_freqs.weight), or absent
	RoPEConfig
	Out Tensor // [T,H,D]

	CheckValues bool // wait and check positions before the launch on a device; the CPU always checks
}

// Op is "rope".
func (c *RoPECall) Op() string { return "rope" }

// Run gives the call to b.
func (c *RoPECall) Run(b Backend) error { return b.RoPE(c) }

// Infer checks the call and describes Out.
func (c *RoPECall) Infer() error {
	k := checker{op: c.Op()}
	ok := k.tensor("x", &c.X, 3, F32, F16, BF16)
	ok = k.tensor("positions", &c.Positions, 1, I32) && ok
	ok = k.optional("factors", &c.Factors, 1, F32) && ok
	c.scalars(&k)
	if !ok {
		return k.err()
	}
	t, h, d := c.X.Shape[0], c.X.Shape[1], c.X.Shape[2]
	c.head(&k, d, &c.Factors)
	k.shape("positions", &c.Positions, t)
	k.packed("positions", &c.Positions)
	k.unitLast("x", &c.X)
	if k.ok() {
		k.output("out", &c.Out, c.X.DType, t, h, d)
		k.inPlace("out", &c.Out, named{"x", &c.X})
		k.apart("out", &c.Out, named{"positions", &c.Positions}, named{"factors", &c.Factors})
	}
	return k.err()
}
