package opstest

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/gaze-ml/gaze/internal/attn"
)

// The grids are the parameter lists of FlashInfer's own tests of the two functions. Their product is far more than anyone runs
// at each change, so a seeded sample of it is part of every run.

// grid is a product of axes; point n is one choice on each.
type grid struct {
	axes  []int // lengths
	total int
}

func newGrid(axes ...int) grid {
	g := grid{axes: axes, total: 1}
	for _, n := range axes {
		g.total *= n
	}
	return g
}

func (g grid) point(n int) []int {
	out := make([]int, len(g.axes))
	for i, a := range g.axes {
		out[i], n = n%a, n/a
	}
	return out
}

// decodeTuples are (B, L, P, Hkv, G) of trtllm_batch_decode's tests.
var decodeTuples = [][5]int{
	{4, 1, 16, 2, 1}, {4, 1, 32, 2, 5}, {4, 2, 64, 2, 5}, {4, 3, 32, 2, 5}, {4, 3, 64, 2, 1}, {4, 4, 64, 4, 1}, {4, 5, 64, 4, 8},
	{128, 1, 64, 2, 5}, {128, 2, 32, 4, 1}, {128, 3, 16, 4, 8}, {128, 4, 16, 2, 5}, {128, 5, 16, 2, 5},
	{256, 1, 64, 4, 8}, {256, 2, 16, 2, 8}, {256, 3, 64, 4, 5}, {256, 4, 32, 2, 8}, {256, 5, 32, 2, 1},
}

// gridCases lists the points that the seed draws from the grids, about sample of a large one, or all of them.
func gridCases(seed uint64, sample int) []Case {
	var out []Case
	if sample == 0 {
		sample = DefaultGrid
	}
	for i, g := range []struct {
		op   string
		grid grid
		make func(point []int, rng *rand.Rand) (string, body)
	}{
		{"decode", newGrid(len(decodeTuples), 2, len(DecodeDTypes())-1, 3, 2, 2, 2, 2, 2), decodePoint},
		{"decode", newGrid(3, 3, 2, 2, 2), sinkPoint},
		{"decode", newGrid(2, 2, 2, 4, 2), truncatingPoint},
		{"decode", newGrid(5, 2, 2, 2, 2, 2, 2, 2, 2, 4), lowLevelPoint},
		{"decode", newGrid(4, 2, 2, 2), widePoint},
		{"decode", newGrid(9, 6, 3), longPoint},
		{"prefill", newGrid(2, 3, 3, 3, 2, 2, 2, 3), prefillPoint},
		{"prefill", newGrid(2, 4, 3, 2, 2, 2), raggedPoint},
	} {
		points := rand.New(rand.NewPCG(seed, uint64(i))).Perm(g.grid.total)
		if sample != AllPoints { // small grids give less
			points = points[:max(sample, 0)*g.grid.total/(g.grid.total+10*max(sample, 0))]
		}
		slices.Sort(points)
		for _, n := range points {
			if name, b := g.make(g.grid.point(n), rand.New(rand.NewPCG(seed, uint64(n)))); b != nil {
				out = append(out, Case{Name: fmt.Sprintf("%s/grid/%s", g.op, name), Op: g.op, List: Correctness, body: b,
					Why: "a point of the grid of FlashInfer's tests"})
			}
		}
	}
	return out
}

func onOff(i int, name string) string { return fmt.Sprintf("/%s=%s", name, []string{"no", "yes"}[i]) }

// decodePoint: tuple × window × dtypes × PDL × sinks × layout × strided query × uniform or ragged rows × head dim.
func decodePoint(p []int, rng *rand.Rand) (string, body) {
	t := decodeTuples[p[0]]
	dts := DecodeDTypes()[1+p[2]] // f32 is ours, not FlashInfer's
	window, d := []int{-1, 127}[p[1]], []int{128, 256}[p[8]]
	if d == 256 && t[0] > 4 {
		return "", nil // upstream runs the wide heads at small batches
	}
	lens := make([]int, t[0])
	for b := range lens {
		lens[b] = t[1] + rng.IntN(111)
	}
	lens[len(lens)-1] = t[1] + 110
	s := newDecode(lens, t[1], t[2], t[3]*t[4], t[3], d).with(func(s *decodeSpec) {
		s.q, s.kv, s.out = dts[0], dts[1], dts[2]
		s.window, s.pdl, s.form = window, int8(p[3]-1), []form{stackedHND, stackedNHD}[p[5]]
		s.qGap, s.given, s.unsigned = p[6]*128, rng.IntN(2) == 1, rng.IntN(2) == 1
		s.deviceScales, s.bmm1, s.bmm2 = dts[1] == attn.E4M3, s.bmm1*(0.5+rng.Float64()), 0.5+rng.Float64()
		if dts[2] == attn.U8 {
			s.osfScale = 300
		}
		if p[4] == 1 {
			s.sinks = randomSinks(rng, s.hq)
		}
		if p[7] == 1 {
			s.qLens, s.maxQ = make([]int, len(lens)), t[1]
			for b := range s.qLens {
				s.qLens[b] = 1 + rng.IntN(t[1])
			}
			s.qLen = 0
		}
	})
	return fmt.Sprintf("batch=%d/q_len=%d/page=%d/heads=%d-%d/d=%d/window=%d/q=%v/kv=%v/out=%s/pdl=%d/layout=%s", t[0], t[1], t[2], s.hq, s.hkv, d, window,
		s.q, s.kv, outName(dts[2]), s.pdl, s.form) + onOff(p[4], "sinks") + onOff(p[6], "strided") + onOff(p[7], "ragged"), s
}

