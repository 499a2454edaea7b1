//go:build gpu && linux && amd64 && cgo

package cudaops

import (
	"fmt"
	"math"

	"github.com/gaze-ml/gaze/cudaops/internal/driver"
	"github.com/gaze-ml/gaze/cudaops/internal/fakecuda"
	"github.com/gaze-ml/gaze/internal/attn"
	"github.com/gaze-ml/gaze/internal/cpu"
)

// The bodies of the backend's kernels on the recording driver: what params.h says of a struct's fields, turned back into a call that
// the CPU backend runs on the bytes of device memory. A field that the launch code fills wrongly gives another call.

// view gives tensors over device memory.
type view struct{ m *fakecuda.Memory }

func (v view) strided(a driver.Addr, dt attn.DType, shape []int, stride ...int64) attn.Tensor {
	if a == 0 {
		return attn.Tensor{}
	}
	t := attn.Of(dt, shape...)
	for i, s := range stride {
		t.Stride[i] = int(s)
	}
	n, err := span("", "", &t)
	if err != nil {
		panic(err)
	}
	if n > 0 {
		t.Ptr = driver.Memory(v.m.Bytes(uint64(a), n))
	}
	return t
}

func (v view) packed(a driver.Addr, dt attn.DType, shape ...int) attn.Tensor {
	return v.strided(a, dt, shape)
}

// run makes the call on the CPU.
func run(c attn.Call) error {
	if err := c.Infer(); err != nil {
		return err
	}
	return c.Run(cpu.Default())
}

func refBodies() error {
	ks, err := allRows()
	if err != nil {
		return err
	}
	bodies := map[string]func(k *kernel, v view, l *fakecuda.Launch) error{
		"decode": refDecode, "prefill": refPrefill, "append_kv": refAppend, "rope": refRoPE, "rms_norm": refNorm, "silu_mul": refSiLU,
		"embedding": refEmbedding, "merge_lse": refMerge, "linear": refLinear, "argmax": refArgmax, "cast": refCast, "softmax": refSoftmax, "top_k": refTopK,
	}
	for _, k := range ks {
		if body := bodies[k.Op]; body != nil {
			fakecuda.Body(k.Symbol, func(m *fakecuda.Memory, l *fakecuda.Launch) error {
				if int(l.Block[0]) != k.Threads || int(l.Shared) != k.Shared {
					return fmt.Errorf("%d threads and %d bytes of shared memory, want %d and %d", l.Block[0], l.Shared, k.Threads, k.Shared)
				}
				return body(k, view{m}, l)
			})
		}
	}
	return nil
}

