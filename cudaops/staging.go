package cudaops

import "github.com/gaze-ml/gaze/cudaops/internal/driver"

// staging is pinned host memory through which host bytes go to the device, so that a write returns as soon as the bytes are read. It
// is a ring of segments: writes fill one after the other, and a segment is used again only when the stream has passed the mark behind
// its last copy.
type staging struct {
	ctx      *driver.Context
	segments []segment
	current  int
	used     int // bytes of the current segment
}

type segment struct {
	memory []byte
	passed *driver.Event
	marked bool // passed lies behind the last copy out of this segment
}

// The ring's size: large enough to keep the bus busy with weights, small enough that nobody minds.
const (
	segmentBytes = 4 << 20
	segmentCount = 4
)

// open allocates the ring. What it has when it fails, close gives back.
func (s *staging) open(ctx *driver.Context) error {
	s.ctx = ctx
	for range segmentCount {
		m, err := ctx.AllocPinned(segmentBytes)
		if err != nil {
			return err
		}
		s.segments = append(s.segments, segment{memory: m})
		last := &s.segments[len(s.segments)-1]
		if last.passed, err = ctx.NewEvent(); err != nil {
			return err
		}
	}
	return nil
}

func (s *staging) close() (err error) {
	keep := func(e error) {
		if err == nil {
			err = e
		}
	}
	for i := range s.segments {
		if e := s.segments[i].passed; e != nil {
			keep(s.ctx.Destroy(e))
		}
		keep(s.ctx.FreePinned(s.segments[i].memory))
	}
	s.segments = nil
	return err
}

// write copies src to dst in stream order.
func (s *staging) write(dst driver.Addr, src []byte) error {
	for len(src) > 0 {
		if s.used == segmentBytes {
			if err := s.next(); err != nil {
				return err
			}
		}
		free := s.segments[s.current].memory[s.used:]
		n := copy(free, src)
		if err := s.ctx.ToDevice(dst, free[:n]); err != nil {
			return err
		}
		s.used = min(segmentBytes, (s.used+n+63)&^63)
		dst += driver.Addr(n)
		src = src[n:]
	}
	return nil
}

// next marks the end of the current segment and waits until the one after it is free.
func (s *staging) next() error {
	now := &s.segments[s.current]
	if err := s.ctx.Record(now.passed); err != nil {
		return err
	}
	now.marked = true
	s.current = (s.current + 1) % len(s.segments)
	s.used = 0
	if then := &s.segments[s.current]; then.marked {
		if err := s.ctx.Wait(then.passed); err != nil {
			return err
		}
		then.marked = false
	}
	return nil
}