func randomSinks(rng *rand.Rand, n int) []float64 {
	out := make([]float64, n)
	for i := range out {
		out[i] = float64(float32(5 * rng.Float64()))
	}
	return out
}

// sinkPoint: batch × length × KV heads × head dim × dtype, unscaled scores.
func sinkPoint(p []int, rng *rand.Rand) (string, body) {
	batch, length, hkv, d := []int{1, 4, 16}[p[0]], []int{32, 128, 1024}[p[1]], []int{8, 32}[p[2]], []int{64, 128}[p[3]]
	lens := make([]int, batch)
	for b := range lens {
		lens[b] = length
	}
	s := newDecode(lens, 1, 32, 32, hkv, d).with(func(s *decodeSpec) {
		s.q, s.bmm1, s.sinks = []attn.DType{attn.F16, attn.BF16}[p[4]], 1, randomSinks(rng, 32)
		s.rows = 512
	})
	return fmt.Sprintf("sinks/batch=%d/kv_len=%d/heads=32-%d/d=%d/q=%v", batch, length, hkv, d, s.q), s
}

// truncatingPoint: windows that cut, drafts under a causal or a full mask: window × length × mask × draft length × dtype.
func truncatingPoint(p []int, _ *rand.Rand) (string, body) {
	window, length, l := []int{63, 127}[p[0]], []int{300, 30000}[p[1]], 2+p[3]
	kind := []string{"causal", "full"}[p[2]]
	s := newDecode([]int{length, length - 77}, l, 32, 8, 2, 64).with(func(s *decodeSpec) {
		s.q, s.window = []attn.DType{attn.BF16, attn.F32}[p[4]], window
		s.mask = func(_, i, c int) bool { return kind == "full" || c <= i }
	})
	return fmt.Sprintf("window=%d/kv_len=%d/mask=%s/q_len=%d/q=%v", window, length, kind, l, s.q), s
}

// lowLevelPoint: length × batch × KV heads × page × head dim × group × window × two scales × dtypes.
func lowLevelPoint(p []int, _ *rand.Rand) (string, body) {
	length, batch, hkv, page, d := []int{2, 15, 256, 512, 514}[p[0]], []int{1, 4}[p[1]], []int{2, 4}[p[2]], []int{16, 64}[p[3]], []int{32, 128}[p[4]]
	group, window := []int{8, 16}[p[5]], []int{-1, 255}[p[6]]
	lens := make([]int, batch)
	for b := range lens {
		lens[b] = length
	}
	s := newDecode(lens, 1, page, hkv*group, hkv, d).with(func(s *decodeSpec) {
		s.window, s.backend, s.q = window, "xqa", []attn.DType{attn.F16, attn.BF16, attn.BF16, attn.BF16}[p[9]]
		s.bmm1 *= []float64{1, 0.5}[p[7]]
		if p[9] > 1 {
			s.kv, s.bmm2 = attn.E4M3, []float64{1, 0.5}[p[8]]
			s.bmm1 *= s.bmm2
		}
		if p[9] == 3 {
			s.out, s.oScale = attn.E4M3, 0.25
			s.bmm2 *= 4
		}
	})
	return fmt.Sprintf("xqa/kv_len=%d/batch=%d/heads=%d-%d/page=%d/d=%d/window=%d/bmm1=%.3g/bmm2=%.3g/q=%v/kv=%v/out=%v", length, batch, s.hq, hkv, page, d, window,
		s.bmm1, s.bmm2, s.q, s.kv, s.out), s
}

