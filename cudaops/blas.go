package cudaops

import (
	"fmt"

	"github.com/gaze-ml/gaze/cudaops/internal/cublaslt"
	"github.com/gaze-ml/gaze/internal/attn"
)

// blas is cuBLASLt on one Runtime: opened at the first Linear, an algorithm for each kind of product kept once it is found.
type blas struct {
	off       bool  // not wanted
	absent    error // why there is none
	handle    *cublaslt.Handle
	workspace block
	plans     map[cublaslt.Product]*cublaslt.Plan // nil: no algorithm, the plain kernel has it
}

const blasWorkspace = 32 << 20 // what NVIDIA advises on Hopper

var blasTypes = map[attn.DType]cublaslt.Type{attn.F32: cublaslt.F32, attn.F16: cublaslt.F16, attn.BF16: cublaslt.BF16}

// blasMark names products among launches.
var blasMark = &kernel{key: key{Op: "linear"}, Symbol: "cublasLtMatmul"}

// open tells whether there is a library.
func (b *blas) open(rt *Runtime) (bool, error) {
	if b.handle != nil || b.off || b.absent != nil {
		return b.handle != nil, nil
	}
	if err := rt.waiting("linear"); err != nil {
		return false, err
	}
	h, err := cublaslt.Open(rt.ctx)
	if err != nil {
		b.absent = err
		return false, nil
	}
	a, err := rt.alloc(blasWorkspace, false)
	if err != nil {
		return false, join(err, h.Close())
	}
	b.handle, b.workspace, b.plans = h, block{at: a, bytes: blasWorkspace}, map[cublaslt.Product]*cublaslt.Plan{}
	return true, nil
}

// plan is the algorithm for a product, or nil.
func (b *blas) plan(p *cublaslt.Product) *cublaslt.Plan {
	plan, known := b.plans[*p]
	if !known {
		plan, _ = b.handle.Plan(*p, blasWorkspace) // without one the plain kernel runs
		b.plans[*p] = plan
	}
	return plan
}

func (b *blas) close() error {
	for _, p := range b.plans {
		if p != nil {
			p.Close()
		}
	}
	b.plans = nil
	if b.handle == nil {
		return nil
	}
	return b.handle.Close()
}

// product runs a Linear whose operands are p's by cuBLASLt. It tells whether it did: not without the library, nor where that has no
// algorithm, nor with a bias of another dtype or out of line.
func (rt *Runtime) product(c *attn.LinearCall, p *linearParams) (bool, error) {
	if p.BiasF32 == 1 || p.Bias%16 != 0 || c.Weight.DType != c.X.DType || p.In == 0 {
		return false, nil
	}
	if ok, err := rt.blas.open(rt); !ok {
		return false, err
	}
	plan := rt.blas.plan(&cublaslt.Product{
		Type: blasTypes[c.X.DType], Bias: p.Bias != 0, Rows: int(p.Rows), In: int(p.In), Out: int(p.OutDim), XRow: int(p.XRow), WRow: int(p.WeightRow),
		Align: [3]uint32{cublaslt.Alignment(p.Weight), cublaslt.Alignment(p.X), cublaslt.Alignment(p.Out)},
	})
	if plan == nil {
		return false, nil
	}
	rt.operands = cublaslt.Operands{X: p.X, W: p.Weight, Bias: p.Bias, Out: p.Out, Workspace: rt.blas.workspace.at, WorkspaceBytes: blasWorkspace}
	if err := rt.blas.handle.Run(plan, &rt.operands); err != nil {
		return false, &CallError{Kind: ErrFailed, Op: c.Op(), Launch: fmt.Sprintf("cublasLtMatmul, %s", shapes(c)), Suspect: rt.recent.symbols(), Err: err}
	}
	rt.recent.add(blasMark)
	return true, nil
}
