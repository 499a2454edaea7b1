//go:build gpu && linux && amd64 && cgo

package cudaops

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/gaze-ml/gaze/cudaops/internal/driver"
	"github.com/gaze-ml/gaze/cudaops/internal/fakecuda"
	"github.com/gaze-ml/gaze/internal/attn"
	"github.com/gaze-ml/gaze/ops"
)

func must(t testing.TB, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// want checks an error's kind and that it says what it must.
func want(t *testing.T, what string, err, kind error, words ...string) {
	t.Helper()
	if !errors.Is(err, kind) {
		t.Errorf("%s: %v, want %v", what, err, kind)
		return
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%s: %q does not say %q", what, err, w)
		}
	}
}

func noise(r *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

func TestOpen(t *testing.T) {
	rt := fake(t, fakecuda.Hopper)
	if rt.Name() != "cuda:0" || rt.Properties().SMs != 132 || rt.Backend().Name() != "cuda:0" {
		t.Errorf("%s, %v", rt.Name(), rt.Properties())
	}
	_, err := Open(2)
	want(t, "device 2 of 2", err, ops.ErrNoDevice, "device 2 of 2")
	_, err = Open(-1)
	want(t, "device -1", err, ops.ErrNoDevice)
	fakecuda.Fail("cuMemHostAlloc", 2, 2)
	_, err = Open(1)
	want(t, "no pinned memory", err, ops.ErrOutOfMemory)
}

func TestOpenOldGPU(t *testing.T) {
	old := fakecuda.Hopper
	old.Capability = 75
	must(t, fakecuda.Install(old))
	_, err := Open(0)
	want(t, "compute capability 7.5", err, ops.ErrUnsupported, "7.5", "8.0 or higher")
}

// TestRoundTrip: bytes of every size come back, through a ring of pinned memory that goes round several times while the device, which
// is as late as it can be, has copied nothing yet.
func TestRoundTrip(t *testing.T) {
	const seed = 3
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, seed))
	rt := fake(t, fakecuda.Hopper)
	type piece struct {
		at   driver.Pointer
		text []byte
	}
	var pieces []piece
	for _, n := range []int{0, 1, 63, 64, 65, bounceBytes, bounceBytes + 1, segmentBytes - 1, segmentBytes, segmentBytes + 1, 3*segmentBytes + 17, 2 * segmentBytes, 1000,
		segmentCount*segmentBytes + 5, 77} {
		p := piece{text: noise(r, n)}
		var err error
		p.at, err = rt.Alloc(n)
		must(t, err)
		sent := bytes.Clone(p.text)
		must(t, rt.Write(p.at, sent))
		clear(sent) // Write has read it
		pieces = append(pieces, p)
	}
	for _, p := range pieces {
		got := make([]byte, len(p.text))
		must(t, rt.Read(got, p.at))
		if !bytes.Equal(got, p.text) {
			t.Errorf("%d bytes came back changed", len(p.text))
		}
	}
}

func TestAllocIsZeroed(t *testing.T) {
	rt := fake(t, fakecuda.Hopper)
	p, err := rt.Alloc(1000)
	must(t, err)
	got := bytes.Repeat([]byte{1}, 1000)
	must(t, rt.Read(got, p))
	if !bytes.Equal(got, make([]byte, 1000)) {
		t.Error("new memory is not zero")
	}
	if a := driver.Of(p); a%256 != 0 {
		t.Errorf("address %#x is not a multiple of 256", a)
	}
}

func TestOutOfMemory(t *testing.T) {
	rt := fake(t, fakecuda.Hopper)
	used := fakecuda.Used(0)
	_, err := rt.Alloc(2 << 30)
	want(t, "2 GiB of 1", err, ops.ErrOutOfMemory, "2147483648 bytes", "are free")
	var e *CallError
	if !errors.As(err, &e) || len(e.Suspect) > 0 {
		t.Errorf("%#v", err)
	}
	if n := fakecuda.Used(0); n != used {
		t.Errorf("%d bytes more in use after the failure", n-used)
	}
	p, err := rt.Alloc(1 << 20)
	must(t, err)
	must(t, rt.Write(p, make([]byte, 1<<20)), rt.Sync(), rt.Free(p))
	_, err = rt.Alloc(-1)
	want(t, "-1 bytes", err, ops.ErrArgument)
}

