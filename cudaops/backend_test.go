//go:build gpu && linux && amd64 && cgo

package cudaops

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"gorgonia.org/tensor"

	"github.com/gaze-ml/gaze/cudaops/internal/driver"
	"github.com/gaze-ml/gaze/cudaops/internal/fakecuda"
	"github.com/gaze-ml/gaze/internal/attn"
	"github.com/gaze-ml/gaze/ops"
)

// int32s gives device memory with these values.
func int32s(t testing.TB, rt *Runtime, shape []int, values ...int32) attn.Tensor {
	t.Helper()
	x := device(t, rt, attn.I32, shape...)
	must(t, rt.Write(x.Ptr, bytesOf(values)))
	return x
}

func bytesOf(values []int32) []byte {
	b := make([]byte, 0, 4*len(values))
	for _, v := range values {
		b = binary.LittleEndian.AppendUint32(b, uint32(v))
	}
	return b
}

// onHost is the same in host memory.
func onHost(shape []int, values ...int32) attn.Tensor {
	x := attn.Of(attn.I32, shape...)
	x.Ptr = driver.Memory(bytesOf(values))
	return x
}

// decodeOf is a small decode call: 2 requests, 8 heads over 2, D 64, pages of 16.
func decodeOf(t testing.TB, rt *Runtime) *attn.DecodeCall {
	t.Helper()
	c := attn.NewDecodeCall()
	c.Query, c.Out = device(t, rt, attn.BF16, 2, 8, 64), device(t, rt, attn.BF16, 2, 8, 64)
	c.Key, c.Value = device(t, rt, attn.BF16, 6, 2, 16, 64), device(t, rt, attn.BF16, 6, 2, 16, 64)
	c.LSE = device(t, rt, attn.F32, 2, 8)
	c.BlockTables = int32s(t, rt, []int{2, 3}, 0, 1, 2, 3, 4, 5)
	c.SeqLens = int32s(t, rt, []int{2}, 40, 17)
	must(t, c.Infer())
	return &c
}

// step is one call of every op that a decoder layer makes.
func step(t testing.TB, rt *Runtime) map[string]func() error {
	t.Helper()
	b := rt.Backend()
	d := decodeOf(t, rt)
	app := attn.NewAppendCall()
	app.KeyCache, app.ValueCache, app.BlockTables = d.Key, d.Value, d.BlockTables
	app.Key, app.Value = device(t, rt, attn.BF16, 2, 2, 64), device(t, rt, attn.BF16, 2, 2, 64)
	app.Positions, app.Requests = int32s(t, rt, []int{2}, 39, 16), int32s(t, rt, []int{2}, 0, 1)
	pre := &attn.PrefillCall{Scale: 1, MaxQLen: 2, MaxKVLen: 48, Causal: true, Query: d.Query, Out: d.Out, Key: d.Key, Value: d.Value,
		BlockTables: d.BlockTables, QLens: int32s(t, rt, []int{2}, 1, 1), KVLens: d.SeqLens, LSE: device(t, rt, attn.F32, 2, 2, 8)}
	x, y, res := device(t, rt, attn.BF16, 2, 512), device(t, rt, attn.BF16, 2, 512), device(t, rt, attn.BF16, 2, 512)
	w, table := device(t, rt, attn.BF16, 512, 512), device(t, rt, attn.BF16, 100, 512)
	norm := &attn.RMSNormCall{X: x, Residual: res, Weight: device(t, rt, attn.BF16, 512), Eps: 1e-5, Out: y, Sum: res}
	rope := &attn.RoPECall{X: d.Query, Positions: app.Positions, RoPEConfig: attn.RoPEConfig{Base: 10000}, Out: d.Out}
	lin, silu := &attn.LinearCall{X: x, Weight: w, Out: y}, &attn.SiLUMulCall{Gate: x, Up: x, Out: y}
	emb := &attn.EmbeddingCall{IDs: app.Requests, Weight: table, Out: x}
	merge := &attn.MergeLSECall{OutA: d.Query, OutB: d.Query, LSEA: d.LSE, LSEB: d.LSE, Out: d.Out, LSE: d.LSE}
	argmax := &attn.ArgmaxCall{X: x, Out: int32s(t, rt, []int{2}, 0, 0)}
	softmax := &attn.SoftmaxCall{Logits: x, Temperature: 1, Out: device(t, rt, attn.F32, 2, 512)}
	topK := &attn.TopKCall{Logits: x, K: 3, Values: device(t, rt, attn.F32, 2, 3), Indices: int32s(t, rt, []int{2, 3}, 0, 0, 0, 0, 0, 0)}
	cast := &attn.CastCall{X: x, Out: device(t, rt, attn.F32, 2, 512)}
	for _, c := range []attn.Call{cast, &app, pre, norm, rope, lin, silu, emb, merge, argmax, softmax, topK} {
		must(t, c.Infer())
	}
	return map[string]func() error{
		"decode": func() error { return b.Decode(d) }, "append": func() error { return b.Append(&app) }, "prefill": func() error { return b.Prefill(pre) },
		"rms_norm": func() error { return b.RMSNorm(norm) }, "rope": func() error { return b.RoPE(rope) }, "linear": func() error { return b.Linear(lin) },
		"silu_mul": func() error { return b.SiLUMul(silu) }, "embedding": func() error { return b.Embedding(emb) },
		"merge_lse": func() error { return b.MergeLSE(merge) },
		"cast":      func() error { return b.Cast(cast) },
		"argmax":    func() error { return b.Argmax(argmax) },
		"softmax":   func() error { return b.Softmax(softmax) },
		"top_k":     func() error { return b.TopK(topK) },
		"write":     func() error { return rt.Write(app.Positions.Ptr, positionBytes) },
		"copy":      func() error { return rt.Copy(res.Ptr, x.Ptr, 1024) },
	}
}

