package model

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/gaze-ml/gaze/examples/llama/gguf"
	"github.com/gaze-ml/gaze/examples/llama/internal/tinymodel"
	"github.com/gaze-ml/gaze/graph"
	"github.com/gaze-ml/gaze/ops"
)

// variants are Llamas of every kind that there are files of.
var variants = map[string]func() *tinymodel.File{
	"plain, tied": func() *tinymodel.File { return tinymodel.New(tinymodel.Plain, 1) },
	"untied, biases": func() *tinymodel.File {
		s := tinymodel.Plain
		s.Tied, s.Biases = false, true
		return tinymodel.New(s, 2)
	},
	"linear scaling, a part of each head": func() *tinymodel.File {
		s := tinymodel.Plain
		s.Heads, s.KVHeads, s.Types = 4, 4, []gguf.Type{gguf.Q8_0, gguf.F16}
		f := tinymodel.New(s, 3)
		f.Keys["llama.rope.scaling.type"], f.Keys["llama.rope.scaling.factor"], f.Keys["llama.rope.dimension_count"] = "linear", float32(2), uint32(8)
		f.Ref.RoPE.Factor, f.Ref.RoPE.Dim = 2, 8
		return f
	},
	"linear scaling of an old file": func() *tinymodel.File {
		f := tinymodel.New(tinymodel.Plain, 4)
		f.Keys["llama.rope.scale_linear"] = float32(4)
		f.Ref.RoPE.Factor = 4
		return f
	},
	"Llama 3's scaling by metadata": func() *tinymodel.File {
		f := tinymodel.New(tinymodel.Plain, 5)
		for key, x := range map[string]any{"type": "llama3", "factor": float32(8), "low_freq_factor": float32(1), "high_freq_factor": float32(4), "original_context_length": uint32(64)} {
			f.Keys["llama.rope.scaling."+key] = x
		}
		f.Ref.RoPE.Factor, f.Ref.RoPE.Low, f.Ref.RoPE.High, f.Ref.RoPE.Context = 8, 1, 4, 64
		return f
	},
	// As llama.cpp's converter writes Llama 3's rule. Rows of 256 are whole blocks of the K formats.
	"Llama 3's scaling by a tensor, untied, every type": func() *tinymodel.File {
		f := tinymodel.New(tinymodel.Shape{Layers: 2, Hidden: 256, FFN: 512, Heads: 8, KVHeads: 2, HeadDim: 32, Vocab: 40, Context: 160, Types: tinymodel.AllTypes}, 6)
		plain, scaled := f.Ref.RoPE, f.Ref.RoPE
		scaled.Factor, scaled.Low, scaled.High, scaled.Context = 8, 1, 4, 64
		f.Ref.RoPE = scaled
		factors := make([]float32, 16)
		for i := range factors {
			factors[i] = float32(plain.Frequency(i, 32) / scaled.Frequency(i, 32))
		}
		f.AddValues("rope_freqs.weight", gguf.F32, factors, len(factors))
		return f
	},
	"one layer, one KV head, the widest head": func() *tinymodel.File {
		return tinymodel.New(tinymodel.Shape{Layers: 1, Hidden: 32, FFN: 32, Heads: 3, KVHeads: 1, HeadDim: 512, Vocab: 9, Context: 160, Types: []gguf.Type{gguf.BF16}}, 7)
	},
}

// A model from a file gives the formula's logits: prompts of many lengths in one or several pieces, over page boundaries, and then
// token by token; and the same token by token from the start.
func TestModelEqualsFormula(t *testing.T) {
	for name, variant := range variants {
		t.Run(name, func(t *testing.T) {
			f := variant()
			data, ids := f.Bytes(t, nil), f.Tokens(160)
			want := f.Ref.Logits(ids)
			m := open(t, data, config(1, len(ids)))
			for _, n := range []int{1, 2, 15, 16, 17, 48, 49, 64, 65, 130, len(ids)} {
				c := newChat(t, m)
				near(t, fmt.Sprintf("a prompt of %d", n), c.prefill(ids[:n]), want[n-1])
				for i := n; i < min(n+3, len(ids)); i++ {
					near(t, fmt.Sprintf("token %d after a prompt of %d", i, n), c.step(ids[i]), want[i])
				}
				if err := m.Cache().Free(c.seq); err != nil {
					t.Fatal(err)
				}
			}
			c := newChat(t, m)
			for i, id := range ids[:40] {
				near(t, fmt.Sprintf("token %d", i), c.step(id), want[i])
			}
		})
	}
}

