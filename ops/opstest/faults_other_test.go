package opstest

import (
	"math"

	"github.com/gaze-ml/gaze/internal/attn"
)

// prefillFaults are wrong backends that the prefill cases must catch.
func prefillFaults() []fault {
	changePrefill := func(f func(c *attn.PrefillCall)) attn.Backend {
		return &meddler{before: func(c attn.Call) { f(c.(*attn.PrefillCall)) }}
	}
	return []fault{
		{"causal mask anchored top left", nil, seeing(func(_ *problem, r *request, i, c int, _ func(i, c int) bool) bool { return r.s-r.l+c <= i })},
		{"causal mask anchored at the maxima", nil, problemFault(func(p *problem, c attn.Call) {
			shift := c.(*attn.PrefillCall).MaxKVLen - c.(*attn.PrefillCall).MaxQLen
			for n := range p.reqs {
				r := &p.reqs[n]
				r.mask = func(i, col int) bool { return !p.causal || r.s-r.l+col <= i+shift }
			}
		})},
		{"shift clamped at 0", nil, eachRequest(func(p *problem, r *request) {
			if p.causal && r.l > r.s {
				r.mask = func(i, c int) bool { return r.s-r.l+c <= i }
			}
		})},
		{"always causal", nil, problemFault(func(p *problem, _ attn.Call) { p.causal = true })},
		{"never causal", nil, problemFault(func(p *problem, _ attn.Call) { p.causal = false })},
		{"q_scale and k_scale ignored", nil, problemFault(func(p *problem, c attn.Call) { p.c1 = c.(*attn.PrefillCall).Scale })},
		{"v_scale ignored", nil, problemFault(func(p *problem, _ attn.Call) { p.c2 = 1 })},
		{"padding of the LSE left", nil, skipping("lse padding")},
		{"rows past the end left", nil, skipping("rows past the end")},
		{"offsets of q ignored", nil, changePrefill(func(c *attn.PrefillCall) { c.OffsetsQ = attn.Tensor{} })},
		{"offsets of out ignored", nil, changePrefill(func(c *attn.PrefillCall) { c.OffsetsO = attn.Tensor{} })},
		{"offsets of k ignored", nil, changePrefill(func(c *attn.PrefillCall) { c.OffsetsK = attn.Tensor{} })},
		{"offsets of v ignored", nil, changePrefill(func(c *attn.PrefillCall) { c.OffsetsV = attn.Tensor{} })},
		{"offsets of the LSE ignored", nil, changePrefill(func(c *attn.PrefillCall) { c.OffsetsStats = attn.Tensor{} })},
		{"bad values pass in silence", nil, &careless{}},
		{"V with K's page stride", nil, placed("V", func(at int, c attn.Call) int {
			k, v := &c.(*attn.PrefillCall).Key, &c.(*attn.PrefillCall).Value
			return (at/v.Stride[0]*k.Stride[0] + at%v.Stride[0]) % extent(v)
		})},
		{"page offset in uint32", nil, placed("page offset", func(at int, _ attn.Call) int { return int(uint32(at)) })},
		{"page one off", nil, placed("page", func(at int, _ attn.Call) int { return at ^ 1 })},
		{"LSE without the descales", nil, solutionFault(func(p *problem, s *solution, c attn.Call) {
			q := *p
			q.c1 = c.(*attn.PrefillCall).Scale
			s.lse = q.solve().lse
		})},
		{"writes between the requests", nil, &meddler{after: func(c attn.Call) {
			if p := c.(*attn.PrefillCall); p.OffsetsO.Valid() && p.Batch() > 0 && intAt(&p.OffsetsO, 0) > 0 {
				bytesAt(&p.Out, 0, 1)[0] = 0
			}
		}}},
	}
}

