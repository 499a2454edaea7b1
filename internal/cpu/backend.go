// Package cpu is the Go backend: every call of package attn on the processor's cores, in float32 with float64 where a sum could
// grow long. Kernels are in package simd, number formats in half and quant; here are the loops around them, their division among
// threads, and the checks of lengths, tables, offsets and ids.
//
// Results depend on a call alone: neither the number of threads nor their timing nor the other requests of a batch change a bit.
package cpu

import (
	"runtime"
	"sync"

	"github.com/gaze-ml/gaze/internal/attn"
)

// Backend runs calls on the CPU. Its methods may be called from several goroutines; each call runs on its caller and, unless
// another call holds them, on the backend's workers. Idle workers sleep.
type Backend struct {
	pool *pool

	mu     sync.Mutex
	frames []*frame // free ones
}

// frame is what one call in flight needs: the caller's scratch and the state of each kind of loop. Frames are kept and reused,
// so calls allocate nothing; a call that ends leaves no pointer to its operands behind.
type frame struct {
	scratch   scratch
	attention attention
	append    appendTask
	merge     mergeTask
	norm      normTask
	rope      ropeTask
	linear    linearTask
	silu      siluTask
	embedding embeddingTask
	cast      castTask
	argmax    argmaxTask
	softmax   softmaxTask
	topK      topKTask
}

var _ attn.Backend = (*Backend)(nil)

// New gives a backend with that many threads, the caller's included; 0 means GOMAXPROCS. Close ends them.
func New(threads int) *Backend {
	if threads < 1 {
		threads = runtime.GOMAXPROCS(0)
	}
	return &Backend{pool: newPool(threads)}
}

// Default is the backend that the process shares, with GOMAXPROCS threads. It is made at the first call and never closed.
var Default = sync.OnceValue(func() *Backend { return New(0) })

// Close ends the workers, after the calls in flight. Later calls run on their callers alone.
func (b *Backend) Close() error {
	b.pool.close()
	return nil
}

// Name is "cpu".
func (b *Backend) Name() string { return "cpu" }

// Threads is the number of threads a call may use, the caller's included.
func (b *Backend) Threads() int { return len(b.pool.workers) + 1 }

// Supports is nil for every call that passes its own checks.
func (b *Backend) Supports(c attn.Call) []error {
	switch c.(type) {
	case *attn.DecodeCall, *attn.PrefillCall, *attn.AppendCall, *attn.MergeLSECall, *attn.RMSNormCall, *attn.RoPECall,
		*attn.LinearCall, *attn.SiLUMulCall, *attn.EmbeddingCall, *attn.CastCall, *attn.ArgmaxCall, *attn.SoftmaxCall, *attn.TopKCall:
		return nil
	}
	return attn.Unimplemented{}.Supports(c)
}

// WorkspaceSize is 0: partial results live in the backend's own memory. A workspace that is given is left alone.
func (b *Backend) WorkspaceSize(attn.Call) (int, error) { return 0, nil }

func (b *Backend) take() *frame {
	b.mu.Lock()
	defer b.mu.Unlock()
	if n := len(b.frames); n > 0 {
		f := b.frames[n-1]
		b.frames = b.frames[:n-1]
		return f
	}
	return new(frame)
}

func (b *Backend) give(f *frame) {
	b.mu.Lock()
	b.frames = append(b.frames, f)
	b.mu.Unlock()
}

// worth is the number of multiply-adds below which a loop is not worth a hand-off: several times what one takes.
const worth = 32 << 10

// loop runs a task whose items cost that many multiply-adds together, roughly.
func (b *Backend) loop(op string, t task, items, cost int, s *scratch) error {
	if cost < 2*worth {
		return alone(op, t, items, s)
	}
	return b.pool.do(op, t, items, s)
}

// pieces is the number of items to cut n equal pieces of work into, each of which costs that many multiply-adds: one where the
// whole is small, else some for each thread, so that a late thread does not hold up the rest.
func (b *Backend) pieces(n, cost int) int {
	if len(b.pool.workers) == 0 {
		return min(n, 1)
	}
	return max(min(n, n*cost/worth, 4*b.Threads()), min(n, 1))
}

// share is item i's part of n pieces divided into items.
func share(n, items, i int) (from, to int) { return n * i / items, n * (i + 1) / items }
