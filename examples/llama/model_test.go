package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/gaze-ml/gaze/examples/llama/gguf"
	"github.com/gaze-ml/gaze/internal/llamaref"
	"github.com/gaze-ml/gaze/internal/quant"
	"github.com/gaze-ml/gaze/ops"
)

// tinyFile is a random Llama as a GGUF file, and the same in float64.
type tinyFile struct {
	r       *rand.Rand
	w       gguf.Writer
	ref     llamaref.Model
	tensors []gguf.Tensor
}

type tinyShape struct {
	layers, hidden, ffn, heads, kvHeads, headDim, vocab int
	types                                               []gguf.Type // of the matrices, in turn
	tied, biases                                        bool
}

const tinyContext = 160

func newTinyFile(s tinyShape, seed uint64) *tinyFile {
	f := &tinyFile{r: rand.New(rand.NewPCG(seed, seed))}
	f.w.Set("general.architecture", "llama")
	for key, n := range map[string]int{"block_count": s.layers, "embedding_length": s.hidden, "feed_forward_length": s.ffn, "attention.head_count": s.heads,
		"attention.head_count_kv": s.kvHeads, "attention.key_length": s.headDim, "attention.value_length": s.headDim, "context_length": tinyContext} {
		f.w.Set("llama."+key, uint32(n))
	}
	f.w.Set("llama.attention.layer_norm_rms_epsilon", float32(1e-5))
	f.w.Set("llama.rope.freq_base", float32(10000))
	q, kv := s.heads*s.headDim, s.kvHeads*s.headDim
	f.ref = llamaref.Model{Heads: s.heads, KVHeads: s.kvHeads, HeadDim: s.headDim, Eps: float64(float32(1e-5)), RoPE: llamaref.RoPE{Base: 10000, Adjacent: true}}
	next := 0
	matrix := func(name string, out, in int) []float64 {
		t := s.types[next%len(s.types)]
		next++
		if in%t.BlockElems() != 0 {
			t = gguf.F32
		}
		return f.add(name, t, 1/math.Sqrt(float64(in)), 0, out, in)
	}
	f.ref.Embedding = matrix("token_embd.weight", s.vocab, s.hidden)
	if !s.tied {
		f.ref.Head = matrix("output.weight", s.vocab, s.hidden)
	}
	f.ref.Norm = f.add("output_norm.weight", gguf.F32, 0.1, 1, s.hidden)
	for i := range s.layers {
		at := func(name string) string { return fmt.Sprintf("blk.%d.%s", i, name) }
		l := llamaref.Layer{
			AttnNorm: f.add(at("attn_norm.weight"), gguf.F32, 0.1, 1, s.hidden), MLPNorm: f.add(at("ffn_norm.weight"), gguf.F32, 0.1, 1, s.hidden),
			Q: matrix(at("attn_q.weight"), q, s.hidden), K: matrix(at("attn_k.weight"), kv, s.hidden), V: matrix(at("attn_v.weight"), kv, s.hidden),
			O: matrix(at("attn_output.weight"), s.hidden, q), Gate: matrix(at("ffn_gate.weight"), s.ffn, s.hidden),
			Up: matrix(at("ffn_up.weight"), s.ffn, s.hidden), Down: matrix(at("ffn_down.weight"), s.hidden, s.ffn),
		}
		if s.biases {
			l.QBias, l.KBias, l.VBias = f.add(at("attn_q.bias"), gguf.F32, 1, 0, q), f.add(at("attn_k.bias"), gguf.F32, 1, 0, kv), f.add(at("attn_v.bias"), gguf.F32, 1, 0, kv)
		}
		f.ref.Layers = append(f.ref.Layers, l)
	}
	return f
}

// add draws a tensor's values and gives those that its type keeps.
func (f *tinyFile) add(name string, t gguf.Type, spread, mean float64, shape ...int) []float64 {
	n := 1
	for _, d := range shape {
		n *= d
	}
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(mean + spread*f.r.NormFloat64())
	}
	data := make([]byte, n/t.BlockElems()*t.BlockBytes())
	d := ops.DTypeOf(dtypes[t])
	quant.Quantize(d, data, x)
	quant.Dequantize(d, x, data)
	f.tensors = append(f.tensors, gguf.Tensor{Name: name, Type: t, Shape: shape, Data: data})
	exact := make([]float64, n)
	for i, v := range x {
		exact[i] = float64(v)
	}
	return exact
}