var positionBytes = bytesOf([]int32{40, 17})

// TestNoAllocation: a decode step leaves nothing to the garbage collector and takes no device memory.
func TestNoAllocation(t *testing.T) {
	rt := fake(t, fakecuda.Hopper)
	calls := step(t, rt)
	for _, call := range calls {
		must(t, call())
	}
	must(t, rt.Sync())
	used, allocs := fakecuda.Used(0), fakecuda.Calls("cuMemAlloc")
	must(t, fakecuda.Idle())
	for what, call := range calls {
		if n := testing.AllocsPerRun(50, func() { must(t, call()) }); n != 0 {
			t.Errorf("%s: %v allocations a call", what, n)
		}
	}
	if fakecuda.Used(0) != used || fakecuda.Calls("cuMemAlloc") != allocs {
		t.Error("a step took device memory")
	}
}

// BenchmarkDo is the time of a call outside of the driver.
func BenchmarkDo(b *testing.B) {
	rt := fake(b, fakecuda.Hopper)
	calls := step(b, rt)
	for _, call := range calls {
		must(b, call())
	}
	must(b, rt.Sync(), fakecuda.Idle())
	for what, call := range calls {
		b.Run("op="+what, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				must(b, call())
			}
		})
	}
}

// TestSupports: every reason at once, and nothing is launched.
func TestSupports(t *testing.T) {
	rt := fake(t, fakecuda.Hopper)
	c := attn.NewDecodeCall()
	c.Query, c.Key, c.Value = attn.Of(attn.F32, 2, 8, 80), attn.Of(attn.F32, 6, 2, 16, 80), attn.Of(attn.F32, 6, 2, 16, 80)
	c.BlockTables, c.SeqLens = attn.Of(attn.I32, 2, 3), attn.Of(attn.I32, 2)
	must(t, c.Infer())
	why := rt.Backend().Supports(&c)
	if len(why) != 3 {
		t.Fatalf("reasons %v, want dtypes, head dim and output", why)
	}
	want(t, "dtypes", why[0], ops.ErrUnsupported, "float32 with float32", "bfloat16 with bfloat16")
	want(t, "head dim", why[1], ops.ErrUnsupported, "got 80", "64, ", "128")
	want(t, "output", why[2], ops.ErrUnsupported, "got float32", "bfloat16")
	err := rt.Backend().Decode(&c)
	for _, r := range why {
		want(t, "Decode", err, ops.ErrUnsupported, r.Error())
	}
	if _, err := rt.Backend().WorkspaceSize(&c); err == nil {
		t.Error("a workspace for what is not supported")
	}
	one := decodeOf(t, rt) // what kernels do give, from other operands
	one.Out.DType = attn.E4M3
	if why := rt.Backend().Supports(one); len(why) != 1 {
		t.Errorf("reasons %v, want the output's dtype", why)
	} else {
		want(t, "output", why[0], ops.ErrUnsupported, "out_dtype", "got float8_e4m3", "want bfloat16")
	}
	lin := &attn.LinearCall{X: attn.Of(attn.F16, 4, 64), Weight: attn.Of(attn.Q4_0, 8, 2)}
	must(t, lin.Infer())
	want(t, "Linear over blocks", errors.Join(rt.Backend().Supports(lin)...), ops.ErrUnsupported, "float16 with q4_0", "float16 with float16")
	pre := &attn.PrefillCall{Backend: "cudnn", Query: attn.Of(attn.BF16, 4, 2, 64), Key: attn.Of(attn.BF16, 4, 2, 64), Value: attn.Of(attn.BF16, 4, 2, 64),
		QLens: attn.Of(attn.I32, 1), KVLens: attn.Of(attn.I32, 1), MaxQLen: 4, MaxKVLen: 4}
	must(t, pre.Infer())
	want(t, "cudnn", errors.Join(rt.Backend().Supports(pre)...), ops.ErrUnsupported, "cudnn")
	if n := len(fakecuda.Launches()); n != 0 {
		t.Errorf("%d launches", n)
	}
}