// A sequence's logits don't depend on the others of a step, down to the last bit: single tokens among others in graphs for more
// requests, and prompts among others.
func TestBatchesEqualAlone(t *testing.T) {
	f := tinymodel.New(tinymodel.Plain, 8)
	data := f.Bytes(t, nil)
	for _, kv := range []tensor.Dtype{tensor.Float32, ops.BFloat16, ops.Float8E4M3} {
		cfg := config(7, 64)
		cfg.KV = kv
		together, alone := open(t, data, cfg), open(t, data, cfg)
		var chats, singles []*chat
		prompts := [][]int32{f.Tokens(5), f.Tokens(1), f.Tokens(30), f.Tokens(17), f.Tokens(2), f.Tokens(9), f.Tokens(40)}
		var parts []Part
		for _, p := range prompts {
			c := newChat(t, together)
			if err := together.Cache().Append(c.seq, len(p)); err != nil {
				t.Fatal(err)
			}
			chats, singles = append(chats, c), append(singles, newChat(t, alone))
			parts = append(parts, Part{c.seq, p})
		}
		same := func(what string, out []Logits, ids [][]int32) {
			t.Helper()
			for i, logits := range out {
				if want := singles[i].step(ids[i]...); !slices.Equal(logits.Values, want) {
					t.Errorf("%v: %s of sequence %d: logits differ from those alone", kv, what, i)
				}
			}
		}
		out, err := together.Run(t.Context(), parts)
		if err != nil {
			t.Fatal(err)
		}
		same("the prompt", out, prompts)
		for step := range 4 {
			ids := make([][]int32, len(chats)-step) // one leaves after each step: graphs for 7, 6, 5 and 4 requests
			for i := range ids {
				ids[i] = f.Tokens(1)
				if err := together.Cache().Advance(chats[i].seq); err != nil {
					t.Fatal(err)
				}
				parts[i].IDs = ids[i]
			}
			if out, err = together.Run(t.Context(), parts[:len(ids)]); err != nil {
				t.Fatal(err)
			}
			same(fmt.Sprintf("token %d", step), out, ids)
		}
	}
}

// A prompt in pieces of any size gives the logits of the whole one, within float32's rounding.
func TestChunks(t *testing.T) {
	f := tinymodel.New(tinymodel.Plain, 9)
	data, ids := f.Bytes(t, nil), f.Tokens(150)
	want := f.Ref.Logits(ids)[149]
	for _, chunk := range []int{1, 2, 7, 16, 17, 64, 100, 149, 150, 500} {
		cfg := config(1, 150)
		cfg.Chunk = chunk
		m := open(t, data, cfg)
		near(t, fmt.Sprintf("in pieces of up to %d", chunk), newChat(t, m).prefill(ids), want)
		for sh := range m.stages {
			if sh.rows > chunk {
				t.Errorf("chunk %d: a graph of %d rows", chunk, sh.rows)
			}
		}
	}
}

// Narrow caches cost the rounding of keys and values, queries and outputs, and no more.
func TestNarrowCaches(t *testing.T) {
	s := tinymodel.Plain
	s.Biases = true
	f := tinymodel.New(s, 10)
	data, ids := f.Bytes(t, nil), f.Tokens(60)
	exact := f.Ref.Logits(ids)
	for _, c := range []struct {
		kv, half tensor.Dtype
	}{{ops.Float16, ops.Float16}, {ops.BFloat16, ops.BFloat16}, {ops.Float8E4M3, ops.Float16}} {
		cfg := config(2, 60)
		cfg.KV = c.kv
		m := open(t, data, cfg)
		scale := 1.0
		if c.kv == ops.Float8E4M3 { // the formula has one scale for all
			scale, m.stages = 1.0/16, map[shape]*stage{}
			for i, sc := range m.weights.scales {
				if sc.k > scale || sc.v > scale || sc.k < scale/8 || sc.v < scale/8 {
					t.Fatalf("layer %d: scales %v", i, sc)
				}
				m.weights.scales[i] = kvScale{scale, scale}
			}
		}
		ref := f.Ref
		ref.RoundQuery, ref.RoundAttention, ref.RoundCache = rounding(t, c.half, 1), rounding(t, c.half, 1), rounding(t, c.kv, scale)
		want := ref.Logits(ids)
		chat := newChat(t, m)
		within(t, fmt.Sprintf("%v, a prompt", c.kv), 1e-3, chat.prefill(ids[:50]), want[49])
		for i := 50; i < 60; i++ {
			within(t, fmt.Sprintf("%v, token %d", c.kv, i), 1e-3, chat.step(ids[i]), want[i])
		}
		if off, _ := apart(t, newChat(t, m).prefill(ids[:9]), exact[8]); off < 1e-4 {
			t.Errorf("%v: off by %.2g: is this cache in use?", c.kv, off)
		}
	}
}

