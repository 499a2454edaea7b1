package cpu

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gaze-ml/gaze/internal/attn"
	"github.com/gaze-ml/gaze/internal/quant"
)

var floats = []attn.DType{attn.F32, attn.F16, attn.BF16}

// wider gives a tensor of t's values whose rows lie further apart, with NaN between them.
func wider(t attn.Tensor) attn.Tensor {
	n := t.Shape[t.Rank-1]
	rows := t.Len() / n
	w := fresh(t.DType, rows, n+16)
	store(w.Ptr, w.DType, filled(w.Len(), nan))
	v := values(&t)
	for i := range rows {
		store(w.At(i*(n+16)), w.DType, v[i*n:][:n])
	}
	w.Rank, w.Shape = t.Rank, t.Shape
	stride := n + 16
	for i := t.Rank - 2; i >= 0; i-- {
		w.Stride[i] = stride
		stride *= t.Shape[i]
	}
	w.Stride[t.Rank-1] = 1
	return w
}

func TestRMSNorm(t *testing.T) {
	r := rand.New(rand.NewPCG(11, 12))
	b := backend(t, 2)
	for _, dt := range floats {
		for _, tokens := range []int{1, 3, 200} {
			for _, residual := range []bool{false, true} {
				const h = 577
				x, y, w := of(dt, normal(r, tokens*h), tokens, h), of(dt, normal(r, tokens*h), tokens, h), of(dt, normal(r, h), h)
				c := attn.RMSNormCall{X: wider(x), Weight: w, Eps: 0.01}
				if residual {
					c.Residual = wider(y)
				}
				infer(t, &c)
				allocate(&c.Out)
				allocate(&c.Sum)
				run(t, b, &c)
				want, sum, ys, ws := values(&x), values(&x), values(&y), values(&w)
				for i := range tokens {
					row, s := sum[i*h:][:h], 0.0
					for j := range row {
						if residual {
							row[j] += ys[i*h+j]
						}
						s += float64(row[j]) * float64(row[j])
					}
					for j, v := range row {
						want[i*h+j] = float32(float64(v) / math.Sqrt(s/h+0.01) * float64(ws[j]))
					}
				}
				name := fmt.Sprintf("%v tokens=%d residual=%v", dt, tokens, residual)
				close32(t, name, values(&c.Out), want, tolerance(dt))
				if residual {
					close32(t, name+" sum", values(&c.Sum), sum, tolerance(dt))
				}
				c.Out, c.X = x, x // in place
				run(t, b, &c)
				close32(t, name+" in place", values(&x), want, tolerance(dt))
			}
		}
	}
}

func TestSiLUMul(t *testing.T) {
	r := rand.New(rand.NewPCG(13, 14))
	b := backend(t, 2)
	for _, dt := range floats {
		const tokens, n = 70, 129
		g := normal(r, tokens*n)
		for i := range g {
			g[i] *= 20
		}
		g[0], g[1] = -200, 200
		gate, up := of(dt, g, tokens, n), of(dt, normal(r, tokens*n), tokens, n)
		c := attn.SiLUMulCall{Gate: wider(gate), Up: wider(up)}
		infer(t, &c)
		allocate(&c.Out)
		run(t, b, &c)
		want, ups := make([]float32, tokens*n), values(&up)
		for i, v := range values(&gate) {
			want[i] = float32(float64(v) / (1 + math.Exp(-float64(v))) * float64(ups[i]))
		}
		close32(t, dt.String(), values(&c.Out), want, tolerance(dt))
		c.Gate, c.Out = gate, gate
		run(t, b, &c)
		close32(t, dt.String()+" in place", values(&gate), want, tolerance(dt))
	}
}

func TestRoPE(t *testing.T) {
	r := rand.New(rand.NewPCG(15, 16))
	b := backend(t, 2)
	const base, d, heads = 10000.0, 16, 3
	positions := []int32{0, 1, -1, 7, 4095, 100000}
	for _, dt := range floats {
		slices.Reverse(positions) // the same parameters again, other positions
		for _, pairing := range []attn.Pairing{attn.HalfSplit, attn.Adjacent} {
			slices.Reverse(positions[1:])
			for _, rotary := range []int{0, 12} {
				for _, factors := range []bool{false, true} {
					for _, scaling := range []attn.RoPEScaling{{}, {Factor: 4}, {Factor: 8, LowFreqFactor: 1, HighFreqFactor: 4, OriginalContext: 600}} {
						x := of(dt, normal(r, len(positions)*heads*d), len(positions), heads, d)
						c := attn.RoPECall{X: wider(x), Positions: ints(positions...), RoPEConfig: attn.RoPEConfig{Pairing: pairing, Base: base, RotaryDim: rotary, Scaling: scaling}}
						n := c.Rotary(c.X.Shape[2])
						f := make([]float32, n/2)
						for i := range f {
							f[i] = float32(1 + r.IntN(3))
						}
						if factors {
							c.Factors = of(attn.F32, f, n/2)
						}
						infer(t, &c)
						allocate(&c.Out)
						run(t, b, &c)
						want := values(&x)
						for i := range want {
							pos, e := positions[i/(heads*d)], i%d
							if pos < 0 || e >= n {
								continue
							}
							pair, partner, sign := e%(n/2), i-n/2, 1.0
							if e < n/2 {
								partner, sign = i+n/2, -1
							}
							if pairing == attn.Adjacent {
								pair, partner, sign = e/2, i-1, 1
								if e%2 == 0 {
									partner, sign = i+1, -1
								}
							}
							freq := math.Pow(base, -2*float64(pair)/float64(n))
							switch {
							case scaling.LowFreqFactor != 0: // Hugging Face's three cases
								wavelength := 2 * math.Pi / freq
								low, high := float64(scaling.OriginalContext)/scaling.LowFreqFactor, float64(scaling.OriginalContext)/scaling.HighFreqFactor
								switch {
								case wavelength > low:
									freq /= scaling.Factor
								case wavelength > high:
									smooth := (float64(scaling.OriginalContext)/wavelength - scaling.LowFreqFactor) / (scaling.HighFreqFactor - scaling.LowFreqFactor)
									freq = (1-smooth)*freq/scaling.Factor + smooth*freq
								}
							case scaling.Factor != 0:
								freq /= scaling.Factor
							}
							if factors {
								freq /= float64(f[pair])
							}
							in := values(&x)
							angle := float64(pos) * freq
							want[i] = float32(float64(in[i])*math.Cos(angle) + sign*float64(in[partner])*math.Sin(angle))
						}
						name := fmt.Sprintf("%v %v rotary=%d factors=%v %+v", dt, pairing, rotary, factors, scaling)
						close32(t, name, values(&c.Out), want, tolerance(dt))
						c.X, c.Out = x, x
						run(t, b, &c)
						close32(t, name+" in place", values(&x), want, tolerance(dt))
						pos := slice[int32](c.Positions.Ptr, len(positions)) // the one change since the last call
						for i := range pos {
							pos[i] = 0
						}
						rotated := values(&x)
						run(t, b, &c)
						close32(t, name+" at position 0", values(&x), rotated, 0)
					}
				}
			}
		}
	}
}