// TestWorkspace: the caller's is used, unless it is too small or not the device's.
func TestWorkspace(t *testing.T) {
	rt := fake(t, fakecuda.Hopper)
	c := decodeOf(t, rt)
	n, err := rt.Backend().WorkspaceSize(c)
	must(t, err)
	if n <= 0 || n > rt.workspace.bytes {
		t.Errorf("%d bytes wanted, the Runtime's own has %d", n, rt.workspace.bytes)
	}
	c.Workspace = device(t, rt, attn.U8, n)
	must(t, rt.Backend().Decode(c))
	if p := fakecuda.As[decodeParams](&fakecuda.Launches()[0]); p.Workspace != driver.Of(c.Workspace.Ptr) {
		t.Errorf("workspace %#x, want the caller's %#x", p.Workspace, driver.Of(c.Workspace.Ptr))
	}
	c.Workspace = device(t, rt, attn.U8, n-1)
	want(t, "a small one", rt.Backend().Decode(c), ops.ErrArgument, "workspace", strconv.Itoa(n))
	c.Workspace = attn.Of(attn.U8, n)
	c.Workspace.Ptr = driver.Memory(make([]byte, n))
	want(t, "the host's", rt.Backend().Decode(c), ops.ErrDevice, "workspace")
}

// TestHostTables: lengths and tables may lie on the host, however large; other operands may not, and none in a recording.
func TestHostTables(t *testing.T) {
	rt := fake(t, fakecuda.Hopper)
	c := decodeOf(t, rt)
	c.SeqLens = onHost([]int{2}, 40, 17)
	wide := make([]int32, 2*400_000) // more than the Runtime has room for at first
	copy(wide, []int32{3, 1, 2})
	copy(wide[400_000:], []int32{5, 4, 0})
	c.BlockTables = onHost([]int{2, 400_000}, wide...)
	var seen []int32
	fakecuda.Body("decode_h64_r8_bf16_kvbf16_sm90a", func(m *fakecuda.Memory, l *fakecuda.Launch) error {
		p := fakecuda.As[decodeParams](l)
		seen = append(seen, fakecuda.On[int32](m, uint64(p.SeqLens), 2)...)
		for b := range 2 {
			seen = append(seen, fakecuda.On[int32](m, uint64(p.BlockTables)+uint64(4*int64(b)*p.TableRow), 3)...)
		}
		return nil
	})
	must(t, rt.Backend().Decode(c))
	c.SeqLens = onHost([]int{2}, 41, 18)
	must(t, rt.Backend().Decode(c), rt.Sync())
	if wanted := []int32{40, 17, 3, 1, 2, 5, 4, 0, 41, 18, 3, 1, 2, 5, 4, 0}; !slices.Equal(seen, wanted) {
		t.Errorf("the kernel saw %v, want %v", seen, wanted)
	}
	_, err := rt.Record(func() error { return rt.Backend().Decode(c) })
	want(t, "in a recording", err, ops.ErrDevice, "block_tables", "CUDA graph")
	must(t, rt.Sync())
	query := c.Query
	c.Query.Ptr = driver.Memory(make([]byte, 2*8*64*2))
	want(t, "a query on the host", rt.Backend().Decode(c), ops.ErrDevice, "decode: query")
	c.Query = query
	c.Query.Shape[0], c.Out.Shape[0] = 4, 4
	c.QLenPerReq = 2
	want(t, "a query past its memory", rt.Backend().Decode(c), ops.ErrDevice, "query", "past the end")
}

