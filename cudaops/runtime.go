package cudaops

import (
	"errors"
	"fmt"
	"sync"

	"gorgonia.org/tensor"

	"github.com/gaze-ml/gaze/cudaops/internal/cublaslt"
	"github.com/gaze-ml/gaze/cudaops/internal/driver"
	"github.com/gaze-ml/gaze/internal/attn"
	"github.com/gaze-ml/gaze/ops"
)

var (
	_ ops.Device   = (*Runtime)(nil)
	_ ops.Engined  = (*Runtime)(nil)
	_ ops.Recorder = (*Runtime)(nil)
)

// Runtime is one GPU as gaze uses it: its memory, one stream in which everything runs in the order of the calls, and the kernels. It
// is an ops.Device, registered while it is open: graphs may be put on it, and ops find it by the addresses of their tensors. Methods may be
// called from several goroutines, each from whatever thread it runs on.
type Runtime struct {
	mu     sync.Mutex // guards everything below; work that waits holds it, for the stream is the Runtime's one
	closed bool
	broken error // the first error after which the device is of no use
	late   error // what a method without an error ran into

	ctx        *driver.Context
	props      Properties
	memory     owned    // what Alloc gave, and the Runtime's own
	resident   resident // where operands were found in it
	pinned     blocks   // what Pinned gave
	stage      staging
	bounce     []byte // pinned, for small reads and the fault record
	faults     driver.Addr
	counts     driver.Addr // the kernels' counters: zero between launches
	workspace  block       // for partial results
	tables     block       // for lengths and tables that come from the host
	recent     recent
	images     images
	blas       blas
	operands   cublaslt.Operands // of the product being launched
	named      addresses         // by the work that Record notes; nil while it notes none
	recordings map[*Recording]bool

	frame   *frame
	choices choices
	backend Backend
	engine  Engine
}

// Sizes of the Runtime's own memory.
const (
	bounceBytes = 64 << 10
	faultBytes  = 64       // of the fault record, at the end of the bounce buffer
	countBytes  = 16 << 10 // a word for each block of a decode launch and some for the others
)

// Open starts using GPU n, counted as the driver counts (CUDA_VISIBLE_DEVICES holds). The error is ErrNoDevice, saying what to do,
// where there is no such GPU, no driver, or no CUDA in this build; ErrUnsupported for a GPU older than compute capability 8.0 or a
// driver older than CUDA 13.0; ErrOutOfMemory.
func Open(n int, opts ...Option) (*Runtime, error) {
	const op = "open"
	p, err := query(n)
	if err != nil {
		return nil, err
	}
	if p.Capability < 80 {
		return nil, attn.Errorf(attn.ErrUnsupported, op, "device", "compute capability 8.0 or higher", "%v", p)
	}
	if p.Driver < 13000 {
		return nil, attn.Errorf(attn.ErrUnsupported, op, "driver", "one for CUDA 13.0 (580 or newer)", "%v", p)
	}
	rt := &Runtime{props: p, frame: new(frame)}
	if rt.choices, err = choicesOf(p.Capability, p.SharedMemory); err != nil {
		return nil, err
	}
	rt.backend.rt, rt.engine.rt = rt, rt
	for _, o := range opts {
		o(rt)
	}
	if rt.ctx, err = driver.Open(n); err != nil {
		return nil, translate(op, err)
	}
	if err := rt.setUp(); err != nil {
		return nil, errors.Join(translate(op, err), rt.Close())
	}
	ops.Register(rt)
	return rt, nil
}

func (rt *Runtime) setUp() (err error) {
	if err = rt.stage.open(rt.ctx); err != nil {
		return err
	}
	if rt.bounce, err = rt.ctx.AllocPinned(bounceBytes + faultBytes); err != nil {
		return err
	}
	own, err := rt.ctx.Alloc(countBytes + faultBytes)
	if err != nil {
		return err
	}
	rt.memory.add(block{at: own, bytes: countBytes + faultBytes})
	rt.counts, rt.faults = own, own+countBytes
	if n := rt.workspaceBytes(); n > 0 {
		a, err := rt.ctx.Alloc(n)
		if err != nil {
			return err
		}
		rt.workspace = block{at: a, bytes: n}
		rt.memory.add(rt.workspace)
	}
	return rt.ctx.Fill(own, 0, countBytes+faultBytes)
}

// Name is "cuda:0" for GPU 0.
func (rt *Runtime) Name() string { return fmt.Sprintf("cuda:%d", rt.props.Ordinal) }

// Properties describes the GPU.
func (rt *Runtime) Properties() Properties { return rt.props }

// Backend runs calls whose operands lie in this Runtime's memory.
func (rt *Runtime) Backend() attn.Backend { return &rt.backend }