func refDecode(k *kernel, v view, l *fakecuda.Launch) error {
	p := fakecuda.As[decodeParams](l)
	n, hq, b := int(p.Tokens), int(p.QHeads), int(p.Batch)
	cache := []int{int(p.Pages), int(p.KVHeads), int(p.PageSize), k.Dim}
	c := attn.NewDecodeCall()
	q, out := k.A, k.A
	if k.B == attn.E4M3 { // one kernel serves several types
		q, out = dtypeOf(p.QType), dtypeOf(p.OutType)
	} else if p.QType != typeNone || p.OutType != typeNone {
		return fmt.Errorf("types %d and %d for a kernel of its own", p.QType, p.OutType)
	}
	c.Query = v.strided(p.Q, q, []int{n, hq, k.Dim}, p.QToken, p.QHead, 1)
	c.Key, c.Value = v.strided(p.K, k.B, cache, p.KPage, p.KHead, p.KToken, 1), v.strided(p.V, k.B, cache, p.VPage, p.VHead, p.VToken, 1)
	c.BlockTables = v.strided(p.BlockTables, attn.I32, []int{b, int(p.MaxPages)}, p.TableRow, 1)
	c.SeqLens, c.Sinks = v.packed(p.SeqLens, attn.I32, b), v.packed(p.Sinks, attn.F32, hq)
	c.MaxSeqLen, c.WindowLeft = int(p.MaxSeqLen), int(p.WindowLeft)
	c.BMM1Scale, c.BMM2Scale = float64(p.BMM1Scale), float64(p.BMM2Scale)
	c.BMM1ScaleTensor, c.BMM2ScaleTensor = v.packed(p.BMM1ScaleAt, attn.F32, 1), v.packed(p.BMM2ScaleAt, attn.F32, 1)
	if p.CumSeqLensQ != 0 {
		c.CumSeqLensQ, c.MaxQLen = v.packed(p.CumSeqLensQ, attn.I32, b+1), int(p.MaxQLen)
	} else {
		c.QLenPerReq = int(p.QLen)
	}
	c.Mask = v.packed(p.Mask, attn.U16, b, int(p.QLen), 2*((int(p.QLen)+31)/32))
	if out == attn.U8 {
		c.OSFScale, c.SFStartRow = float64(p.OutSFScale), int(p.OutSFStart)
		c.Out = v.packed(p.Out, out, n, hq, k.Dim/2)
		c.OutScale = v.packed(p.OutScale, attn.E4M3, (c.SFStartRow+n+127)/128*128, int(p.OutSFColumns))
	} else {
		c.Out = v.packed(p.Out, out, n, hq, k.Dim)
		if p.OutScale != 0 {
			return fmt.Errorf("block scales for an output of %v", out)
		}
	}
	c.LSE, c.LSE2 = v.packed(p.LSE, attn.F32, n, hq), v.packed(p.LSE2, attn.F32, n, hq)
	// What the kernel may scribble on, it does: partial results, by the formula of params.h.
	grid := int(l.Grid[0])
	scratch := v.m.Bytes(uint64(p.Workspace), 4*2*grid*k.Tile*(k.Dim+2))
	for i := range scratch {
		scratch[i] = 0xff
	}
	rows := int(p.QLen)
	if p.CumSeqLensQ != 0 {
		rows = int(p.MaxQLen)
	}
	most := 32
	if k.Dim > 128 {
		most = 16
	}
	if rows *= hq / int(p.KVHeads); k.Tile < min(most, rows) || k.Tile > max(8, 2*rows-1) {
		return fmt.Errorf("tiles of %d rows for %d", k.Tile, rows)
	}
	if p.Group != p.QHeads/p.KVHeads {
		return fmt.Errorf("group %d of %d and %d heads", p.Group, p.QHeads, p.KVHeads)
	}
	for d, by := range map[int32][2]uint32{p.Group: {p.GroupMul, p.GroupShift}, p.PageSize: {p.PageMul, p.PageShift}} {
		if mul, shift := divisor(d); by != [2]uint32{mul, shift} {
			return fmt.Errorf("%d stand for a division by %d", by, d)
		}
	}
	for i, word := range fakecuda.On[uint32](v.m, uint64(p.Counters), grid) {
		if word != 0 {
			return fmt.Errorf("counter %d is %d", i, word)
		}
	}
	return run(&c)
}

// dtypeOf is enum ElementType turned back.
func dtypeOf(element int32) attn.DType {
	for dt, e := range elementTypes {
		if e == element && e != typeNone {
			return attn.DType(dt)
		}
	}
	return attn.Invalid
}

func refPrefill(k *kernel, v view, l *fakecuda.Launch) error {
	p := fakecuda.As[prefillParams](l)
	n, hq, hkv, b := int(p.Tokens), int(p.QHeads), int(p.KVHeads), int(p.Batch)
	c := attn.PrefillCall{Scale: float64(p.Scale), MaxQLen: int(p.MaxQLen), MaxKVLen: int(p.MaxKVLen), Causal: p.Causal == 1}
	c.Query = v.strided(p.Q, k.A, []int{n, hq, k.Dim}, p.QToken, p.QHead, 1)
	if p.BlockTables != 0 {
		c.Key = v.strided(p.K, k.B, []int{int(p.Pages), hkv, int(p.PageSize), k.Dim}, p.KPage, p.KHead, p.KToken, 1)
		c.Value = v.strided(p.V, k.B, []int{int(p.Pages), hkv, int(p.PageSize), k.DimV}, p.VPage, p.VHead, p.VToken, 1)
		c.BlockTables = v.strided(p.BlockTables, attn.I32, []int{b, int(p.MaxPages)}, p.TableRow, 1)
	} else {
		c.Key = v.strided(p.K, k.B, []int{int(p.KVTokens), hkv, k.Dim}, p.KToken, p.KHead, 1)
		c.Value = v.strided(p.V, k.B, []int{int(p.KVTokens), hkv, k.DimV}, p.VToken, p.VHead, 1)
	}
	if k.Variant == tiled {
		if err := refTiles(k, p); err != nil {
			return err
		}
	}
	c.QLens, c.KVLens = v.packed(p.QLens, attn.I32, b), v.packed(p.KVLens, attn.I32, b)
	offsets := func(a driver.Addr, bytes int32) attn.Tensor {
		return v.packed(a, map[int32]attn.DType{0: attn.Invalid, 4: attn.I32, 8: attn.I64}[bytes], b)
	}
	c.OffsetsQ, c.OffsetsO = offsets(p.OffsetsQ, p.OffsetBytesQ), offsets(p.OffsetsO, p.OffsetBytesO)
	c.OffsetsK, c.OffsetsV = offsets(p.OffsetsK, p.OffsetBytesK), offsets(p.OffsetsV, p.OffsetBytesV)
	c.OffsetsStats = offsets(p.OffsetsStats, p.OffsetBytesStats)
	c.QScale, c.KScale, c.VScale = v.packed(p.QScale, attn.F32, 1), v.packed(p.KScale, attn.F32, 1), v.packed(p.VScale, attn.F32, 1)
	out := k.A
	if k.A == attn.E4M3 {
		out = dtypeOf(p.OutType)
	} else if p.OutType != typeNone {
		return fmt.Errorf("output type %d for a kernel of its own", p.OutType)
	}
	c.Out = v.packed(p.Out, out, n, hq, k.DimV)
	c.LSE, c.LSE2 = v.packed(p.LSE, attn.F32, b, int(p.MaxQLen), hq), v.packed(p.LSE2, attn.F32, b, int(p.MaxQLen), hq)
	for _, lse := range []driver.Addr{p.LSE, p.LSE2} { // the kernel writes rows that exist only
		if lse != 0 {
			for i, x := range fakecuda.On[float32](v.m, uint64(lse), b*int(p.MaxQLen)*hq) {
				if !math.IsInf(float64(x), -1) {
					return fmt.Errorf("lse %d is %v before the kernel", i, x)
				}
			}
		}
	}
	for i, word := range fakecuda.On[uint32](v.m, uint64(p.Counters), 2) {
		if word != 0 {
			return fmt.Errorf("counter %d is %d", i, word)
		}
	}
	return run(&c)
}