// bytes is the file, with tensors changed.
func (f *tinyFile) bytes(t testing.TB, change func(*gguf.Tensor) (keep bool)) []byte {
	t.Helper()
	w := f.w
	for _, x := range f.tensors {
		if x.Shape = slices.Clone(x.Shape); change == nil || change(&x) {
			w.Add(x)
		}
	}
	var b bytes.Buffer
	if _, err := w.WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// openTiny parses a file and makes its model, which is closed after the test.
func openTiny(t testing.TB, data []byte, pageSize int) *llama {
	t.Helper()
	f, err := gguf.Parse(data)
	if err != nil {
		t.Fatal(err)
	}
	h, err := readHParams(f)
	if err != nil {
		t.Fatal(err)
	}
	m, err := openLlama(f, modelConfig{hparams: h, Context: tinyContext, PageSize: pageSize, KVType: "f32", Threads: 2})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for range 2 {
			if err := m.Close(); err != nil {
				t.Error(err)
			}
		}
	})
	return m.(*llama)
}

func (f *tinyFile) prompt(n int) []int32 {
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = int32(f.r.IntN(len(f.ref.Embedding) / len(f.ref.Norm)))
	}
	return ids
}

// near compares logits with the formula's: float32 rounding through a few layers.
func near(t *testing.T, what string, got []float32, want []float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %d logits, want %d", what, len(got), len(want))
	}
	worst, scale := 0.0, 1.0
	for i, w := range want {
		worst, scale = math.Max(worst, math.Abs(float64(got[i])-w)), math.Max(scale, math.Abs(w))
	}
	if !(worst <= 3e-5*scale) {
		t.Errorf("%s: logits are off by %.2g, the largest is %.2g", what, worst, scale)
	}
}

var tinyShapes = map[string]struct {
	shape tinyShape
	more  func(f *tinyFile)
}{
	"plain, tied": {tinyShape{2, 64, 96, 6, 2, 16, 50, []gguf.Type{gguf.F32}, true, false}, func(*tinyFile) {}},
	"linear scaling, a part of each head, biases": {tinyShape{2, 64, 64, 4, 4, 16, 50, []gguf.Type{gguf.Q8_0, gguf.F16}, false, true}, func(f *tinyFile) {
		f.w.Set("llama.rope.scaling.type", "linear")
		f.w.Set("llama.rope.scaling.factor", float32(2))
		f.w.Set("llama.rope.dimension_count", uint32(8))
		f.ref.RoPE.Factor, f.ref.RoPE.Dim = 2, 8
	}},
	// llama.cpp's converter writes Llama 3's rule as factors.
	"Llama 3's scaling, untied, every type": {tinyShape{2, 256, 512, 8, 2, 32, 40, []gguf.Type{gguf.Q6_K, gguf.Q4_K, gguf.Q5_K, gguf.Q8_0, gguf.Q4_0, gguf.Q4_1, gguf.Q5_0, gguf.Q5_1, gguf.F16, gguf.BF16, gguf.F32}, false, false}, func(f *tinyFile) {
		plain, scaled := f.ref.RoPE, f.ref.RoPE
		scaled.Factor, scaled.Low, scaled.High, scaled.Context = 8, 1, 4, 64
		f.ref.RoPE = scaled
		factors := make([]float32, 16)
		for i := range factors {
			factors[i] = float32(plain.Frequency(i, 32) / scaled.Frequency(i, 32))
		}
		data := make([]byte, 4*len(factors))
		quant.Quantize(ops.DTypeOf(dtypes[gguf.F32]), data, factors)
		f.tensors = append(f.tensors, gguf.Tensor{Name: "rope_freqs.weight", Type: gguf.F32, Shape: []int{16}, Data: data})
	}},
}

// A model from a file gives the formula's logits: prompts of many lengths in one or several chunks, over page boundaries, and
// then token by token; and the same token by token from the start.
func TestModelEqualsFormula(t *testing.T) {
	ctx := context.Background()
	for name, c := range tinyShapes {
		t.Run(name, func(t *testing.T) {
			f := newTinyFile(c.shape, 1)
			c.more(f)
			data := f.bytes(t, nil)
			ids := f.prompt(tinyContext)
			want := f.ref.Logits(ids)
			for _, n := range []int{1, 2, 15, 16, 17, 48, 49, 64, 65, 130, tinyContext} {
				m := openTiny(t, data, 8)
				logits, err := m.Prefill(ctx, ids[:n])
				if err != nil {
					t.Fatal(err)
				}
				near(t, fmt.Sprintf("a prompt of %d", n), logits, want[n-1])
				for i := n; i < min(n+3, len(ids)); i++ {
					if logits, err = m.Step(ctx, ids[i]); err != nil {
						t.Fatal(err)
					}
					near(t, fmt.Sprintf("token %d after a prompt of %d", i, n), logits, want[i])
				}
			}
			m := openTiny(t, data, 16)
			for i, id := range ids[:40] {
				logits, err := m.Step(ctx, id)
				if err != nil {
					t.Fatal(err)
				}
				near(t, fmt.Sprintf("token %d", i), logits, want[i])
			}
		})
	}
}