// Engine is the tensor.Engine of this Runtime's tensors.
func (rt *Runtime) Engine() *Engine { return &rt.engine }

// TensorEngine is Engine as ops.Engined wants it.
func (rt *Runtime) TensorEngine() tensor.Engine { return &rt.engine }

// enter starts a method: it takes the lock, which the caller gives back, and refuses a closed Runtime or a broken device.
func (rt *Runtime) enter(op string) error {
	rt.mu.Lock()
	if rt.closed {
		return attn.Errorf(ErrClosed, op, "", "an open Runtime", "%s after Close", rt.Name())
	}
	return rt.broken
}

// onHost tells whether p is no device's memory. It takes the lock itself.
func (rt *Runtime) onHost(op string, p driver.Pointer) (bool, error) {
	err := rt.enter(op)
	defer rt.mu.Unlock()
	if err != nil {
		return false, err
	}
	return rt.ctx.OnHost(p), nil
}

// waiting refuses what a capture can't hold.
func (rt *Runtime) waiting(op string) error {
	if rt.named != nil {
		return attn.Errorf(attn.ErrUnsupported, op, "", "no recording under way", "a call that waits, allocates, replays or copies host memory")
	}
	return nil
}

// fail gives a driver error of op its kind, and remembers when it is the last.
func (rt *Runtime) fail(op string, err error) error {
	err = translate(op, err)
	if e, ok := err.(*CallError); ok && e.Kind == ErrBroken {
		e.Suspect = rt.recent.symbols()
		if rt.broken == nil {
			rt.broken = e
		}
	}
	return err
}

// Sync waits for everything that was launched. It returns what the kernels found wrong in lengths, tables and ids since the last call
// that waited, as the ErrArgument that the CPU backend gives, or the failure of a kernel.
func (rt *Runtime) Sync() error {
	const op = "sync"
	err := rt.enter(op)
	defer rt.mu.Unlock()
	if err != nil {
		return err
	}
	if err := rt.waiting(op); err != nil {
		return err
	}
	return rt.sync(op)
}

// sync waits with the lock held.
func (rt *Runtime) sync(op string) error {
	record := rt.bounce[bounceBytes:]
	if err := rt.ctx.ToHost(record, rt.faults); err != nil {
		return rt.fail(op, err)
	}
	if err := rt.ctx.Sync(); err != nil {
		return rt.fail(op, err)
	}
	rt.recent.clear()
	late := rt.late
	rt.late = nil
	return join(rt.blame(record), late)
}

// later keeps the first error of a method that has none to return, for the next call that waits.
func (rt *Runtime) later(err error) {
	if rt.late == nil {
		rt.late = err
	}
}

// join is errors.Join, but one error alone stays itself.
func join(a, b error) error {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	}
	return errors.Join(a, b)
}

// Close waits for what was launched, reports what Sync would, and gives everything back. A second Close does nothing; any other method
// then returns ErrClosed. ErrUnsupported while something is recorded.
func (rt *Runtime) Close() error {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	if rt.closed {
		return nil
	}
	if err := rt.waiting("close"); err != nil {
		return err
	}
	rt.closed = true
	ops.Unregister(rt)
	var errs []error
	if rt.faults != 0 && rt.broken == nil {
		errs = append(errs, rt.sync("close"))
	}
	give := func(err error) {
		if err = translate("close", err); err != nil && rt.broken == nil { // a broken device gives its one error everywhere
			errs = append(errs, err)
		}
	}
	for rec := range rt.recordings {
		give(rec.discard())
	}
	give(rt.blas.close())
	give(rt.images.close(rt.ctx))
	give(rt.stage.close())
	if rt.bounce != nil {
		give(rt.ctx.FreePinned(rt.bounce))
	}
	for _, b := range rt.memory.all() {
		give(rt.ctx.Free(b.at))
	}
	for _, b := range rt.pinned {
		give(rt.ctx.FreePinned(driver.Host(b.at.Pointer(), b.bytes)))
	}
	rt.memory.clear()
	rt.pinned = nil
	give(rt.ctx.Close())
	return errors.Join(errs...)
}

// recent remembers the launches since the last wait, the last few of them.
type recent struct {
	ring [8]*kernel
	n    int
}

func (r *recent) add(k *kernel) {
	r.ring[r.n%len(r.ring)] = k
	r.n++
}

func (r *recent) clear() { r.n = 0 }

// symbols is oldest first.
func (r *recent) symbols() []string {
	var s []string
	for i := max(0, r.n-len(r.ring)); i < r.n; i++ {
		s = append(s, r.ring[i%len(r.ring)].Symbol)
	}
	return s
}
