package cudaops

import (
	"fmt"

	"github.com/gaze-ml/gaze/cudaops/internal/driver"
	"github.com/gaze-ml/gaze/internal/attn"
)

// frame holds the parameters of the launch being made. It lives as long as its Runtime and holds no Go pointer, so that a launch
// allocates nothing and C may read it.
type frame struct {
	launch    driver.Launch
	tiled     [2]driver.Tiled // K and V
	decode    decodeParams
	prefill   prefillParams
	append    appendParams
	rope      ropeParams
	norm      rmsNormParams
	silu      siluMulParams
	embedding embeddingParams
	cast      castParams
	argmax    argmaxParams
	softmax   softmaxParams
	topK      topKParams
	merge     mergeLSEParams
	linear    linearParams
	matmul    matMulParams
	binary    binaryParams
	copy      copyParams
	fill      fillParams

	appendTurns, ropeTurns turns // what is in append.Turns and rope.Turns
}

// launch runs k on a grid with the parameters at p, a field of the frame, with the lock held. It is the only way to a kernel. With
// overlap it may start while the kernel before it ends (programmatic dependent launch; the kernels wait before they touch memory). The
// call c, which may be nil, gives an error its shapes.
func launch[P any](rt *Runtime, k *kernel, c attn.Call, x, y int, overlap bool, p *P) error {
	f, err := rt.images.function(rt.ctx, k, rt.props.Capability)
	if err != nil {
		return rt.launchError(k, c, err)
	}
	l := &rt.frame.launch
	*l = driver.Launch{Grid: [3]uint32{uint32(x), uint32(y), 1}, Block: [3]uint32{uint32(k.Threads), 1, 1}, Shared: uint32(k.Shared)}
	if overlap && k.Target == "sm90a" { // the portable build has no instruction to wait for the kernel before
		l.Overlap = 1
	}
	if err := driver.Run(rt.ctx, f, l, p); err != nil {
		return rt.launchError(k, c, err)
	}
	rt.recent.add(k)
	return nil
}

// launchError tells which launch the driver refused, or reported an earlier failure at.
func (rt *Runtime) launchError(k *kernel, c attn.Call, err error) error {
	l := &rt.frame.launch
	text := fmt.Sprintf("%s, grid %v, block %v, %d bytes of shared memory", k.Symbol, l.Grid, l.Block, l.Shared)
	if c != nil {
		text += ", " + shapes(c)
	}
	err = rt.fail(k.Op, err)
	if e, ok := err.(*CallError); ok {
		e.Launch = text
		return e
	}
	return &CallError{Kind: ErrFailed, Op: k.Op, Launch: text, Err: err}
}

// blocks is a grid for n items at so many a block: as many blocks as there is work for, up to a few for each multiprocessor. Kernels
// that take any grid walk over the rest.
func (rt *Runtime) blocks(n, each int) int {
	const perSM = 8
	return max(1, min((n+each-1)/each, perSM*rt.props.SMs))
}

// slabs calls f for every run of rows whose tiles of so many rows fit along y of one grid.
func slabs(rows, tile int, f func(first, n int) error) error {
	const most = 65535 // blocks of a grid along y
	for first := 0; first < rows; first += most * tile {
		if err := f(first, min(rows-first, most*tile)); err != nil {
			return err
		}
	}
	return nil
}