// widePoint: page × draft length × window × dtype, head dim 512.
func widePoint(p []int, _ *rand.Rand) (string, body) {
	page, l, window := []int{128, 256, 512, 1024}[p[0]], 1+p[1], []int{-1, 127}[p[2]]
	s := newDecode([]int{1024, 1000}, l, page, 8, 2, 512).with(func(s *decodeSpec) {
		s.q, s.window = []attn.DType{attn.BF16, attn.F16}[p[3]], window
	})
	return fmt.Sprintf("wide/page=%d/q_len=%d/window=%d/d=512/q=%v", page, l, window, s.q), s
}

// longPoint: tuple × context × dtypes. The batches of 32 stop at 16 Ki tokens, whose cache is half a gigabyte.
func longPoint(p []int, rng *rand.Rand) (string, body) {
	t := [][5]int{{1, 1, 16, 2, 1}, {1, 1, 32, 2, 5}, {1, 3, 64, 2, 1}, {1, 4, 64, 4, 1}, {1, 1, 16, 8, 8}, {1, 1, 32, 8, 8}, {32, 4, 16, 2, 8}, {32, 8, 16, 2, 8}, {32, 16, 16, 2, 8}}[p[0]]
	kv := 4096 << p[1]
	if t[0]*kv > 1<<19 {
		return "", nil
	}
	lens := make([]int, t[0])
	for b := range lens {
		lens[b] = kv - rng.IntN(100)
	}
	s := newDecode(lens, t[1], t[2], t[3]*t[4], t[3], 128).with(func(s *decodeSpec) {
		s.q, s.rows = attn.BF16, 128
		if s.kv = attn.BF16; p[2] > 0 {
			s.kv, s.deviceScales, s.bmm2 = attn.E4M3, p[2] == 2, 0.7
		}
	})
	return fmt.Sprintf("long/batch=%d/q_len=%d/page=%d/heads=%d-%d/kv_len=%d/kv=%v", t[0], t[1], t[2], s.hq, s.hkv, kv, s.kv) + onOff(p[2]/2, "device_scales"), s
}

// prefillPoint: batch × rows × keys × page × KV heads × causal × LSE × dtype, over a stacked NHD cache.
func prefillPoint(p []int, rng *rand.Rand) (string, body) {
	batch, maxQ, maxKV, page := []int{1, 4}[p[0]], []int{8, 17, 700}[p[1]], []int{8, 32, 1066}[p[2]], []int{8, 16, 64}[p[3]]
	if maxQ > maxKV {
		return "", nil
	}
	hkv, causal := []int{1, 4}[p[4]], p[5] == 1
	q, kv := make([]int, batch), make([]int, batch)
	for b := range q {
		q[b] = 1 + rng.IntN(maxQ)
		kv[b] = maxQ + rng.IntN(maxKV-maxQ+1)
	}
	s := newPrefill(q, kv, page, 4, hkv, 128).with(func(s *prefillSpec) {
		s.in, s.causal, s.noLSE, s.form = []attn.DType{attn.BF16, attn.F16, attn.F32}[p[7]], causal, p[6] == 0, stackedNHD
		s.maxQ, s.maxKV, s.lens4 = maxQ, maxKV, rng.IntN(2) == 1
	})
	return fmt.Sprintf("batch=%d/s_qo=%d/s_kv=%d/page=%d/heads=4-%d/causal=%v/q=%v", batch, maxQ, maxKV, page, hkv, causal, s.in) + onOff(p[6], "lse"), s
}

// raggedPoint: batch × rows × keys × KV heads × query heads × causal, dims 192 and 128. Lengths of keys are drawn without regard
// to those of rows, so that rows without a key occur.
func raggedPoint(p []int, rng *rand.Rand) (string, body) {
	batch, maxQ, maxKV := []int{1, 4}[p[0]], []int{32, 64, 87, 256}[p[1]], []int{32, 87, 512}[p[2]]
	hkv, hq, causal := []int{1, 4}[p[3]], []int{1, 8}[p[4]], p[5] == 1
	if hq%hkv != 0 {
		return "", nil
	}
	q, kv := make([]int, batch), make([]int, batch)
	for b := range q {
		q[b], kv[b] = 1+rng.IntN(maxQ), 1+rng.IntN(maxKV)
	}
	s := newPrefill(q, kv, 0, hq, hkv, 192).with(func(s *prefillSpec) {
		s.in, s.dvo, s.causal, s.scale = attn.BF16, 128, causal, 1/math.Sqrt(192)
		s.maxQ, s.maxKV = maxQ, maxKV
		s.offsets = []attn.DType{attn.Invalid, attn.I32, attn.I64}[rng.IntN(3)]
		s.total = rng.IntN(2) == 1
	})
	return fmt.Sprintf("ragged/batch=%d/s_qo=%d/s_kv=%d/heads=%d-%d/dims=192-128/causal=%v", batch, maxQ, maxKV, hq, hkv, causal), s
}