func TestLinearAndEmbedding(t *testing.T) {
	r := rand.New(rand.NewPCG(17, 18))
	b := backend(t, 2)
	weights := append([]attn.DType{attn.Q8_0, attn.Q4_0, attn.Q4_1, attn.Q5_0, attn.Q5_1, attn.Q4_K, attn.Q5_K, attn.Q6_K}, floats...)
	const in, out = 256, 70
	for _, wt := range weights {
		w := fresh(wt, out, in/wt.BlockLen())
		quant.Quantize(wt, slice[byte](w.Ptr, w.Bytes()), normal(r, out*in))
		wide := make([]float32, out*in)
		quant.Dequantize(wt, wide, slice[byte](w.Ptr, w.Bytes()))
		for _, dt := range floats {
			for _, tokens := range []int{0, 1, 5, 260} {
				for _, bias := range []attn.DType{attn.Invalid, attn.F32, dt} {
					x := of(dt, normal(r, tokens*in), tokens, in)
					c := attn.LinearCall{X: wider(x), Weight: w}
					plus := make([]float32, out)
					if bias != attn.Invalid {
						c.Bias = of(bias, normal(r, out), out)
						plus = values(&c.Bias)
					}
					infer(t, &c)
					allocate(&c.Out)
					run(t, b, &c)
					want, xs := make([]float32, tokens*out), values(&x)
					for i := range want {
						sum := float64(plus[i%out])
						for j, v := range wide[i%out*in:][:in] {
							sum += float64(v) * float64(xs[i/out*in+j])
						}
						want[i] = float32(sum)
					}
					// sums of 256 products, each around 1 in size
					close32(t, fmt.Sprintf("linear %v weights=%v tokens=%d bias=%v", dt, wt, tokens, bias), values(&c.Out), want, 4*tolerance(dt))
				}
			}
			ids := []int32{69, 0, 7, 7}
			c := attn.EmbeddingCall{IDs: ints(ids...), Weight: w, OutDType: dt}
			infer(t, &c)
			allocate(&c.Out)
			run(t, b, &c)
			var want []float32
			for _, id := range ids {
				want = append(want, wide[int(id)*in:][:in]...)
			}
			rounded := of(dt, want, len(want))
			close32(t, fmt.Sprintf("embedding %v weights=%v", dt, wt), values(&c.Out), values(&rounded), 0)
		}
	}
}

func TestMergeLSE(t *testing.T) {
	r := rand.New(rand.NewPCG(19, 20))
	b := backend(t, 2)
	inf := float32(math.Inf(-1))
	for _, dt := range floats {
		const tokens, heads, d = 5, 3, 40
		a, o := of(dt, normal(r, tokens*heads*d), tokens, heads, d), of(dt, normal(r, tokens*heads*d), tokens, heads, d)
		la, lb := normal(r, tokens*heads), normal(r, tokens*heads)
		la[0], la[1], lb[1], la[2], lb[3] = inf, inf, inf, 90, -90
		store(a.Ptr, dt, filled(2*d, nan)) // parts without keys don't count
		store(o.At(d), dt, filled(d, nan))
		c := attn.MergeLSECall{OutA: wider(a), OutB: wider(o), LSEA: of(attn.F32, la, tokens, heads), LSEB: of(attn.F32, lb, tokens, heads)}
		infer(t, &c)
		allocate(&c.Out)
		allocate(&c.LSE)
		run(t, b, &c)
		want, lse := make([]float32, tokens*heads*d), make([]float32, tokens*heads)
		for i := range want {
			row := i / d
			wa, wb := math.Exp(float64(la[row])), math.Exp(float64(lb[row]))
			lse[row] = float32(math.Log(wa + wb))
			var sum float64
			if wa > 0 {
				sum += wa / (wa + wb) * float64(values(&a)[i])
			}
			if wb > 0 {
				sum += wb / (wa + wb) * float64(values(&o)[i])
			}
			want[i] = float32(sum)
		}
		close32(t, dt.String(), values(&c.Out), want, tolerance(dt))
		close32(t, "lse", values(&c.LSE), lse, 1e-6)
	}
}
