package cudaops

import (
	"fmt"
	"math/bits"
	"slices"
	"sync"

	"github.com/gaze-ml/gaze/cudaops/internal/driver"
	"github.com/gaze-ml/gaze/cudaops/kernels"
	"github.com/gaze-ml/gaze/internal/attn"
)

// kernel is one row of the table that decides everything: which kernel runs a call, what is supported, how large a workspace must be,
// and what [ShowConfig] says.
type kernel struct {
	key
	Symbol  string // with the target
	Target  string // of package kernels
	Threads int    // a block
	Shared  int    // bytes of dynamic shared memory
	Tile    int    // decode and prefill: rows of one KV head that a block holds at a time; tiled: keys of a block
	PerSM   int    // decode and prefill: blocks that run on a multiprocessor at once

	Outs []attn.DType // decode and prefill: dtypes of the output, U8 for nvfp4

	function *driver.Function // once loaded, of a Runtime's copy of the row
}

// key is what a call asks for. What does not matter for an op is zero. One kernel may serve several keys.
type key struct {
	Op      string     // the call's op, or one of the engine's
	A, B    attn.DType // decode and prefill: of q and of K and V; else see the table
	Dim     int        // head dim, of q and K where they differ from V's
	DimV    int        // prefill: head dim of V
	Rows    int        // decode: Tile
	Size    int        // bytes of an element, where its type is of no account
	Variant variant    // of several kernels for one purpose
}

// variant tells kernels apart that serve the same operands in another way.
type variant uint8

const (
	plain variant = iota
	small         // Linear with few rows
	tiled         // prefill by bulk tensor copies: keys must lie as they want
)

// names are the dtypes in symbols.
var names = map[attn.DType]string{attn.F32: "f32", attn.F16: "f16", attn.BF16: "bf16", attn.E4M3: "e4m3"}

var floats = []attn.DType{attn.F32, attn.F16, attn.BF16}

// The engine's ops.
const (
	opBinary = "binary"
	opCopy   = "copy"
	opMatMul = "matmul"
	opFill   = "fill"
)

// table gives every kernel that this program carries, the better ones first where several serve one key. Tests have another.
var table = sync.OnceValues(func() ([]*kernel, error) {
	m, err := kernels.Load()
	if err != nil {
		return nil, err
	}
	carried := map[string]bool{}
	for _, im := range m.Images {
		for _, e := range im.Entries {
			carried[e.Symbol] = true
		}
	}
	all, err := allRows()
	return slices.DeleteFunc(all, func(k *kernel) bool { return !carried[k.Symbol] }), err
})

// allRows are the kernels of every target.
func allRows() ([]*kernel, error) {
	shapes, err := kernels.LaunchShapes()
	if err != nil {
		return nil, err
	}
	var all []*kernel
	for _, target := range []string{"sm90a", "sm80"} {
		for _, k := range rows(target, shapes) {
			k.Target = target
			k.Symbol += "_" + target
			all = append(all, k)
		}
	}
	return all, nil
}

// rows are the kernels of one target by the names that the sources give them; shapes are those of kernels/launch.h.
func rows(target string, shapes map[string][4]int) []*kernel {
	rs := attentionRows(target, shapes)
	row := func(k key, threads int, symbol string, a ...any) {
		rs = append(rs, &kernel{key: k, Threads: threads, Symbol: fmt.Sprintf(symbol, a...)})
	}
	const threads = 256
	for _, dt := range floats {
		n := names[dt]
		row(key{Op: "rms_norm", A: dt}, threads, "rmsnorm_%s", n)
		row(key{Op: "rope", A: dt}, threads, "rope_%s", n)
		row(key{Op: "silu_mul", A: dt}, threads, "silu_mul_%s", n)
		row(key{Op: "merge_lse", A: dt}, threads, "merge_lse_%s", n)
		row(key{Op: "argmax", A: dt}, 1024, "argmax_%s", n)
		row(key{Op: "softmax", A: dt}, 1024, "softmax_%s", n)
		row(key{Op: "top_k", A: dt}, 1024, "topk_%s", n)
		row(key{Op: "linear", A: dt, B: dt, Variant: small}, threads, "gemv_%s", n)
		row(key{Op: "linear", A: dt, B: dt}, 128, "gemm_%s", n)
		for _, other := range floats {
			row(key{Op: "append_kv", A: dt, B: other}, threads, "append_%s_%s", n, names[other])
			row(key{Op: "embedding", A: dt, B: other}, threads, "embedding_%s_%s", n, names[other])
		}
	}
	all := append(slices.Clone(floats), attn.E4M3)
	for _, dt := range all {
		row(key{Op: "append_kv", A: dt, B: attn.E4M3}, threads, "append_%s_e4m3", names[dt])
		for _, other := range all {
			row(key{Op: "cast", A: dt, B: other}, threads, "cast_%s_%s", names[dt], names[other])
		}
	}
	row(key{Op: opMatMul, A: attn.F32}, threads, "matmul_f32")
	row(key{Op: opBinary, A: attn.F32}, threads, "binary_f32")
	row(key{Op: opFill, Size: 4}, threads, "fill_b4")
	for _, size := range []int{1, 2, 4, 8} {
		row(key{Op: opCopy, Size: size}, threads, "copy_b%d", size)
	}
	return rs
}

