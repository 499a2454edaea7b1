package cudaops

import (
	"fmt"

	"github.com/gaze-ml/gaze/cudaops/internal/driver"
	"github.com/gaze-ml/gaze/internal/attn"
	"github.com/gaze-ml/gaze/ops"
)

// Recording is work of a Runtime as a CUDA graph: launches and copies with their shapes, addresses and host scalars as they were, to be
// run again and again with what device memory then holds.
type Recording struct {
	rt    *Runtime
	graph *driver.Graph // nil after Close
	mark  *kernel       // names the recording where launches are named
	named addresses     // the allocations that its work names
	freed driver.Addr   // one of them that was given back since
}

// addresses is a set of allocations, of device memory and of pinned memory, whose addresses differ too.
type addresses map[driver.Addr]bool

// in tells whether n bytes from a on lie in one allocation of s, which the set remembers unless it is nil.
func (named addresses) in(s blocks, a driver.Addr, n int) bool {
	b, ok := s.at(a)
	if !ok || !b.holds(a, n) {
		return false
	}
	if named != nil {
		named[b.at] = true
	}
	return true
}

// Record notes the work that f launches instead of running it. Calls that wait, copy host memory, allocate, or read host tables are
// refused meanwhile, and what they would have done is the caller's to do before: a first run outside of a recording loads kernels and
// makes room. Work that other goroutines launch on this Runtime before f returns is noted too. Once memory that the work names has been
// given back, Run is refused.
func (rt *Runtime) Record(f func() error) (ops.Recording, error) {
	const op = "record"
	if err := rt.begin(op); err != nil {
		return nil, err
	}
	ended := false
	defer func() {
		if !ended { // f has panicked
			if r, err := rt.end(op); err == nil {
				_ = r.Close()
			}
		}
	}()
	err := f()
	ended = true
	r, endErr := rt.end(op)
	switch {
	case err != nil:
		if r != nil {
			endErr = r.Close()
		}
		return nil, join(err, endErr)
	case endErr != nil:
		return nil, endErr
	}
	return r, nil
}

func (rt *Runtime) begin(op string) error {
	err := rt.enter(op)
	defer rt.mu.Unlock()
	if err != nil {
		return err
	}
	if err := rt.waiting(op); err != nil {
		return err
	}
	if err := rt.ctx.Capture(); err != nil {
		return rt.fail(op, err)
	}
	rt.named = addresses{}
	return nil
}

func (rt *Runtime) end(op string) (*Recording, error) {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	named := rt.named
	rt.named = nil
	g, err := rt.ctx.EndCapture()
	if err != nil {
		return nil, rt.fail(op, err)
	}
	r := &Recording{rt: rt, graph: g, mark: &kernel{Symbol: "a recording"}, named: named}
	if s := rt.recent.symbols(); len(s) > 0 {
		r.mark.Symbol = fmt.Sprintf("a recording that ends with %s", s[len(s)-1])
	}
	if rt.recordings == nil {
		rt.recordings = map[*Recording]bool{}
	}
	rt.recordings[r] = true
	return r, nil
}

// Run launches the recorded work; ErrDevice once memory that it names was freed, ErrUnsupported while something is recorded, ErrClosed.
func (r *Recording) Run() error {
	const op = "replay"
	rt := r.rt
	err := rt.enter(op)
	defer rt.mu.Unlock()
	if err != nil {
		return err
	}
	if r.graph == nil {
		return attn.Errorf(ErrClosed, op, "", "an open Recording", "one after Close")
	}
	if err := rt.waiting(op); err != nil {
		return err
	}
	if r.freed != 0 {
		return rt.foreign(op, "memory of the recording", r.freed)
	}
	if err := rt.ctx.Replay(r.graph); err != nil {
		return rt.fail(op, err)
	}
	rt.recent.add(r.mark)
	return nil
}

// Close waits for what was launched and gives the graph back; ErrUnsupported while something is recorded. A second Close does nothing.
// Closing the Runtime closes its recordings.
func (r *Recording) Close() error {
	rt := r.rt
	rt.mu.Lock()
	defer rt.mu.Unlock()
	if r.graph == nil || rt.closed {
		return nil
	}
	if err := rt.waiting("close"); err != nil {
		return err
	}
	err := rt.ctx.Sync()
	return rt.fail("close", join(err, r.discard()))
}

// gone tells recordings that an allocation was given back, with the lock held.
func (rt *Runtime) gone(a driver.Addr) {
	for r := range rt.recordings {
		if r.named[a] {
			r.freed = a
		}
	}
}

// discard gives the graph back, with the lock held.
func (r *Recording) discard() error {
	g := r.graph
	r.graph = nil
	delete(r.rt.recordings, r)
	return r.rt.ctx.Discard(g)
}