// TestOwnership: memory is known by its address, to the byte.
func TestOwnership(t *testing.T) {
	rt := fake(t, fakecuda.Hopper)
	other, err := Open(1)
	must(t, err)
	defer other.Close()
	mine, err := rt.Alloc(100)
	must(t, err)
	theirs, err := other.Alloc(100)
	must(t, err)
	host := make([]byte, 100)
	spare, err := rt.Alloc(200)
	must(t, err)
	for _, c := range []struct {
		what string
		p    driver.Pointer
		n    int
		own  bool
	}{
		{"all of it", mine, 100, true}, {"its end", (driver.Of(mine) + 99).Pointer(), 1, true}, {"past its end", (driver.Of(mine) + 99).Pointer(), 2, false},
		{"too much", mine, 101, false}, {"another device's", theirs, 1, false}, {"the host's", driver.Memory(host), 1, false}, {"nil", nil, 1, false},
	} {
		if rt.Owns(c.p, c.n) != c.own {
			t.Errorf("%s: owned %v", c.what, !c.own)
		}
		b := make([]byte, c.n)
		for call, err := range map[string]error{"Write": rt.Write(c.p, b), "Read": rt.Read(b, c.p), "Copy to": rt.Copy(c.p, spare, c.n),
			"Copy from": rt.Copy(spare, c.p, c.n)} {
			if c.own {
				must(t, err)
			} else {
				want(t, call+" "+c.what, err, ops.ErrDevice, "cuda:0")
			}
		}
	}
	if ops.Owner(mine, 100) != rt || ops.Owner(theirs, 1) != other || ops.Owner(driver.Memory(host), 1) != nil || ops.Owner(nil, 1) != nil {
		t.Error("memory has another owner")
	}
	must(t, rt.Free(mine))
	if ops.Owner(mine, 1) != nil {
		t.Error("freed memory has an owner")
	}
	want(t, "freed memory", rt.Write(mine, host), ops.ErrDevice)
	want(t, "freed twice", rt.Free(mine), ops.ErrDevice)
	want(t, "another's freed", rt.Free(theirs), ops.ErrDevice)
}

// TestClose: a second Close does nothing, and every method of a closed Runtime says that it is closed.
func TestClose(t *testing.T) {
	rt := fake(t, fakecuda.Hopper)
	p, err := rt.Alloc(4)
	must(t, err)
	pinned, err := rt.Pinned(4)
	must(t, err)
	rec, err := rt.Record(func() error { return rt.WriteAsync(p, pinned) })
	must(t, err)
	must(t, rt.Close(), rt.Close())
	if left := fakecuda.Leaks(); left != nil {
		t.Errorf("left: %v", left)
	}
	b := make([]byte, 4)
	_, alloc := rt.Alloc(4)
	_, pin := rt.Pinned(4)
	_, tensor := rt.NewTensor(ops.BFloat16, 2)
	_, record := rt.Record(func() error { return nil })
	_, engine := rt.Engine().Alloc(4)
	call := attn.SiLUMulCall{Gate: attn.Of(attn.F32, 1, 4), Up: attn.Of(attn.F32, 1, 4), Out: attn.Of(attn.F32, 1, 4)}
	for what, err := range map[string]error{
		"Alloc": alloc, "Free": rt.Free(p), "Write": rt.Write(p, b), "Read": rt.Read(b, p), "Copy": rt.Copy(p, p, 4), "Sync": rt.Sync(), "Pinned": pin,
		"FreePinned": rt.FreePinned(pinned), "WriteAsync": rt.WriteAsync(p, b), "ReadAsync": rt.ReadAsync(b, p), "NewTensor": tensor, "Record": record,
		"Run": rec.Run(), "Engine.Alloc": engine, "Backend": rt.Backend().SiLUMul(&call),
	} {
		want(t, what, err, ErrClosed, "cuda:0")
	}
	must(t, rec.Close())
	if rt.Owns(p, 1) || ops.Owner(p, 1) != nil {
		t.Error("a closed Runtime owns memory")
	}
}

// TestTwoRuntimes: two devices at once, and two Runtimes on one, from goroutines that change threads.
func TestTwoRuntimes(t *testing.T) {
	first := fake(t, fakecuda.Hopper)
	rts := []*Runtime{first}
	for _, n := range []int{1, 0} {
		rt, err := Open(n)
		must(t, err)
		defer rt.Close()
		rts = append(rts, rt)
	}
	var wg sync.WaitGroup
	for i, rt := range rts {
		wg.Add(1)
		go func() {
			defer wg.Done()
			r := rand.New(rand.NewPCG(uint64(i), 0))
			e := rt.Engine()
			for range 60 {
				p, err := rt.Alloc(4096)
				if err != nil {
					t.Error(err)
					return
				}
				text, got := noise(r, 4096), make([]byte, 4096)
				x, err2 := rt.NewTensor(ops.Dtype(attn.F32), 4)
				if err := errors.Join(err2, rt.Write(p, text), rt.Read(got, p)); err != nil || !bytes.Equal(got, text) {
					t.Errorf("runtime %d: %v", i, err)
					return
				}
				e.Reset()
				if _, err := e.AddScalar(x, float32(1), true); err != nil {
					t.Errorf("runtime %d: %v", i, err)
					return
				}
				if err := errors.Join(rt.Sync(), rt.FreeTensor(x), rt.Free(p)); err != nil {
					t.Errorf("runtime %d: %v", i, err)
					return
				}
			}
		}()
	}
	wg.Wait()
}

// TestOwnerDoesNotWait: whose memory a pointer names can be asked while a Runtime waits for its device.
func TestOwnerDoesNotWait(t *testing.T) {
	rt := fake(t, fakecuda.Hopper)
	p, err := rt.Alloc(8)
	must(t, err)
	rt.mu.Lock() // as a wait holds it
	if ops.Owner(p, 8) != rt || !rt.Owns(p, 8) {
		t.Error("not the owner")
	}
	rt.mu.Unlock()
}