// attentionRows are those of decode and prefill, whose kernels launch.h tells of.
func attentionRows(target string, shapes map[string][4]int) (rs []*kernel) {
	row := func(k key, shape, symbol string, outs ...attn.DType) {
		if s, ok := shapes[shape+"_"+target]; ok {
			rs = append(rs, &kernel{key: k, Threads: s[0], Shared: s[1], Tile: s[2], PerSM: s[3], Symbol: symbol, Outs: outs})
		}
	}
	decode := func(k key, shape, types string, outs ...attn.DType) {
		for _, k.Rows = range []int{8, 16, 32} {
			row(k, fmt.Sprintf("%s_r%d", shape, k.Rows), fmt.Sprintf("decode_h%d_r%d_%s", k.Dim, k.Rows, types), outs...)
		}
	}
	halves := []attn.DType{attn.BF16, attn.F16}
	for _, d := range []int{64, 96, 128, 192, 256} {
		k := key{Op: "decode", B: attn.E4M3, Dim: d}
		for _, dt := range halves {
			n := names[dt]
			decode(key{Op: k.Op, A: dt, B: dt, Dim: d}, fmt.Sprintf("decode_%d", d), fmt.Sprintf("%s_kv%s", n, n), dt)
		}
		// One kernel reads e4m3 caches for queries of three dtypes.
		for _, dt := range append(halves, attn.E4M3) {
			outs := []attn.DType{dt, attn.E4M3}
			if dt == attn.E4M3 {
				outs = []attn.DType{attn.E4M3, attn.F16, attn.BF16, attn.U8}
			}
			k.A = dt
			decode(k, fmt.Sprintf("decode_e4m3_%d", d), "kve4m3", outs...)
		}
	}
	for _, d := range [][2]int{{64, 64}, {96, 96}, {128, 128}, {192, 192}, {256, 256}, {192, 128}} {
		k := key{Op: "prefill", Dim: d[0], DimV: d[1]}
		dims := k.dims("x")
		for _, dt := range halves {
			n := names[dt]
			k.A, k.B, k.Variant = dt, dt, plain
			row(k, "prefill_"+dims, fmt.Sprintf("prefill_h%s_%s", dims, n), dt)
			k.Variant = tiled
			row(k, "prefill_tma_"+dims, fmt.Sprintf("prefill_h%s_%s_tma", dims, n), dt)
		}
		k.A, k.B, k.Variant = attn.E4M3, attn.E4M3, plain
		row(k, "prefill_e4m3_"+dims, fmt.Sprintf("prefill_h%s_e4m3", dims), attn.E4M3, attn.F16, attn.BF16)
	}
	return rs
}

// dims spells head dims, those of q and K before V's where there are two.
func (k key) dims(between string) string {
	if k.DimV == 0 || k.DimV == k.Dim {
		return fmt.Sprint(k.Dim)
	}
	return fmt.Sprint(k.Dim, between, k.DimV)
}

// dtypes spells A and B, or A alone where the op has no B.
func (k key) dtypes() string {
	if k.B == attn.Invalid {
		return k.A.String()
	}
	return fmt.Sprintf("%v with %v", k.A, k.B)
}

// runs tells whether the kernel's code runs on a GPU of that compute capability: sm_90a on 9.0 alone, the portable build on 8.0 and
// everything later, by its PTX where the generation is another.
func (k *kernel) runs(capability int) bool {
	if k.Target == "sm90a" {
		return capability == 90
	}
	return capability >= 80
}

// choices are a Runtime's copies of the kernels that a GPU of a compute capability, with so much shared memory a block, runs: the best for
// each key, in the table's order.
type choices struct {
	all   []*kernel
	slots []*kernel // all by their keys, from each one's hash on; a power of two, more than half of them nil
}

func choicesOf(capability, shared int) (choices, error) {
	ks, err := table()
	c := choices{slots: make([]*kernel, 2<<bits.Len(uint(len(ks))))}
	for _, k := range ks {
		if slot := c.slot(&k.key); *slot == nil && k.runs(capability) && k.Shared <= shared {
			own := *k
			*slot = &own
			c.all = append(c.all, &own)
		}
	}
	return c, err
}

// of is the kernel for k, or nil: a look-up in a map for every launch, in a third of a map's time.
func (c *choices) of(k key) *kernel { return *c.slot(&k) }

// slot is where the kernel for k is, or would be.
func (c *choices) slot(k *key) **kernel {
	for i := k.hash(); ; i++ {
		slot := &c.slots[i&uint64(len(c.slots)-1)]
		if *slot == nil || (*slot).key == *k {
			return slot
		}
	}
}

// hash tells most keys apart: few ops have names of one length, dtypes and head dims alike.
func (k *key) hash() uint64 {
	n := uint64(len(k.Op)) | uint64(k.A)<<8 | uint64(k.B)<<16 | uint64(k.Variant)<<24 | uint64(k.Size)<<28 | uint64(k.Dim)<<32 | uint64(k.Rows)<<42 | uint64(k.DimV)<<48
	return spread(n) >> 32
}

// spread makes numbers that lie close, or are multiples of one number, differ in their high bits: times 2⁶⁴ by the golden ratio (Knuth,
// The Art of Computer Programming 6.4).
func spread(n uint64) uint64 { return n * 0x9e3779b97f4a7c15 }
