//go:build gpu && linux && amd64 && cgo

package cudaops

import (
	"fmt"
	"testing"

	"github.com/gaze-ml/gaze/cudaops/internal/cublaslt"
	"github.com/gaze-ml/gaze/cudaops/internal/cudatest"
	"github.com/gaze-ml/gaze/cudaops/internal/driver"
	"github.com/gaze-ml/gaze/cudaops/internal/fakecuda"
	"github.com/gaze-ml/gaze/internal/attn"
	"github.com/gaze-ml/gaze/ops"
	"github.com/gaze-ml/gaze/ops/opstest"
)

// withBLAS puts a recording cuBLASLt beside the recording driver: its products are the CPU's Linear, read column-major.
func withBLAS(t *testing.T) {
	t.Helper()
	must(t, cublaslt.Use(fakecuda.BLAS(func(m *fakecuda.Memory, p *fakecuda.Product) error {
		dt := map[int]attn.DType{0: attn.F32, 2: attn.F16, 14: attn.BF16}[p.Type]
		if p.LDD != p.M {
			return fmt.Errorf("output rows of %d, %d apart", p.M, p.LDD)
		}
		v := view{m}
		return run(&attn.LinearCall{
			X:      v.strided(driver.Addr(p.B), dt, []int{p.N, p.K}, int64(p.LDB), 1),
			Weight: v.strided(driver.Addr(p.A), dt, []int{p.M, p.K}, int64(p.LDA), 1),
			Bias:   v.packed(driver.Addr(p.Bias), dt, p.M), Out: v.packed(driver.Addr(p.D), dt, p.N, p.M),
		})
	}), nil))
}

// TestLinearByBLAS: the suite's Linear cases, through cuBLASLt where it takes them.
func TestLinearByBLAS(t *testing.T) {
	rt := fake(t, fakecuda.Hopper)
	must(t, refBodies())
	withBLAS(t)
	opstest.RunFilter(t, cudatest.Target(t, rt, opstest.Exact), opstest.Filter{Ops: []string{"linear"}})
	if n := len(fakecuda.Products()); n == 0 {
		t.Error("no product by cuBLASLt")
	}
}

// TestBLASPlans: a product's algorithm is looked for once, the library opened once, and both are given back at Close.
func TestBLASPlans(t *testing.T) {
	rt := fake(t, fakecuda.Hopper)
	must(t, refBodies())
	withBLAS(t)
	c := &attn.LinearCall{X: device(t, rt, attn.BF16, 4, 64), Weight: device(t, rt, attn.BF16, 32, 64), Out: device(t, rt, attn.BF16, 4, 32),
		Bias: device(t, rt, attn.BF16, 32)}
	for range 3 {
		must(t, rt.Backend().Linear(c))
	}
	must(t, rt.Sync())
	if n, looked := len(fakecuda.Products()), fakecuda.Calls("cublasLtMatmulAlgoGetHeuristic"); n != 3 || looked != 1 {
		t.Errorf("%d products, %d searches, want 3 and 1", n, looked)
	}
	odd := *c // an address that is no multiple of 16 is another product, and one of 2 no bias for the library
	odd.X.Ptr, odd.X.Shape[0], odd.Out.Shape[0] = (driver.Of(c.X.Ptr) + 2).Pointer(), 3, 3
	must(t, rt.Backend().Linear(&odd), rt.Sync())
	if n, looked := len(fakecuda.Products()), fakecuda.Calls("cublasLtMatmulAlgoGetHeuristic"); n != 1 || looked != 2 {
		t.Errorf("%d products, %d searches, want 1 and 2", n, looked)
	}
	odd = *c
	odd.Bias = attn.Of(attn.F32, 32)
	odd.Bias.Ptr = device(t, rt, attn.F32, 32).Ptr
	fakecuda.Launches()
	must(t, rt.Backend().Linear(&odd), rt.Sync())
	if n, l := len(fakecuda.Products()), fakecuda.Launches(); n != 0 || len(l) != 1 || l[0].Symbol != "gemv_bf16_sm90a" {
		t.Errorf("a float32 bias: %d products, launches %v", n, l)
	}
	fakecuda.Fail("cublasLtMatmul", 0, 13)
	want(t, "a failing product", rt.Backend().Linear(c), ErrFailed, "cublasLtMatmul", "execution failed", "X bfloat16[4 64]")
	must(t, rt.Backend().Linear(c), rt.Sync())
}

// TestNoAlgorithm: where the library has none, the plain kernel runs, and the library is not asked again.
func TestNoAlgorithm(t *testing.T) {
	rt := fake(t, fakecuda.Hopper)
	must(t, refBodies())
	withBLAS(t)
	c := &attn.LinearCall{X: device(t, rt, attn.F16, 40, 64), Weight: device(t, rt, attn.F16, 32, 64), Out: device(t, rt, attn.F16, 40, 32)}
	fakecuda.Fail("cublasLtMatmulAlgoGetHeuristic", 0, 15)
	for range 2 {
		must(t, rt.Backend().Linear(c), rt.Sync())
		if n, l := len(fakecuda.Products()), fakecuda.Launches(); n != 0 || len(l) != 1 || l[0].Symbol != "gemm_f16_sm90a" {
			t.Errorf("%d products, launches %v", n, l)
		}
	}
}

// TestWithoutBLAS: not wanted, or not installed, or first asked for in a recording.
func TestWithoutBLAS(t *testing.T) {
	fake(t, fakecuda.Hopper)
	must(t, refBodies())
	withBLAS(t)
	off, err := Open(0, WithoutCuBLAS())
	must(t, err)
	defer off.Close()
	linear := func(rt *Runtime) *attn.LinearCall {
		return &attn.LinearCall{X: device(t, rt, attn.F32, 2, 8), Weight: device(t, rt, attn.F32, 4, 8), Out: device(t, rt, attn.F32, 2, 4)}
	}
	must(t, off.Backend().Linear(linear(off)), off.Sync())
	on, err := Open(1)
	must(t, err)
	defer on.Close()
	c := linear(on)
	_, err = on.Record(func() error { return on.Backend().Linear(c) })
	want(t, "the first Linear in a recording", err, ops.ErrUnsupported, "recording")
	cublaslt.Use(fakecuda.NoBLAS(), nil)
	must(t, on.Backend().Linear(c), on.Sync())
	if n := len(fakecuda.Products()); n != 0 {
		t.Errorf("%d products without a library", n)
	}
}