// rounding rounds as a cache with a scale does.
func rounding(t testing.TB, dt tensor.Dtype, scale float64) func(float64) float64 {
	return func(x float64) float64 {
		d, err := ops.NewTensor(dt, tensor.Shape{1}, []float32{float32(x / scale)})
		if err != nil {
			t.Fatal(err)
		}
		y, err := ops.Float32s(d)
		if err != nil {
			t.Fatal(err)
		}
		return float64(y[0]) * scale
	}
}

// The scales of an 8-bit cache bound every key and value that can come: none saturates, even for rows made to be the worst.
func TestScalesBound(t *testing.T) {
	for _, gain := range []float64{1e-6, 1, 1e4} {
		s := tinymodel.Plain
		s.Biases = true
		f := tinymodel.New(s, 11)
		for i, x := range f.Tensors {
			if strings.Contains(x.Name, "attn_k.weight") || strings.Contains(x.Name, "attn_v.bias") {
				values := make([]float32, x.Elems())
				for j := range values {
					values[j] = float32(gain * math.Sin(float64(j+i)))
				}
				f.Tensors = slices.Delete(f.Tensors, i, i+1)
				f.AddValues(x.Name, x.Type, values, x.Shape...)
				f.Tensors[i], f.Tensors[len(f.Tensors)-1] = f.Tensors[len(f.Tensors)-1], f.Tensors[i]
			}
		}
		file, h := parse(t, f.Bytes(t, nil))
		w, err := loadWeights(file, h)
		if err != nil {
			t.Fatal(err)
		}
		scales, err := w.cacheScales()
		if err != nil {
			t.Fatal(err)
		}
		w.scales = scales
		_, nodes, err := w.nodes(gorgonia.NewGraph())
		if err != nil {
			t.Fatal(err)
		}
		for i, sc := range scales {
			if l := nodes.Layers[i]; l.KScale != sc.k || l.VScale != sc.v || sc.k == sc.v {
				t.Errorf("layer %d has the scales %v and %v, want %v, two different ones", i, l.KScale, l.VScale, sc)
			}
			name := func(s string) *tensor.Dense { return w.tensors[fmt.Sprintf("blk.%d.%s", i, s)] }
			for _, c := range []struct {
				what  string
				scale float64
				m, b  *tensor.Dense
				rope  float64
			}{{"keys", sc.k, name("attn_k.weight"), name("attn_k.bias"), math.Sqrt2}, {"values", sc.v, name("attn_v.weight"), name("attn_v.bias"), 1}} {
				worst := worstElement(name("attn_norm.weight"), c.m, c.b) * c.rope / c.scale
				if !(worst <= 448*(1+1e-6)) || worst < 448/2-1 || math.Exp2(math.Round(math.Log2(c.scale))) != c.scale {
					t.Errorf("gain %v, layer %d: %s reach %v of 448 with the scale %v", gain, i, c.what, worst, c.scale)
				}
			}
		}
	}
}

// worstElement is the largest |w·h + b| over rows h = g·u with Σu² = H, found at u along w∘g.
func worstElement(norm, m, b *tensor.Dense) float64 {
	g, w := norm.Data().([]float32), m.Data().([]float32)
	worst := 0.0
	for o := range m.Shape()[0] {
		dot, length := 0.0, 0.0
		for i := range g {
			length += math.Pow(float64(w[o*len(g)+i]*g[i]), 2)
		}
		for i := range g {
			u := float64(w[o*len(g)+i]*g[i]) * math.Sqrt(float64(len(g))/length)
			dot += float64(w[o*len(g)+i]) * float64(g[i]) * u
		}
		worst = math.Max(worst, dot+math.Abs(float64(b.Data().([]float32)[o])))
	}
	return worst
}