// layerFaults are wrong backends for the cases of the other ops.
func layerFaults() []fault {
	norm, rope, merge := []string{"rms_norm"}, []string{"rope"}, []string{"merge_lse"}
	changeRoPE := func(f func(c *attn.RoPECall)) attn.Backend {
		return &meddler{before: func(c attn.Call) { f(c.(*attn.RoPECall)) }}
	}
	changeAppend := func(f func(c *attn.AppendCall)) attn.Backend {
		return &meddler{before: func(c attn.Call) { f(c.(*attn.AppendCall)) }}
	}
	softmax, topk := []string{"softmax"}, []string{"top_k"}
	changeSoftmax := func(f func(c *attn.SoftmaxCall)) attn.Backend {
		return &meddler{before: func(c attn.Call) { f(c.(*attn.SoftmaxCall)) }}
	}
	storing := func(f func(x float64) float64) attn.Backend {
		return bent(faults{store: func(_ *attn.Tensor, _ int, x float64) float64 { return f(x) }})
	}
	storingE4M3 := func(f func(x float64) float64) attn.Backend {
		return bent(faults{store: func(t *attn.Tensor, _ int, x float64) float64 {
			if t.DType == attn.E4M3 {
				return f(x)
			}
			return x
		}})
	}
	return []fault{
		{"bad positions pass in silence", []string{"append_kv"}, &careless{}},
		{"bad ids pass in silence", []string{"embedding"}, &careless{}},
		{"bad positions of rope pass in silence", []string{"rope"}, &careless{}},
		{"append one slot off", []string{"append_kv"}, placed("append slot", func(at int, c attn.Call) int { return at ^ 1 })},
		{"append multiplies by the scale", []string{"append_kv"}, skipping("divide by the scale")},
		{"append offset in uint32", []string{"append_kv"}, placed("page offset", func(at int, _ attn.Call) int { return int(uint32(at)) })},
		{"append truncates", []string{"append_kv"}, bent(faults{store: func(t *attn.Tensor, _ int, x float64) float64 {
			if s := formats[t.DType].step(x); t.DType != attn.F32 {
				return math.Trunc(x/s) * s
			}
			return x
		}})},
		{"append with pairings swapped", []string{"append_kv"}, changeAppend(func(c *attn.AppendCall) {
			if c.RoPE() {
				c.Pairing ^= 1
			}
		})},
		{"append with rotary_dim ignored", []string{"append_kv"}, changeAppend(func(c *attn.AppendCall) { c.RotaryDim = 0 })},
		{"append with factors ignored", []string{"append_kv"}, changeAppend(func(c *attn.AppendCall) { c.Factors = attn.Tensor{} })},
		{"append with scaling ignored", []string{"append_kv"}, changeAppend(func(c *attn.AppendCall) { c.Scaling = attn.RoPEScaling{} })},
		{"append without RoPE", []string{"append_kv"}, changeAppend(func(c *attn.AppendCall) { c.RoPEConfig = attn.RoPEConfig{} })},
		{"append turns by the next position", []string{"append_kv"}, placed("position", func(at int, _ attn.Call) int { return at + 1 })},
		{"append turns V too", []string{"append_kv"}, skipping("V as it is")},
		{"append rounds keys twice", []string{"append_kv"}, skipping("one rounding")},
		{"append leaves the query unturned", []string{"append_kv"}, skipping("turn the query")},
		{"append leaves out queries of skipped rows", []string{"append_kv"}, skipping("copy skipped queries")},
		{"eps outside the root", norm, &meddler{after: func(c attn.Call) {
			n := c.(*attn.RMSNormCall)
			d := *n
			d.Eps, d.Sum = n.Eps*n.Eps, attn.Tensor{}
			_ = new(Reference).RMSNorm(&d)
		}}},
		{"residual forgotten", norm, &meddler{after: func(c attn.Call) {
			d := *c.(*attn.RMSNormCall)
			d.Residual, d.Sum = attn.Tensor{}, attn.Tensor{}
			_ = new(Reference).RMSNorm(&d)
		}}},
		{"sum not written", norm, &meddler{after: func(c attn.Call) {
			if n := c.(*attn.RMSNormCall); n.Sum.Valid() {
				for i := range n.Sum.Len() {
					b := bytesAt(&n.Sum, i, 1)
					for k := range b {
						b[k] = poisonByte
					}
				}
			}
		}}},
		{"pairings swapped", rope, changeRoPE(func(c *attn.RoPECall) { c.Pairing ^= 1 })},
		{"scaling ignored", rope, changeRoPE(func(c *attn.RoPECall) { c.Scaling = attn.RoPEScaling{} })},
		{"Llama 3's scaling as a plain factor", rope, changeRoPE(func(c *attn.RoPECall) { c.Scaling.LowFreqFactor = 0 })},
		{"factors ignored", rope, changeRoPE(func(c *attn.RoPECall) { c.Factors = attn.Tensor{} })},
		{"rotary_dim ignored", rope, changeRoPE(func(c *attn.RoPECall) { c.RotaryDim = 0 })},
		{"position -1 turned", rope, placed("position", func(at int, _ attn.Call) int {
			if at < 0 {
				return 1
			}
			return at
		})},
		{"position one off", rope, placed("position", func(at int, _ attn.Call) int { return max(at, at+1) })},
		{"angles in f32", rope, placed("position", func(at int, _ attn.Call) int {
			if at > 1<<16 {
				return at + 1
			}
			return at
		})},
		{"bias forgotten", []string{"linear"}, skipping("bias")},
		{"output in 16 bits", []string{"linear"}, storing(func(x float64) float64 { return formats[attn.BF16].round(x) })},
		{"gate and up swapped", []string{"silu_mul"}, skipping("gate before up")},
		{"merge in base 2", merge, &meddler{after: func(c attn.Call) {
			m := *c.(*attn.MergeLSECall)
			for i := range m.LSE.Len() {
				var x [1]float64
				floatsAt(x[:], &m.LSE, i)
				encodeRow(bytesAt(&m.LSE, i, 1), attn.F32, []float64{x[0] * math.Log2E})
			}
		}}},
		{"merge takes the first side", merge, &meddler{after: func(c attn.Call) {
			m := *c.(*attn.MergeLSECall)
			m.OutB, m.LSEB = m.OutA, m.LSEA
			m.LSE = attn.Of(attn.F32, m.LSE.Shape[0], m.LSE.Shape[1])
			b := make([]byte, m.LSE.Bytes()+1)
			m.LSE.Ptr = pointer(b)
			_ = new(Reference).MergeLSE(&m)
		}}},
		{"argmax one off", []string{"argmax"}, placed("argmax", func(at int, _ attn.Call) int { return at + 1 })},
		{"top_k one off", topk, placed("index", func(at int, _ attn.Call) int { return at + 1 })},
		{"top_k in the order of columns", topk, skipping("descending order")},
		{"top_k with equals the wrong way round", topk, skipping("the order of equals")},
		{"top_k of -0 gives 0", topk, storing(func(x float64) float64 { return x + 0 })},
		{"temperature ignored", softmax, changeSoftmax(func(c *attn.SoftmaxCall) { c.Temperature = 1 })},
		{"logits times the temperature", softmax, changeSoftmax(func(c *attn.SoftmaxCall) { c.Temperature = 1 / c.Temperature })},
		{"large logits clipped", softmax, skipping("the largest logit")},
		{"equal shares where no token is allowed", softmax, skipping("a row without a token")},
		{"probabilities in 16 bits", softmax, storing(func(x float64) float64 { return formats[attn.F16].round(x) })},
		{"a cast that cuts off", []string{"cast"}, storing(func(x float64) float64 {
			if bits := math.Float32bits(float32(x)); x == x {
				return float64(math.Float32frombits(bits &^ (1<<13 - 1)))
			}
			return x
		})},
		{"a cast without subnormals", []string{"cast"}, storing(func(x float64) float64 {
			if math.Abs(x) < 0x1p-14 {
				return math.Copysign(0, x)
			}
			return x
		})},
		{"a cast that saturates", []string{"cast"}, storing(func(x float64) float64 { return max(min(x, 65504), -65504) })},
		{"a cast to e4m3 by way of float16", []string{"cast"}, storingE4M3(formats[attn.F16].round)},
		{"a cast to e4m3 that does not saturate", []string{"cast"}, storingE4M3(func(x float64) float64 {
			if math.Abs(x) > 464 { // more than half a step beyond the largest
				return math.NaN()
			}
			return x
		})},
		{"a cast to e4m3 that saturates NaN", []string{"cast"}, storingE4M3(func(x float64) float64 {
			if x != x {
				return 448
			}
			return x
		})},
		{"embedding row one off", []string{"embedding"}, &shiftedEmbedding{}},
	}
}
