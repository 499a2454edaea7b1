//go:build gpu && linux && amd64 && cgo

package hardware

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"gorgonia.org/tensor"

	"github.com/gaze-ml/gaze/cudaops"
	"github.com/gaze-ml/gaze/internal/attn"
	"github.com/gaze-ml/gaze/ops"
)

func device(t testing.TB, rt *cudaops.Runtime, dt attn.DType, content []byte, shape ...int) attn.Tensor {
	t.Helper()
	x := attn.Of(dt, shape...)
	p, err := rt.Alloc(x.Bytes())
	must(t, err)
	if content != nil {
		must(t, rt.Write(p, content))
	}
	x.Ptr = p
	return x
}

func int32s(v ...int32) []byte {
	var b []byte
	for _, x := range v {
		b = binary.LittleEndian.AppendUint32(b, uint32(x))
	}
	return b
}

// random16 gives bfloat16 values below 1.
func random16(r *rand.Rand, n int) []byte {
	var b []byte
	for range n {
		b = binary.LittleEndian.AppendUint16(b, uint16(math.Float32bits(r.Float32()-0.5)>>16))
	}
	return b
}

func read(t testing.TB, rt *cudaops.Runtime, x *attn.Tensor) []byte {
	t.Helper()
	b := make([]byte, x.Bytes())
	must(t, rt.Read(b, x.Ptr))
	return b
}

// decode is 3 requests over a cache of 8 pages.
func decode(t testing.TB, rt *cudaops.Runtime) *attn.DecodeCall {
	t.Helper()
	r := rand.New(rand.NewPCG(1, 2))
	c := attn.NewDecodeCall()
	c.BMM1Scale = 0.125
	c.Query, c.Out = device(t, rt, attn.BF16, random16(r, 3*8*64), 3, 8, 64), device(t, rt, attn.BF16, nil, 3, 8, 64)
	c.Key, c.Value = device(t, rt, attn.BF16, random16(r, 8*2*16*64), 8, 2, 16, 64), device(t, rt, attn.BF16, random16(r, 8*2*16*64), 8, 2, 16, 64)
	c.LSE = device(t, rt, attn.F32, nil, 3, 8)
	c.BlockTables, c.SeqLens = device(t, rt, attn.I32, int32s(0, 1, 2, 3, 4, 5, 6, 7, 0), 3, 3), device(t, rt, attn.I32, int32s(40, 17, 33), 3)
	must(t, c.Infer())
	return &c
}

// TestBadValues: a request with a bad length gets rows of 0 and -inf, the others are right, and the next wait tells, once.
func TestBadValues(t *testing.T) {
	rt := open(t, 0)
	c := decode(t, rt)
	must(t, rt.Backend().Decode(c))
	good, goodLSE := read(t, rt, &c.Out), read(t, rt, &c.LSE)
	must(t, rt.Write(c.SeqLens.Ptr, int32s(40, 49, 33)), rt.Backend().Decode(c))
	err := rt.Sync()
	if !errors.Is(err, ops.ErrArgument) || !strings.Contains(err.Error(), "seq_lens") || !strings.Contains(err.Error(), "request 1") {
		t.Errorf("%v, want ErrArgument of seq_lens, request 1", err)
	}
	must(t, rt.Sync())
	out, lse := read(t, rt, &c.Out), read(t, rt, &c.LSE)
	const row = 8 * 64 * 2
	if !bytes.Equal(out[:row], good[:row]) || !bytes.Equal(out[2*row:], good[2*row:]) || !bytes.Equal(out[row:2*row], make([]byte, row)) {
		t.Error("rows of other requests changed, or the bad one's are not 0")
	}
	for i := range 24 {
		bits := binary.LittleEndian.Uint32(lse[4*i:])
		if bad := i/8 == 1; bad && bits != 0xff800000 || !bad && bits != binary.LittleEndian.Uint32(goodLSE[4*i:]) {
			t.Errorf("lse %d is %#x", i, bits)
		}
	}
	must(t, rt.Write(c.SeqLens.Ptr, int32s(40, 17, 33)), rt.Backend().Decode(c), rt.Sync())
	if !bytes.Equal(read(t, rt, &c.Out), good) {
		t.Error("the next good call gives something else")
	}
}

// TestBadIDs: a bad id gets a row of 0 and the others are right, and the next wait tells, once; with CheckValues nothing is written.
func TestBadIDs(t *testing.T) {
	rt := open(t, 0)
	table := random16(rand.New(rand.NewPCG(3, 4)), 5*64)
	c := &attn.EmbeddingCall{IDs: device(t, rt, attn.I32, int32s(4, 5, 0), 3), Weight: device(t, rt, attn.BF16, table, 5, 64), Out: device(t, rt, attn.BF16, nil, 3, 64)}
	must(t, c.Infer(), rt.Write(c.Out.Ptr, bytes.Repeat([]byte{0xff}, 3*128)))
	told := func(err error) {
		t.Helper()
		if !errors.Is(err, ops.ErrArgument) || !strings.Contains(err.Error(), "ids") || !strings.Contains(err.Error(), "row 1: 5") {
			t.Errorf("%v, want ErrArgument of ids, row 1", err)
		}
	}
	c.CheckValues = true
	told(rt.Backend().Embedding(c))
	must(t, rt.Sync())
	if !bytes.Equal(read(t, rt, &c.Out), bytes.Repeat([]byte{0xff}, 3*128)) {
		t.Error("something was written")
	}
	c.CheckValues = false
	must(t, rt.Backend().Embedding(c))
	told(rt.Sync())
	if !bytes.Equal(read(t, rt, &c.Out), slices.Concat(table[4*128:], make([]byte, 128), table[:128])) {
		t.Error("other rows are wrong, or the bad id's is not 0")
	}
}