// A file whose tensors lie at odd addresses is copied, not misread.
func TestUnalignedFile(t *testing.T) {
	f := tinymodel.New(tinymodel.Plain, 12)
	ids, data := f.Tokens(5), f.Bytes(t, nil)
	odd := append(make([]byte, 1, len(data)+1), data...)[1:]
	near(t, "unaligned", newChat(t, open(t, odd, config(1, 5))).prefill(ids), f.Ref.Logits(ids)[4])
}

// After a refused call the next valid one gives what it would have given.
func TestRunRefuses(t *testing.T) {
	f := tinymodel.New(tinymodel.Plain, 13)
	ids := f.Tokens(60)
	want := f.Ref.Logits(ids)
	m := open(t, f.Bytes(t, nil), Config{Context: 60, Requests: 2, Tokens: 80, PageSize: 8, Chunk: 32, KV: tensor.Float32})
	c, other := newChat(t, m), newChat(t, m)
	near(t, "a prompt", c.prefill(ids[:5]), want[4])
	refused := func(what string, kind error, arg string, parts ...Part) {
		t.Helper()
		_, err := m.Run(t.Context(), parts)
		var e *ops.Error
		if !errors.Is(err, kind) || !errors.As(err, &e) || !strings.HasPrefix(e.Arg, arg) || e.Got == "" || e.Want == "" {
			t.Errorf("%s: %v, want %q about %s", what, err, kind, arg)
		}
	}
	for _, bad := range []int32{-1, 50, math.MaxInt32} {
		for _, ids := range [][]int32{{bad}, {1, 2, bad, 3}} {
			if _, err := c.try(ids...); !errors.Is(err, ops.ErrArgument) || !strings.Contains(err.Error(), "ids") {
				t.Errorf("tokens %v: %v, want an ErrArgument about ids", ids, err)
			}
		}
	}
	refused("no parts", ops.ErrArgument, "parts")
	refused("three of two", ops.ErrArgument, "parts", Part{c.seq, ids[:1]}, Part{other.seq, ids[:1]}, Part{c.seq, ids[:1]})
	refused("no tokens", ops.ErrArgument, "parts[1]", Part{c.seq, ids[:1]}, Part{other.seq, nil})
	refused("more than a chunk", ops.ErrArgument, "tokens", Part{c.seq, ids[:33]})
	refused("without slots", ops.ErrArgument, "requests[0]", Part{other.seq, ids[:1]})
	refused("no sequence", ops.ErrArgument, "", Part{nil, ids[:2]})
	near(t, "after refused steps", c.step(ids[5]), want[5])
	near(t, "in the graph of the refused ones", c.step(ids[6:8]...), want[7])
	near(t, "to the end of the context", c.prefill(ids[8:]), want[59])
	if _, err := c.try(ids[0]); !errors.Is(err, ops.ErrArgument) {
		t.Errorf("a token past the context: %v", err)
	}
	if _, err := other.try(ids[:30]...); !errors.Is(err, ops.ErrCacheFull) {
		t.Errorf("a full cache: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := m.Run(ctx, []Part{{c.seq, ids[:1]}}); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want %v", err, context.Canceled)
	}
}

func TestOpenRefusesConfig(t *testing.T) {
	file, h := parse(t, tinymodel.New(tinymodel.Plain, 14).Bytes(t, nil))
	for arg, change := range map[string]func(*Config){
		"context": func(c *Config) { c.Context = 161 }, "requests": func(c *Config) { c.Requests = 0 }, "tokens": func(c *Config) { c.Tokens = 0 },
		"page_size": func(c *Config) { c.PageSize = -1 }, "chunk": func(c *Config) { c.Chunk = 0 }, "threads": func(c *Config) { c.Threads = -1 },
		"dtype": func(c *Config) { c.KV = tensor.Int32 },
	} {
		c := config(1, 160)
		change(&c)
		_, err := Open(file, h, c)
		var e *ops.Error
		if !errors.As(err, &e) || e.Arg != arg {
			t.Errorf("%s: %v, want an *ops.Error about it", arg, err)
		}
	}
}