// TestOverlap: programmatic dependent launch is on where the kernel can wait for the one before it, unless the call says no.
func TestOverlap(t *testing.T) {
	for capability, grid := range map[int]int{90: 2 * 132, 80: 132, 100: 132} {
		gpu := fakecuda.Hopper
		gpu.Capability = capability
		rt := fake(t, gpu)
		c := decodeOf(t, rt)
		for pdl, wanted := range map[int8]bool{-1: false, 0: capability == 90, 1: capability == 90} {
			c.PDL = pdl
			must(t, rt.Backend().Decode(c))
			if l := fakecuda.Launches(); len(l) != 1 || l[0].Overlap != wanted || int(l[0].Grid[0]) != grid {
				t.Errorf("%d, PDL %d: %+v, want overlap %v and %d blocks", capability, pdl, l, wanted, grid)
			}
		}
		must(t, rt.Close())
	}
}

// TestTallMatrices: products with more rows than a grid has blocks for are launched in parts that follow each other.
func TestTallMatrices(t *testing.T) {
	rt := fake(t, fakecuda.Hopper)
	const rows, columns = 2*65535*64 + 3, 2
	fakecuda.Body("matmul_f32_sm90a", func(*fakecuda.Memory, *fakecuda.Launch) error { return nil })
	x, w, out := device(t, rt, attn.F16, rows, columns), device(t, rt, attn.F16, 1, columns), device(t, rt, attn.F16, rows, 1)
	lin := &attn.LinearCall{X: x, Weight: w, Out: out}
	must(t, lin.Infer(), rt.Backend().Linear(lin))
	at, to := driver.Of(x.Ptr), driver.Of(out.Ptr)
	for i, l := range fakecuda.Launches() {
		p := fakecuda.As[linearParams](&l)
		if p.X != at || p.Out != to || int64(l.Grid[1])*64 < p.Rows {
			t.Errorf("launch %d: %d rows from %#x to %#x by %d blocks, want from %#x to %#x", i, p.Rows, p.X, p.Out, l.Grid[1], at, to)
		}
		at, to = at+driver.Addr(p.Rows*2*columns), to+driver.Addr(p.Rows*2)
	}
	if end := driver.Of(x.At(x.Len())); at != end {
		t.Errorf("rows up to %#x, want %#x", at, end)
	}
	a, err := rt.Upload(tensor.New(tensor.WithShape(rows, 1), tensor.WithBacking(make([]float32, rows))))
	must(t, err)
	b, err := rt.Upload(tensor.New(tensor.WithShape(1, 1), tensor.WithBacking(make([]float32, 1))))
	must(t, err)
	_, err = tensor.MatMul(a, b)
	must(t, err)
	done := int64(0)
	for _, l := range fakecuda.Launches() {
		if p := fakecuda.As[matMulParams](&l); p.A == driver.Addr(a.Uintptr())+driver.Addr(4*done) && int64(l.Grid[1])*64 >= p.M {
			done += p.M
		}
	}
	if done != rows {
		t.Errorf("%d rows of a product, want %d", done, rows)
	}
}