// TestReplay: a recorded decode with new lengths and tables gives bit for bit what a direct call gives.
func TestReplay(t *testing.T) {
	rt := open(t, 0)
	c := decode(t, rt)
	must(t, rt.Backend().Decode(c), rt.Sync())
	rec, err := rt.Record(func() error { return rt.Backend().Decode(c) })
	must(t, err)
	for _, lens := range [][]int32{{1, 48, 0}, {48, 48, 48}, {16, 17, 32}} {
		must(t, rt.Write(c.SeqLens.Ptr, int32s(lens...)), rt.Backend().Decode(c))
		direct, lse := read(t, rt, &c.Out), read(t, rt, &c.LSE)
		must(t, rt.Write(c.Out.Ptr, bytes.Repeat([]byte{0xff}, len(direct))), rec.Run())
		if !bytes.Equal(read(t, rt, &c.Out), direct) || !bytes.Equal(read(t, rt, &c.LSE), lse) {
			t.Errorf("lengths %v: the replay gives something else", lens)
		}
	}
	must(t, rec.Close())
}

// TestEngine holds Gorgonia's ops on device tensors against the standard engine.
func TestEngine(t *testing.T) {
	const seed = 9
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, seed))
	rt := open(t, 0)
	matrix := func(rows, cols int) (h, d *tensor.Dense) {
		x := make([]float32, rows*cols)
		for i := range x {
			x[i] = float32(r.IntN(32)+1) / 4 // sums of products are exact
		}
		h = tensor.New(tensor.WithShape(rows, cols), tensor.WithBacking(x))
		d, err := rt.Upload(h)
		must(t, err)
		return h, d
	}
	same := func(what string, got, want tensor.Tensor) {
		t.Helper()
		h, err := rt.Download(got.(*tensor.Dense))
		must(t, err)
		if !h.Eq(want) {
			t.Errorf("%s differs", what)
		}
	}
	a, da := matrix(65, 130)
	b, db := matrix(65, 130)
	for name, f := range map[string]func(x, y any, o ...tensor.FuncOpt) (tensor.Tensor, error){"add": tensor.Add, "sub": tensor.Sub, "mul": tensor.Mul, "div": tensor.Div} {
		want, err := f(a, b)
		must(t, err)
		got, err := f(da, db)
		must(t, err)
		same(name, got, want)
		want, err = f(a, float32(2))
		must(t, err)
		got, err = f(da, float32(2))
		must(t, err)
		same(name+" scalar", got, want)
	}
	w, dw := matrix(130, 67)
	want, err := tensor.MatMul(a, w)
	must(t, err)
	got, err := tensor.MatMul(da, dw)
	must(t, err)
	same("matmul", got, want)
	must(t, w.T(), dw.T(), w.Transpose(), dw.Transpose())
	same("transpose", dw, w)
	must(t, rt.Sync())
}

// TestTwoRuntimes: two Runtimes at once, on two GPUs where there are two, give what one alone gives.
func TestTwoRuntimes(t *testing.T) {
	first := open(t, 0)
	ps, err := cudaops.Devices()
	must(t, err)
	rts := []*cudaops.Runtime{first, open(t, len(ps)-1)}
	want := make([][]byte, 2)
	for i, rt := range rts {
		c := decode(t, rt)
		must(t, rt.Backend().Decode(c))
		want[i] = read(t, rt, &c.Out)
	}
	var wg sync.WaitGroup
	for i, rt := range rts {
		c := decode(t, rt)
		wg.Add(1)
		go func() {
			defer wg.Done()
			for range 200 {
				out := make([]byte, c.Out.Bytes())
				if err := errors.Join(rt.Backend().Decode(c), rt.Read(out, c.Out.Ptr)); err != nil || !bytes.Equal(out, want[i]) {
					t.Errorf("runtime %d: %v, or another result", i, err)
					return
				}
			}
		}()
	}
	wg.Wait()
}

// TestOutOfMemory: more than there is gives a typed error, and the Runtime goes on.
func TestOutOfMemory(t *testing.T) {
	rt := open(t, 0)
	_, err := rt.Alloc(rt.Properties().Memory + 1<<30)
	if !errors.Is(err, ops.ErrOutOfMemory) {
		t.Errorf("%v, want ErrOutOfMemory", err)
	}
	c := decode(t, rt)
	must(t, rt.Backend().Decode(c), rt.Sync())
}
