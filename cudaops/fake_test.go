//go:build gpu && linux && amd64 && cgo

package cudaops

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/gaze-ml/gaze/cudaops/internal/cublaslt"
	"github.com/gaze-ml/gaze/cudaops/internal/driver"
	"github.com/gaze-ml/gaze/cudaops/internal/fakecuda"
)

// What programs launch. The tests of this package on the recording driver launch kernels of every row of the table, whose images are
// nothing but symbols and parameter sizes.
var realTable, realImages = table, embedded

func TestMain(m *testing.M) {
	pretend()
	os.Exit(m.Run())
}

func pretend() {
	all, err := allRows()
	if err != nil {
		panic(err)
	}
	table = func() ([]*kernel, error) { return all, nil }
	embedded = func(symbol string, _ int) (string, func() ([]byte, error), error) {
		for _, k := range all {
			if k.Symbol == symbol {
				return k.Target, func() ([]byte, error) { return symbolsOnly(all, k.Target), nil }, nil
			}
		}
		return "", nil, fmt.Errorf("no row %s", symbol)
	}
}

// forReal gives a test the kernels of programs.
func forReal(t *testing.T) {
	table, embedded = realTable, realImages
	t.Cleanup(pretend)
}

func symbolsOnly(ks []*kernel, target string) []byte {
	var b strings.Builder
	for _, k := range ks {
		if k.Target == target {
			fmt.Fprintf(&b, ".entry %s(.param .align 8 .b8 p[%d])\n", k.Symbol, paramBytes(k.Op))
		}
	}
	return append([]byte(b.String()), 0)
}

// fake gives a Runtime on a recording driver. What it leaves behind when it is closed is an error.
func fake(t testing.TB, c fakecuda.Config) *Runtime {
	t.Helper()
	if err := fakecuda.Install(c); err != nil {
		t.Fatal(err)
	}
	cublaslt.Use(fakecuda.NoBLAS(), nil) // whatever this machine has
	bodies()
	rt, err := Open(0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := fakecuda.Work(); err != nil {
			t.Error(err)
		}
		if err := rt.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		if left := fakecuda.Leaks(); left != nil {
			t.Errorf("left: %v", left)
		}
	})
	return rt
}

// bodies gives the engine's kernels something to do, in the words of params.h.
func bodies() {
	for _, target := range []string{"sm90a", "sm80"} {
		fakecuda.Body("fill_b4_"+target, func(m *fakecuda.Memory, l *fakecuda.Launch) error {
			p := fakecuda.As[fillParams](l)
			out := fakecuda.On[uint32](m, uint64(p.Out), int(p.N))
			for i := range out {
				out[i] = p.Value
			}
			return nil
		})
		fakecuda.Body("binary_f32_"+target, func(m *fakecuda.Memory, l *fakecuda.Launch) error {
			p := fakecuda.As[binaryParams](l)
			each(p.Shape, func(i [4]int64) {
				a, b, out := float(m, p.A, i, p.AStride), float(m, p.B, i, p.BStride), float(m, p.Out, i, p.OutStride)
				switch p.Op {
				case binaryAdd:
					*out = *a + *b
				case binarySub:
					*out = *a - *b
				case binaryMul:
					*out = *a * *b
				case binaryDiv:
					*out = *a / *b
				}
			})
			return nil
		})
		fakecuda.Body("matmul_f32_"+target, func(m *fakecuda.Memory, l *fakecuda.Launch) error {
			p := fakecuda.As[matMulParams](l)
			for i := range p.M {
				for j := range p.N {
					var sum float32
					for k := range p.K {
						sum += *float(m, p.A, [4]int64{0, 0, i, k}, [4]int64{0, 0, p.ARow, p.ACol}) * *float(m, p.B, [4]int64{0, 0, k, j}, [4]int64{0, 0, p.BRow, p.BCol})
					}
					*float(m, p.C, [4]int64{0, 0, i, j}, [4]int64{0, 0, p.CRow, 1}) = sum
				}
			}
			return nil
		})
		for _, size := range []int{1, 2, 4, 8} {
			fakecuda.Body(fmt.Sprintf("copy_b%d_%s", size, target), func(m *fakecuda.Memory, l *fakecuda.Launch) error {
				p := fakecuda.As[copyParams](l)
				each(p.Shape, func(i [4]int64) {
					copy(m.Bytes(uint64(p.Out)+uint64(size)*uint64(dot(i, p.OutStride)), size), m.Bytes(uint64(p.X)+uint64(size)*uint64(dot(i, p.XStride)), size))
				})
				return nil
			})
		}
	}
}

func each(shape [4]int64, f func(i [4]int64)) {
	for a := range shape[0] {
		for b := range shape[1] {
			for c := range shape[2] {
				for d := range shape[3] {
					f([4]int64{a, b, c, d})
				}
			}
		}
	}
}

func dot(i, stride [4]int64) int64 {
	return i[0]*stride[0] + i[1]*stride[1] + i[2]*stride[2] + i[3]*stride[3]
}

func float(m *fakecuda.Memory, base driver.Addr, i, stride [4]int64) *float32 {
	return &fakecuda.On[float32](m, uint64(base)+4*uint64(dot(i, stride)), 1)[0]
}