// TestScalars: a window wider than 32 bits is none, bounds that 32 bits do not hold are their largest number, and max_seq_len defaults to
// what the block tables hold.
func TestScalars(t *testing.T) {
	rt := fake(t, fakecuda.Hopper)
	c := decodeOf(t, rt)
	c.WindowLeft, c.MaxSeqLen = math.MaxInt, math.MaxInt
	must(t, rt.Backend().Decode(c))
	p := fakecuda.As[decodeParams](&fakecuda.Launches()[0])
	if p.WindowLeft != -1 || p.MaxSeqLen != math.MaxInt32 {
		t.Errorf("window %d, longest %d", p.WindowLeft, p.MaxSeqLen)
	}
	c.WindowLeft = 1 << 35 // which as an int32 is 0
	must(t, c.Infer(), rt.Backend().Decode(c))
	if p := fakecuda.As[decodeParams](&fakecuda.Launches()[0]); p.WindowLeft != -1 {
		t.Errorf("window 2^35 is %d", p.WindowLeft)
	}
	c.WindowLeft, c.MaxSeqLen = 5, 0
	must(t, rt.Backend().Decode(c))
	p = fakecuda.As[decodeParams](&fakecuda.Launches()[0])
	if p.WindowLeft != 5 || p.MaxSeqLen != 48 || p.Op != opDecode {
		t.Errorf("window %d, longest %d, op %d", p.WindowLeft, p.MaxSeqLen, p.Op)
	}
	pre := &attn.PrefillCall{Scale: 1, MaxQLen: 1 << 32, MaxKVLen: 1<<31 + 2, Query: device(t, rt, attn.F16, 4, 2, 64), Out: device(t, rt, attn.F16, 4, 2, 64),
		Key: device(t, rt, attn.F16, 8, 2, 64), Value: device(t, rt, attn.F16, 8, 2, 64), QLens: int32s(t, rt, []int{1}, 4), KVLens: int32s(t, rt, []int{1}, 8),
		OffsetsStats: int32s(t, rt, []int{1}, 1<<30)}
	must(t, rt.Backend().Prefill(pre))
	q := fakecuda.As[prefillParams](&fakecuda.Launches()[0])
	if q.MaxQLen != math.MaxInt32 || q.MaxKVLen != math.MaxInt32 {
		t.Errorf("prefill's bounds %d and %d", q.MaxQLen, q.MaxKVLen)
	}
	if q.OffsetsStats != 0 {
		t.Error("places of statistics that nobody wants")
	}
}

// TestNoRows: a call without rows that says something wrong is told so before the launch, or launched, for the kernel to find it.
func TestNoRows(t *testing.T) {
	rt := fake(t, fakecuda.Hopper)
	d := decodeOf(t, rt)
	d.Query, d.Out, d.LSE = device(t, rt, attn.BF16, 0, 8, 64), device(t, rt, attn.BF16, 0, 8, 64), attn.Tensor{}
	d.CumSeqLensQ, d.MaxQLen = int32s(t, rt, []int{3}, 0, 0, 5), 5
	p := &attn.PrefillCall{Scale: 1, MaxQLen: 4, MaxKVLen: 8, Query: device(t, rt, attn.F16, 0, 2, 64), Out: device(t, rt, attn.F16, 0, 2, 64),
		Key: device(t, rt, attn.F16, 8, 2, 64), Value: device(t, rt, attn.F16, 8, 2, 64), QLens: int32s(t, rt, []int{1}, 4), KVLens: int32s(t, rt, []int{1}, 8)}
	for what, c := range map[string]struct {
		call  attn.Call
		check *bool
	}{"decode": {d, &d.CheckValues}, "prefill": {p, &p.CheckValues}} {
		*c.check = true
		want(t, what+", checked", c.call.Run(rt.Backend()), ops.ErrArgument, "lens_q")
		*c.check = false
		fakecuda.Launches()
		must(t, c.call.Run(rt.Backend()))
		if len(fakecuda.Launches()) != 1 {
			t.Errorf("%s: nothing was launched that could find the fault", what)
		}
	}
}

// TestGroup: a group that prefill's kernels cannot divide by is refused, with that as the only reason; the largest that they can is not.
func TestGroup(t *testing.T) {
	rt := fake(t, fakecuda.Hopper)
	call := func(group int) *attn.PrefillCall {
		return &attn.PrefillCall{Scale: 1, MaxQLen: 1, MaxKVLen: 8, Query: device(t, rt, attn.F16, 1, group, 64), Out: device(t, rt, attn.F16, 1, group, 64),
			Key: device(t, rt, attn.F16, 8, 1, 64), Value: device(t, rt, attn.F16, 8, 1, 64), QLens: int32s(t, rt, []int{1}, 1), KVLens: int32s(t, rt, []int{1}, 8)}
	}
	if why := rt.Backend().Supports(call(mostGroup)); why != nil {
		t.Errorf("%d: %v", mostGroup, why)
	}
	why := rt.Backend().Supports(call(mostGroup + 1))
	if len(why) != 1 {
		t.Fatalf("%d: %v", mostGroup+1, why)
	}
	want(t, "one more", why[0], ops.ErrUnsupported, "3501", "3500")
}

