package opstest

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/gaze-ml/gaze/internal/attn"
)

// The two derivations of attention agree to 1e-12 on every case: the naive one over the logical inputs, the grouped and split one
// over the tensors that a backend would see.
func TestOraclesAgree(t *testing.T) {
	compared := 0
	for _, c := range Cases(Filter{}) {
		ses := &session{target: Target{Memory: &HostMemory{}}, seed: [2]uint64{DefaultSeed, 7}}
		ses.reseed()
		var in *instance
		var logical, read *problem
		switch s := c.body.(type) {
		case decodeSpec:
			if s.bad != nil || s.sparse {
				continue
			}
			d := s.build(ses)
			in, logical = &d.instance, d.problem()
			upload(t, in, ses.target.Memory)
			read = must(new(Reference).decodeProblem(&d.call))(t)
		case prefillSpec:
			if s.bad != nil || s.sparse {
				continue
			}
			p := s.build(ses)
			in, logical = &p.instance, p.problem()
			upload(t, in, ses.target.Memory)
			read2, _, err := new(Reference).prefillProblem(&p.call)
			read = must(read2, err)(t)
		default:
			continue
		}
		logical.only = nil
		if logical.work() > 8<<20 {
			continue
		}
		a, b := logical.solve(), read.solveSplit(rand.New(rand.NewPCG(DefaultSeed, 11)))
		for i, want := range a.out {
			at := i / a.dvo
			if got := b.out[i]; !near(got, want, 1e-12*(1+a.maxV[at])*math.Max(1, math.Abs(finite(a.lse[at])))) {
				t.Errorf("%s: element %d is %v by splits, %v by rows", c.Name, i, got, want)
				break
			}
		}
		for i, want := range a.lse {
			if got := b.lse[i]; !near(got, want, 1e-12*math.Max(1, math.Abs(want))) {
				t.Errorf("%s: LSE %d is %v by splits, %v by rows", c.Name, i, got, want)
				break
			}
		}
		for i, want := range a.maxV {
			if b.maxV[i] != want {
				t.Errorf("%s: largest value of row %d is %v by splits, %v by rows", c.Name, i, b.maxV[i], want)
				break
			}
		}
		compared++
		for _, o := range in.operands {
			o.free(ses.target.Memory)
		}
	}
	if compared < 300 {
		t.Errorf("only %d cases were compared", compared)
	}
	t.Logf("seed %d: %d cases compared", DefaultSeed, compared)
}

func near(a, b, bound float64) bool {
	return a == b || math.IsNaN(a) && math.IsNaN(b) || math.Abs(a-b) <= bound
}

func must[T any](x T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
}

func upload(t *testing.T, in *instance, m Memory) {
	t.Helper()
	for _, o := range in.operands {
		if err := o.upload(m); err != nil {
			t.Fatal(err)
		}
	}
}

// Every code of the small formats decodes to a value that encodes to the same code, neighbours are one step apart, and the middle
// between two goes to the even one.
func TestCodes(t *testing.T) {
	for _, c := range []struct {
		name string
		f    format
	}{{"float16", formats[attn.F16]}, {"bfloat16", formats[attn.BF16]}, {"float8_e4m3", formats[attn.E4M3]}, {"e2m1", e2m1}} {
		last := uint32(1)<<(c.f.exp+c.f.man) - 1
		for code := uint32(0); code <= last; code++ {
			x := c.f.decode(code)
			if math.IsNaN(x) {
				continue
			}
			if got := c.f.encode(x); got != code {
				t.Fatalf("%s: code %#x is %v, which encodes to %#x", c.name, code, x, got)
			}
			if got := c.f.encode(-x); got != code|(last+1) {
				t.Fatalf("%s: %v encodes to %#x", c.name, -x, got)
			}
			next := c.f.decode(code + 1)
			if code == last || math.IsNaN(next) || math.IsInf(next, 0) || math.IsInf(x, 0) {
				continue
			}
			if d := next - x; d != c.f.step(x) {
				t.Fatalf("%s: step at %v is %v, want %v", c.name, x, c.f.step(x), d)
			}
			if got, even := c.f.encode((x+next)/2), code+code%2; got != even {
				t.Fatalf("%s: the middle of %v and %v encodes to %#x, want %#x", c.name, x, next, got, even)
			}
		}
	}
	for _, c := range []struct {
		dt    attn.DType
		x     float64
		wants uint32
	}{
		{attn.F16, 1, 0x3c00}, {attn.F16, 65504, 0x7bff}, {attn.F16, 65520, 0x7c00}, {attn.F16, 0x1p-24, 1}, {attn.BF16, 1, 0x3f80}, {attn.BF16, -2, 0xc000},
		{attn.E4M3, 1, 0x38}, {attn.E4M3, 448, 0x7e}, {attn.E4M3, 1e9, 0x7e}, {attn.E4M3, 0.5, 0x30}, {attn.E4M3, math.Inf(-1), 0xfe}, {attn.F32, 1.5, 0x3fc00000},
	} {
		if got := formats[c.dt].encode(c.x); got != c.wants {
			t.Errorf("%v: %v encodes to %#x, want %#x", c.dt, c.x, got, c.wants)
		}
	}
	f32 := formats[attn.F32]
	rng := rand.New(rand.NewPCG(1, 2))
	for range 10000 {
		x := rng.NormFloat64() * math.Exp(60*rng.NormFloat64())
		if got, want := f32.encode(x), math.Float32bits(float32(x)); got != want {
			t.Fatalf("float32: %v encodes to %#x, want %#x", x, got, want)
		}
	}
}
