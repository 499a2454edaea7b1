//go:build gpu && linux && amd64 && cgo

package fakecuda

import (
	"fmt"
	"os"
)

// The results that the fake gives.
const (
	success         = 0
	invalidValue    = 1
	outOfMemory     = 2
	invalidDevice   = 101
	invalidImage    = 200
	invalidContext  = 201
	invalidHandle   = 400
	notFound        = 500
	notReady        = 600
	illegalAddress  = 700
	outOfResources  = 701
	captureRefused  = 900
	captureNotBegun = 905
)

// op is one piece of work in a stream.
type op struct {
	run    func() (code int)
	launch *Launch // of a kernel
}

// stream holds work until somebody waits for it.
type stream struct {
	device    *device
	pending   []op
	capturing bool
	spoilt    bool // a forbidden call came while capturing
	recorded  []op
}

// put adds work.
func (s *stream) put(o op) {
	if s.capturing {
		s.recorded = append(s.recorded, o)
		return
	}
	if o.launch != nil {
		host.launches = append(host.launches, *o.launch)
	}
	s.pending = append(s.pending, o)
}

// drain does the first n pieces of work.
func (s *stream) drain(n int) int {
	for _, o := range s.pending[:n] {
		if s.device.broken == success {
			s.device.broken = o.run()
		}
	}
	s.pending = append([]op(nil), s.pending[n:]...)
	return s.device.broken
}

// event is a mark: how much of the stream lies before it.
type event struct {
	stream *stream
	done   *bool
}

// wait drains the stream up to the mark.
func (e *event) wait() int {
	if e.stream == nil {
		return success
	}
	for !*e.done && len(e.stream.pending) > 0 && e.stream.device.broken == success {
		e.stream.drain(1)
	}
	return e.stream.device.broken
}

// run is a kernel's execution.
func (d *device) run(l *Launch) func() int {
	return func() (code int) {
		host.calls["kernel"]++
		if code := host.failing("kernel"); code != success {
			return code
		}
		body := host.bodies[l.Symbol]
		if body == nil {
			return success
		}
		defer func() {
			if r := recover(); r != nil {
				fmt.Fprintf(os.Stderr, "fakecuda: %s: %v\n", l.Symbol, r)
				code = illegalAddress
			}
		}()
		if err := body(d.Memory, l); err != nil {
			fmt.Fprintf(os.Stderr, "fakecuda: %s: %v\n", l.Symbol, err)
			return illegalAddress
		}
		return success
	}
}

// failing is the code that a test wants for this call, which has been counted.
func (m *machine) failing(function string) int {
	f, ok := m.failures[function]
	if !ok || m.calls[function] <= f.after {
		return success
	}
	delete(m.failures, function)
	return f.code
}

// inside tells whether n bytes at a lie in one allocation.
func (d *device) inside(a uint64, n int) bool {
	for start, size := range d.allocations {
		if a >= start && a+uint64(n) <= start+uint64(size) {
			return true
		}
	}
	return false
}