// TestTiles: keys that lie well are read by bulk tensor copies on Hopper, others and other GPUs by the plain kernel.
func TestTiles(t *testing.T) {
	portable := fakecuda.Hopper
	portable.Capability = 80
	for _, gpu := range []fakecuda.Config{fakecuda.Hopper, portable} {
		rt := fake(t, gpu)
		must(t, refBodies())
		paged := func(page int) *attn.PrefillCall {
			return &attn.PrefillCall{Scale: 1, MaxQLen: 4, MaxKVLen: 8, Query: device(t, rt, attn.F16, 4, 2, 64), Out: device(t, rt, attn.F16, 4, 2, 64),
				Key: device(t, rt, attn.F16, 2, 2, page, 64), Value: device(t, rt, attn.F16, 2, 2, page, 64), BlockTables: int32s(t, rt, []int{1, 2}, 0, 1),
				QLens: int32s(t, rt, []int{1}, 4), KVLens: int32s(t, rt, []int{1}, 8)}
		}
		ragged := paged(8)
		ragged.Key, ragged.Value, ragged.BlockTables = device(t, rt, attn.F16, 8, 2, 64), device(t, rt, attn.F16, 8, 2, 64), attn.Tensor{}
		offset := *ragged
		offset.OffsetsK = int32s(t, rt, []int{1}, 0)
		askew := paged(8)
		askew.Key.Ptr, askew.Key.Shape[0] = (driver.Of(askew.Key.Ptr) + 8).Pointer(), 1
		askew.Value.Shape[0] = 1
		askew.BlockTables, askew.KVLens = int32s(t, rt, []int{1, 1}, 0), int32s(t, rt, []int{1}, 8)
		wide := paged(8) // rows of 68 elements are 136 bytes apart
		wide.Value = device(t, rt, attn.F16, 2*2*8*68)
		wide.Value.Rank, wide.Value.Shape, wide.Value.Stride = 4, [attn.MaxRank]int{2, 2, 8, 64}, [attn.MaxRank]int{2 * 8 * 68, 8 * 68, 68, 1}
		for what, c := range map[string]struct {
			call *attn.PrefillCall
			well bool
		}{"pages of 8": {paged(8), true}, "pages of 24": {paged(24), true}, "pages of 4": {paged(4), false}, "ragged": {ragged, true},
			"ragged with offsets": {&offset, false}, "a base out of line": {askew, false}, "rows out of line": {wide, false}} {
			must(t, c.call.Infer(), rt.Backend().Prefill(c.call), rt.Sync())
			l := fakecuda.Launches()
			if tma := strings.Contains(l[len(l)-1].Symbol, "_tma_"); tma != (c.well && gpu.Capability == 90) {
				t.Errorf("%d, %s: %s", gpu.Capability, what, l[len(l)-1].Symbol)
			}
		}
		must(t, rt.Close())
	}
}

// TestSameFaults: what a kernel finds and what a check before the launch finds is told in the same words.
func TestSameFaults(t *testing.T) {
	rt := fake(t, fakecuda.Hopper)
	sums, lens, both := decodeOf(t, rt), decodeOf(t, rt), prefillOf(t, rt)
	sums.CumSeqLensQ, sums.MaxQLen = int32s(t, rt, []int{3}, 1, 1, 2), 4
	lens.SeqLens = int32s(t, rt, []int{2}, math.MinInt32, 3)
	lens.SeqLens.DType = attn.U32
	both.KVLens, both.MaxKVLen = int32s(t, rt, []int{1}, 99), 20
	for _, x := range []struct {
		call  attn.Call
		check *bool
		found fault // of the kernel, as kernels/checks and the hardware tests have it
	}{
		{sums, &sums.CheckValues, fault{faultQRows, opDecode, -1, 1, 2}},
		{lens, &lens.CheckValues, fault{faultSeqLenNegative, opDecode, 0, math.MinInt32, 0}},
		{both, &both.CheckValues, fault{faultSeqLenTable, opPrefill, 0, 99, 32}},
	} {
		must(t, x.call.Infer())
		*x.check = true
		if err := x.call.Run(rt.Backend()); err == nil || err.Error() != x.found.error().Error() {
			t.Errorf("before the launch: %v, by the kernel: %v", err, x.found.error())
		}
	}
}