// The estimate is what the model then takes, and not much more: weights and cache exactly, buffers within half.
func TestEstimate(t *testing.T) {
	for name, variant := range variants {
		for _, requests := range []int{1, 5} {
			f := variant()
			file, h := parse(t, f.Bytes(t, nil))
			c := config(requests, 150)
			c.KV = ops.Float16
			need := Estimate(file, h, c)
			m := opened(t, file, h, c)
			weights := 0
			for _, x := range f.Tensors {
				weights += len(x.Data)
			}
			if need.Weights != int64(weights) || need.Cache != int64(m.Cache().Config().Bytes()) {
				t.Errorf("%s: %+v, want %d bytes of weights and %d of cache", name, need, weights, m.Cache().Config().Bytes())
			}
			for _, n := range c.singles() { // make every graph
				if _, err := m.stage(shape{rows: n, requests: n}); err != nil {
					t.Fatal(err)
				}
			}
			for _, n := range []int{1, requests} {
				for _, rows := range c.prompts(n) {
					if _, err := m.stage(shape{rows, n, true}); err != nil {
						t.Fatal(err)
					}
				}
			}
			took := int64(0)
			for _, s := range m.stages {
				took += int64(s.machine.Memory())
			}
			if took > need.Buffers || need.Buffers > took*3/2 {
				t.Errorf("%s, %d requests: buffers %d, estimated %d", name, requests, took, need.Buffers)
			}
			if need.Total() != need.Weights+need.Cache+need.Buffers {
				t.Errorf("total %d of %+v", need.Total(), need)
			}
		}
	}
}

// Absurd sizes give an absurd estimate instead of a small one.
func TestEstimateOverflow(t *testing.T) {
	h := HParams{Layers: 1 << 20, Hidden: maxWidth, FFN: maxWidth, Heads: maxWidth, KVHeads: maxWidth, HeadDim: 512, Vocab: 1 << 30, MaxContext: maxContext}
	c := Config{Context: maxContext, Requests: 1 << 10, Tokens: maxContext, PageSize: 16, Chunk: 1 << 16, KV: tensor.Float32}
	if need := Estimate(&gguf.File{}, h, c); need.Cache != math.MaxInt64 || need.Total() != math.MaxInt64 || need.Buffers < 0 {
		t.Errorf("%+v", need)
	}
}

func TestPieces(t *testing.T) {
	for _, chunk := range []int{1, 5, 16, 100, 256, 1000} {
		c := config(1, 8)
		c.Chunk = chunk
		sizes := c.prompts(1)
		smallest := sizes[len(sizes)-1]
		for n := 2; n < 2000; n++ {
			rows := c.piece(n)
			if rows < 1 || rows > min(n, chunk) {
				t.Fatalf("chunk %d: %d of %d tokens", chunk, rows, n)
			}
			sh, err := c.fit([]Part{{nil, make([]int32, rows)}})
			if err != nil || sh.rows < rows || sh.rows > chunk || rows > smallest && 4*rows <= 3*sh.rows {
				t.Fatalf("chunk %d: %d tokens in a graph of %d rows, %v", chunk, rows, sh.rows, err)
			}
		}
	}
}

// A few graphs serve any number of requests, with a third of their rows empty at most.
func TestBuckets(t *testing.T) {
	for requests := 1; requests < 300; requests++ {
		c := config(requests, 8)
		sizes := map[int]bool{}
		for n := 1; n <= requests; n++ {
			parts := make([]Part, n)
			for i := range parts {
				parts[i] = Part{new(graph.Sequence), make([]int32, 1)}
			}
			sh, err := c.fit(parts)
			if err != nil || sh.packed || sh.rows != sh.requests || sh.rows < n || sh.rows > requests || 2*sh.rows > 3*n {
				t.Fatalf("%d of %d requests: a graph for %+v, %v", n, requests, sh, err)
			}
			sizes[sh.rows] = true
		}
		if len(sizes) > 17 {
			t.Fatalf("%d requests: %d graphs", requests, len(sizes))
		}
	}
}

// The timings run what they say and give every page back.
func TestTimings(t *testing.T) {
	m := open(t, tinymodel.New(tinymodel.Plain, 15).Bytes(t, nil), config(3, 100))
	free := m.Cache().FreePages()
	if d, err := m.TimePrefill(t.Context(), 90); err != nil || d <= 0 {
		t.Errorf("%v, %v", d, err)
	}
	if d, err := m.TimeDecode(t.Context(), 3, 5); err != nil || d <= 0 {
		t.Errorf("%v, %v", d, err)
	}
	if _, err := m.TimePrefill(t.Context(), 101); !errors.Is(err, ops.ErrArgument) {
		t.Errorf("past the context: %v", err)
	}
	if n := m.Cache().FreePages(); n != free {
		t.Errorf("%d pages free, want %d", n, free)
	}
}