// refTiles holds the tensor maps against the fields beside them.
func refTiles(k *kernel, p *prefillParams) error {
	for i, side := range []struct {
		m                 [16]uint64
		base              driver.Addr
		dim               int
		token, head, page int64
	}{{p.KMap, p.K, k.Dim, p.KToken, p.KHead, p.KPage}, {p.VMap, p.V, k.DimV, p.VToken, p.VHead, p.VPage}} {
		got, ok := fakecuda.MapOf(side.m)
		want := fakecuda.Tiled{Address: uint64(side.base), Dims: [4]uint64{uint64(side.dim), uint64(p.KVTokens), uint64(p.KVHeads), 1},
			Strides: [3]uint64{uint64(2 * side.token), uint64(2 * side.head), got.Strides[2]}, Box: [2]uint32{64, uint32(k.Tile)}, BF16: k.A == attn.BF16}
		if p.BlockTables != 0 {
			want.Dims[1], want.Dims[3], want.Strides[2] = uint64(p.PageSize), uint64(p.Pages), uint64(2*side.page)
			for want.Box[1] = 1; k.Tile%int(2*want.Box[1]) == 0 && p.PageSize%int32(2*want.Box[1]) == 0; want.Box[1] *= 2 {
			}
		}
		if !ok || got != want || p.BoxRows != int32(want.Box[1]) {
			return fmt.Errorf("map %d: %+v, %d rows a box, want %+v", i, got, p.BoxRows, want)
		}
	}
	return nil
}

func refNorm(k *kernel, v view, l *fakecuda.Launch) error {
	p := fakecuda.As[rmsNormParams](l)
	n, h := int(p.Rows), int(p.Columns)
	weight := k.A
	if p.WeightF32 == 1 {
		weight = attn.F32
	}
	return run(&attn.RMSNormCall{
		X: v.strided(p.X, k.A, []int{n, h}, p.XRow, 1), Residual: v.strided(p.Residual, k.A, []int{n, h}, p.ResidualRow, 1),
		Weight: v.packed(p.Weight, weight, h), Eps: float64(p.Eps), Out: v.packed(p.Out, k.A, n, h), Sum: v.packed(p.Sum, k.A, n, h),
	})
}

func refSiLU(k *kernel, v view, l *fakecuda.Launch) error {
	p := fakecuda.As[siluMulParams](l)
	shape := []int{int(p.Rows), int(p.Columns)}
	return run(&attn.SiLUMulCall{Gate: v.strided(p.Gate, k.A, shape, p.GateRow, 1), Up: v.strided(p.Up, k.A, shape, p.UpRow, 1),
		Out: v.packed(p.Out, k.A, shape...)})
}