// TestNoRequests: rows of nobody are an error, also where there is no request for a kernel to find it, and no rows are none.
func TestNoRequests(t *testing.T) {
	rt := fake(t, fakecuda.Hopper)
	c := decodeOf(t, rt)
	c.CumSeqLensQ, c.MaxQLen = int32s(t, rt, []int{1}, 0), 4
	c.BlockTables, c.SeqLens = device(t, rt, attn.I32, 0, 3), device(t, rt, attn.I32, 0)
	want(t, "rows without requests", c.Infer(), ops.ErrShape, "cum_seq_lens_q")
	c.Query, c.Out, c.LSE = device(t, rt, attn.BF16, 0, 8, 64), device(t, rt, attn.BF16, 0, 8, 64), attn.Tensor{}
	must(t, c.Infer(), rt.Backend().Decode(c))
}

// TestHostOperands: what a kernel reads or writes of a decode lies on its GPU, each operand of it; lengths and tables may lie elsewhere.
func TestHostOperands(t *testing.T) {
	rt := fake(t, fakecuda.Hopper)
	full := func() *attn.DecodeCall {
		c := decodeOf(t, rt)
		c.QLenPerReq, c.Query, c.Out, c.LSE = 2, device(t, rt, attn.BF16, 4, 8, 64), device(t, rt, attn.BF16, 4, 8, 64), device(t, rt, attn.F32, 4, 8)
		c.Mask, c.Sinks = device(t, rt, attn.U16, 2, 2, 2), device(t, rt, attn.F32, 8)
		c.BMM1ScaleTensor, c.BMM2ScaleTensor = device(t, rt, attn.F32, 1), device(t, rt, attn.F32, 1)
		must(t, c.Infer())
		n, err := rt.Backend().WorkspaceSize(c)
		must(t, err)
		c.Workspace = device(t, rt, attn.U8, n)
		return c
	}
	must(t, rt.Backend().Decode(full()))
	for arg, of := range map[string]func(*attn.DecodeCall) *attn.Tensor{
		"query": func(c *attn.DecodeCall) *attn.Tensor { return &c.Query }, "kv_cache": func(c *attn.DecodeCall) *attn.Tensor { return &c.Value },
		"out": func(c *attn.DecodeCall) *attn.Tensor { return &c.Out }, "lse": func(c *attn.DecodeCall) *attn.Tensor { return &c.LSE },
		"mask": func(c *attn.DecodeCall) *attn.Tensor { return &c.Mask }, "sinks": func(c *attn.DecodeCall) *attn.Tensor { return &c.Sinks },
		"bmm1_scale": func(c *attn.DecodeCall) *attn.Tensor { return &c.BMM1ScaleTensor }, "bmm2_scale": func(c *attn.DecodeCall) *attn.Tensor { return &c.BMM2ScaleTensor },
		"workspace_buffer": func(c *attn.DecodeCall) *attn.Tensor { return &c.Workspace },
	} {
		c := full()
		x := of(c)
		x.Ptr = driver.Memory(make([]byte, x.Bytes()))
		must(t, c.Infer())
		fakecuda.Launches()
		want(t, arg+" in host memory", rt.Backend().Decode(c), ops.ErrDevice, arg)
		if n := len(fakecuda.Launches()); n != 0 {
			t.Errorf("%s: %d launches", arg, n)
		}
	}
	// Nor may what a call does not look at.
	d := decodeOf(t, rt)
	d.Mask = device(t, rt, attn.U16, 2, 1, 2)
	must(t, d.Infer(), rt.Backend().Decode(d))
	d.Mask.Ptr = driver.Memory(make([]byte, d.Mask.Bytes()))
	want(t, "a mask for one row in host memory", rt.Backend().Decode(d), ops.ErrDevice, "mask")
	p := prefillOf(t, rt)
	p.Workspace = device(t, rt, attn.U8, 64)
	must(t, p.Infer(), rt.Backend().Prefill(p))
	p.Workspace.Ptr = driver.Memory(make([]byte, 64))
	want(t, "prefill's workspace in host memory", rt.Backend().Prefill(p), ops.ErrDevice, "workspace_buffer")
}