// A file whose tensors lie at odd addresses is copied, not misread.
func TestModelOfUnalignedFile(t *testing.T) {
	f := newTinyFile(tinyShapes["plain, tied"].shape, 2)
	ids := f.prompt(5)
	data := f.bytes(t, nil)
	odd := append(make([]byte, 1, len(data)+1), data...)[1:]
	logits, err := openTiny(t, odd, 8).Prefill(context.Background(), ids)
	if err != nil {
		t.Fatal(err)
	}
	near(t, "unaligned", logits, f.ref.Logits(ids)[4])
}

// After a refused call the next valid one gives what it would have given.
func TestModelRefuses(t *testing.T) {
	f := newTinyFile(tinyShapes["plain, tied"].shape, 3)
	ids := f.prompt(tinyContext + 1)
	want := f.ref.Logits(ids[:tinyContext])
	m := openTiny(t, f.bytes(t, nil), 16)
	ctx, done := context.WithCancel(context.Background())
	logits, err := m.Prefill(ctx, ids[:5])
	if err != nil {
		t.Fatal(err)
	}
	near(t, "a prompt", logits, want[4])
	for _, bad := range []int32{-1, 50, math.MaxInt32} {
		_, err := m.Step(ctx, bad)
		var e *ops.Error
		if !errors.Is(err, ops.ErrArgument) || !errors.As(err, &e) || !strings.HasPrefix(e.Arg, "ids") {
			t.Errorf("token %d: %v, want an ErrArgument about ids", bad, err)
		}
		_, err = m.Prefill(ctx, []int32{1, bad, 2})
		if !errors.Is(err, ops.ErrArgument) {
			t.Errorf("token %d in a prompt: %v, want ErrArgument", bad, err)
		}
	}
	var full *contextError
	if _, err := m.Prefill(ctx, nil); !errors.As(err, &full) {
		t.Errorf("no tokens: %v", err)
	}
	if logits, err = m.Step(ctx, ids[5]); err != nil {
		t.Fatal(err)
	}
	near(t, "after refused tokens", logits, want[5])
	if logits, err = m.Prefill(ctx, ids[6:tinyContext]); err != nil {
		t.Fatal(err)
	}
	near(t, "to the end of the context", logits, want[tinyContext-1])
	if _, err := m.Step(ctx, ids[tinyContext]); !errors.As(err, &full) || full.Got != tinyContext+1 || full.Want != tinyContext {
		t.Errorf("a full context: %v", err)
	}
	done()
	if _, err := m.Step(ctx, 1); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want %v", err, context.Canceled)
	}
	if _, err := m.Prefill(ctx, ids[:3]); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want %v", err, context.Canceled)
	}
}

func TestOpenRefusesTensors(t *testing.T) {
	f := newTinyFile(tinyShapes["plain, tied"].shape, 4)
	for _, x := range f.tensors {
		edits := map[string]func(*gguf.Tensor) bool{
			"missing": func(y *gguf.Tensor) bool { return y.Name != x.Name },
			"a row too many": func(y *gguf.Tensor) bool {
				if y.Name == x.Name {
					y.Data = append(slices.Clone(y.Data), make([]byte, y.RowBytes()/y.Shape[len(y.Shape)-1]*len(y.Data)/4)...)[:len(y.Data)/y.Shape[0]*(y.Shape[0]+1)]
					y.Shape[0]++
				}
				return true
			},
		}
		if len(x.Shape) == 1 {
			edits["half precision"] = func(y *gguf.Tensor) bool {
				if y.Name == x.Name {
					y.Type, y.Data = gguf.F16, y.Data[:len(y.Data)/2]
				}
				return true
			}
		}
		for what, edit := range edits {
			if x.Name == "token_embd.weight" { // its rows are the vocabulary
				continue
			}
			file, err := gguf.Parse(f.bytes(t, edit))
			if err != nil {
				t.Fatal(err)
			}
			h, err := readHParams(file)
			if err != nil {
				t.Fatal(err)
			}
			_, err = openLlama(file, modelConfig{hparams: h, Context: 16, PageSize: 16, KVType: "f32"})
			var e *gguf.Error
			if !errors.As(err, &e) || !strings.Contains(e.Item, x.Name) || e.Got == "" || e.Want == "" {
				t.Errorf("%s: %s: %v, want a *gguf.Error that names it", x.Name, what, err)
			}
		}
	}
}

func TestChunkRows(t *testing.T) {
	for n := 1; n < 1000; n++ {
		rows := chunkRows(n)
		if n > 1 && !slices.Contains(chunks, rows) || n == 1 && rows != 1 {
			t.Fatalf("%d tokens: %d rows", n, rows)
		}
		if smallest := chunks[len(chunks)-1]; n > 1 && rows > smallest && 4*n <= 3*rows {
			t.Errorf("%d tokens: %d rows, too few of them used", n, rows)
		}
	}
}