func refMerge(k *kernel, v view, l *fakecuda.Launch) error {
	p := fakecuda.As[mergeLSEParams](l)
	n, h, d := int(p.Tokens), int(p.Heads), int(p.HeadDim)
	return run(&attn.MergeLSECall{
		OutA: v.strided(p.OutA, k.A, []int{n, h, d}, p.AToken, p.AHead, 1), OutB: v.strided(p.OutB, k.A, []int{n, h, d}, p.BToken, p.BHead, 1),
		LSEA: v.strided(p.LSEA, attn.F32, []int{n, h}, p.LSEAToken, 1), LSEB: v.strided(p.LSEB, attn.F32, []int{n, h}, p.LSEBToken, 1),
		Out: v.packed(p.Out, k.A, n, h, d), LSE: v.packed(p.LSE, attn.F32, n, h),
	})
}

func refLinear(k *kernel, v view, l *fakecuda.Launch) error {
	p := fakecuda.As[linearParams](l)
	n, in, out := int(p.Rows), int(p.In), int(p.OutDim)
	bias := k.A
	if p.BiasF32 == 1 {
		bias = attn.F32
	}
	grid := [3]uint32{uint32(ceil(out, 128)), uint32(ceil(n, 64)), 1}
	if k.Variant == small {
		grid = [3]uint32{uint32(ceil(out, 8)), 1, 1}
	}
	if l.Grid != grid || k.Variant == small && n > 16 {
		return fmt.Errorf("grid %v for [%d %d]·[%d %d]ᵀ, want %v", l.Grid, n, in, out, in, grid)
	}
	return run(&attn.LinearCall{X: v.strided(p.X, k.A, []int{n, in}, p.XRow, 1), Weight: v.strided(p.Weight, k.B, []int{out, in}, p.WeightRow, 1),
		Bias: v.packed(p.Bias, bias, out), Out: v.packed(p.Out, k.A, n, out)})
}

// report notes a fault as the kernels do: the first one stays.
func report(v view, at driver.Addr, f fault) {
	if r := &fakecuda.On[fault](v.m, uint64(at), 1)[0]; r.Reason == faultNone {
		*r = f
	}
}

// refEmbedding can't hand a bad id on: its row becomes 0.
func refEmbedding(k *kernel, v view, l *fakecuda.Launch) error {
	p := fakecuda.As[embeddingParams](l)
	n, h, vocab := int(p.Rows), int(p.Columns), int(p.Vocab)
	c := attn.EmbeddingCall{IDs: v.packed(p.IDs, attn.I32, n), Weight: v.strided(p.Weight, k.A, []int{vocab, h}, p.WeightRow, 1),
		Out: v.packed(p.Out, k.B, n, h)}
	for i, id := range fakecuda.On[int32](v.m, uint64(p.IDs), n) {
		if id < 0 || int64(id) >= p.Vocab {
			report(v, p.Fault, fault{faultID, p.Op, int64(i), int64(id), p.Vocab})
			return nil
		}
	}
	return run(&c)
}

func refCast(k *kernel, v view, l *fakecuda.Launch) error {
	p := fakecuda.As[castParams](l)
	return run(&attn.CastCall{X: v.packed(p.X, k.A, int(p.N)), Out: v.packed(p.Out, k.B, int(p.N))})
}

func refArgmax(k *kernel, v view, l *fakecuda.Launch) error {
	p := fakecuda.As[argmaxParams](l)
	n, width := int(p.Rows), int(p.Columns)
	return run(&attn.ArgmaxCall{X: v.strided(p.X, k.A, []int{n, width}, p.XRow, 1), Out: v.packed(p.Out, attn.I32, n)})
}

func refSoftmax(k *kernel, v view, l *fakecuda.Launch) error {
	p := fakecuda.As[softmaxParams](l)
	n, width := int(p.Rows), int(p.Columns)
	return run(&attn.SoftmaxCall{Logits: v.strided(p.Logits, k.A, []int{n, width}, p.LogitsRow, 1), Temperature: math.Log2E / float64(p.Scale),
		Out: v.packed(p.Out, attn.F32, n, width)})
}

func refTopK(k *kernel, v view, l *fakecuda.Launch) error {
	p := fakecuda.As[topKParams](l)
	n, width := int(p.Rows), int(p.Columns)
	return run(&attn.TopKCall{Logits: v.strided(p.Logits, k.A, []int{n, width}, p.LogitsRow, 1), K: int(p.K),
		Values: v.packed(p.Values, attn.F32, n, int(p.K)), Indices: v.packed(p.Indices, attn.I32, n, int(p.K))})
}