// TestCheckedWindow: a window wider than any sequence hides no bad page from the check before the launch, also where rows lie before the first key.
func TestCheckedWindow(t *testing.T) {
	rt := fake(t, fakecuda.Hopper)
	c := decodeOf(t, rt)
	c.QLenPerReq, c.Query, c.Out, c.LSE = 3, device(t, rt, attn.BF16, 6, 8, 64), device(t, rt, attn.BF16, 6, 8, 64), device(t, rt, attn.F32, 6, 8)
	c.SeqLens, c.BlockTables, c.CheckValues = int32s(t, rt, []int{2}, 1, 17), int32s(t, rt, []int{2, 3}, 99, 1, 2, 3, 4, 5), true
	for _, w := range []int{-1, 5, math.MaxInt32, math.MaxInt} {
		c.WindowLeft = w
		must(t, c.Infer())
		want(t, fmt.Sprintf("window %d", w), rt.Backend().Decode(c), ops.ErrArgument, "page 99")
	}
}

// TestFrozenPrefill: a call that a CUDA graph may hold takes no lengths, tables or offsets from the host; another does.
func TestFrozenPrefill(t *testing.T) {
	rt := fake(t, fakecuda.Hopper)
	for arg, give := range map[string]func(*attn.PrefillCall){
		"actual_seq_lens_q":  func(c *attn.PrefillCall) { c.QLens = onHost([]int{1}, 4) },
		"actual_seq_lens_kv": func(c *attn.PrefillCall) { c.KVLens = onHost([]int{1}, 8) },
		"block_tables":       func(c *attn.PrefillCall) { c.BlockTables = onHost([]int{1, 2}, 0, 1) },
		"batch_offsets_q":    func(c *attn.PrefillCall) { c.OffsetsQ = onHost([]int{1}, 0) },
		"batch_offsets_o":    func(c *attn.PrefillCall) { c.OffsetsO = onHost([]int{1}, 0) },
	} {
		c := prefillOf(t, rt)
		give(c)
		must(t, c.Infer(), rt.Backend().Prefill(c))
		c.CUDAGraph = true
		want(t, arg, rt.Backend().Prefill(c), ops.ErrDevice, arg)
	}
}

// TestThreads: every op works on a thread that no context was current on before, and on one where another GPU's was.
func TestThreads(t *testing.T) {
	a := fake(t, fakecuda.Hopper)
	b, err := Open(1)
	must(t, err)
	calls := func(rt *Runtime) []attn.Call { return []attn.Call{decodeOf(t, rt), prefillOf(t, rt)} }
	of := [][]attn.Call{calls(a), calls(b)}
	onNewThread := func(run func() error) error {
		done := make(chan error)
		go func() {
			runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
			done <- run()
		}()
		return <-done
	}
	for i, c := range of[0] {
		must(t, onNewThread(func() error { return errors.Join(c.Run(a.Backend()), of[1][i].Run(b.Backend())) }))
	}
	foreign := decodeOf(t, a)
	foreign.BlockTables = of[1][0].(*attn.DecodeCall).BlockTables
	want(t, "another GPU's table, on a new thread", onNewThread(func() error { return a.Backend().Decode(foreign) }), ops.ErrDevice, "block_tables")
	must(t, b.Close())
}

// prefillOf is a paged call that tensor copies can read.
func prefillOf(t *testing.T, rt *Runtime) *attn.PrefillCall {
	kv := func() attn.Tensor { return device(t, rt, attn.F16, 2, 2, 16, 64) }
	return &attn.PrefillCall{Scale: 1, MaxQLen: 4, MaxKVLen: 8, Query: device(t, rt, attn.F16, 4, 2, 64), Out: device(t, rt, attn.F16, 4, 2, 64),
		Key: kv(), Value: kv(), BlockTables: int32s(t, rt, []int{1, 2}, 0, 1), QLens: int32s(t, rt, []int{1}, 4), KVLens: int32s(t, rt, []int{1}, 8)}
}