// TestFaults: what a kernel finds wrong comes back at the next wait, once, as the ErrArgument of the CPU backend.
func TestFaults(t *testing.T) {
	rt := fake(t, fakecuda.Hopper)
	p, err := rt.Alloc(8)
	must(t, err)
	raise := func(f fault) {
		var b bytes.Buffer
		must(t, binary.Write(&b, binary.LittleEndian, f))
		must(t, rt.stage.write(rt.faults, b.Bytes()))
	}
	for _, c := range []struct {
		f     fault
		words []string
	}{
		{fault{faultSeqLenMax, opDecode, 3, 700, 512}, []string{"decode: seq_lens", "request 3: 700", "max_seq_len = 512"}},
		{fault{faultPage, opPrefill, 1, -4, 64}, []string{"prefill: block_tables", "request 1: page -4", "pages 0 to 63"}},
		{fault{faultID, opEmbedding, 0, 50000, 49152}, []string{"embedding: ids", "row 0: 50000", "0 to 49151"}},
		{fault{faultPosition, opAppendRanges, 2, 99, 64}, []string{"append_kv: start_positions", "positions of 0 to 63"}},
		{fault{999, opDecode, 1, 2, 3}, []string{"decode", "fault 999"}},
	} {
		for what, wait := range map[string]func() error{"Sync": rt.Sync, "Read": func() error { return rt.Read(make([]byte, 8), p) }} {
			raise(c.f)
			want(t, what, wait(), ops.ErrArgument, c.words...)
			must(t, wait())
		}
	}
	raise(fault{faultRequest, opAppend, 5, 9, 4})
	want(t, "Sync", rt.Sync(), ops.ErrArgument, "append_kv: requests", "row 5: 9")
}

// TestFaultAtClose: Close is a call that waits too.
func TestFaultAtClose(t *testing.T) {
	fake(t, fakecuda.Hopper)
	rt, err := Open(1)
	must(t, err)
	var b bytes.Buffer
	must(t, binary.Write(&b, binary.LittleEndian, fault{faultPage, opDecode, 1, 8, 8}), rt.stage.write(rt.faults, b.Bytes()))
	want(t, "Close", rt.Close(), ops.ErrArgument, "block_tables")
	must(t, rt.Close())
}

// TestBroken: the failure of a kernel shows at the next call that notices, names the launches that may be at fault, and stays until
// the Runtime is closed; then the device can be opened anew.
func TestBroken(t *testing.T) {
	fake(t, fakecuda.Hopper)
	rt, err := Open(1)
	must(t, err)
	x, err := rt.NewTensor(ops.Dtype(attn.F32), 4)
	must(t, err)
	sum := func() error { _, err := rt.Engine().Add(x, x); return err }
	must(t, sum(), rt.Sync())
	fakecuda.Fail("kernel", 1, 700)
	must(t, sum(), sum())
	err = rt.Sync()
	want(t, "Sync", err, ErrBroken, "CUDA_ERROR_ILLEGAL_ADDRESS", "an earlier launch may be at fault: binary_f32_sm90a, binary_f32_sm90a")
	if n := strings.Count(err.Error(), "binary_f32"); n != 2 {
		t.Errorf("%d suspects, want the 2 since the last wait: %v", n, err)
	}
	want(t, "Add", sum(), ErrBroken)
	_, err = rt.Alloc(1)
	want(t, "Alloc", err, ErrBroken)
	must(t, rt.Close())
	if rt, err = Open(1); err != nil {
		t.Fatal(err)
	}
	must(t, rt.Sync(), rt.Close())
}

// TestLaunchError: a refused launch names its kernel, grid and shapes; the next one works.
func TestLaunchError(t *testing.T) {
	rt := fake(t, fakecuda.Hopper)
	call := attn.SiLUMulCall{Gate: device(t, rt, attn.F16, 6, 128), Up: device(t, rt, attn.F16, 6, 128), Out: device(t, rt, attn.F16, 6, 128)}
	must(t, rt.Backend().SiLUMul(&call))
	fakecuda.Fail("cuLaunchKernelEx", 0, 701)
	want(t, "SiLUMul", rt.Backend().SiLUMul(&call), ErrFailed, "silu_mul: ", "OUT_OF_RESOURCES", "silu_mul_f16_sm90a, grid [1 1 1], block [256 1 1]",
		"Gate float16[6 128], Up float16[6 128], Out float16[6 128]")
	must(t, rt.Backend().SiLUMul(&call), rt.Sync())
}

// device gives a packed operand in device memory.
func device(t testing.TB, rt *Runtime, dt attn.DType, shape ...int) attn.Tensor {
	t.Helper()
	x := attn.Of(dt, shape...)
	p, err := rt.Alloc(x.Bytes())
	must(t, err)
	x.Ptr = p
	return x
}
