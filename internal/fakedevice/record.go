package fakedevice

import (
	"errors"
	"reflect"

	"github.com/gaze-ml/gaze/internal/attn"
	"github.com/gaze-ml/gaze/ops"
)

var _ ops.Recorder = (*Device)(nil)

// recording is launches and copies with their arguments as they were.
type recording struct {
	dev  *Device
	work []func() error // nil after Close
}

// Record notes what f launches. Everything else that f does to the device is ErrUnsupported.
func (d *Device) Record(f func() error) (ops.Recording, error) {
	r := &recording{dev: d, work: []func() error{}}
	if err := d.noting(r); err != nil {
		return nil, err
	}
	defer func() {
		d.mu.Lock()
		d.record = nil
		d.mu.Unlock()
	}()
	if err := f(); err != nil {
		return nil, err
	}
	return r, nil
}

func (d *Device) noting(r *recording) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.enter("record"); err != nil {
		return err
	}
	d.record = r
	return nil
}

// note adds work, which is done with the lock held and the arena open.
func (r *recording) note(work func() error) { r.work = append(r.work, work) }

// frozen is a call as it is now.
func frozen(c attn.Call) attn.Call {
	f := reflect.New(reflect.TypeOf(c).Elem())
	f.Elem().Set(reflect.ValueOf(c).Elem())
	return f.Interface().(attn.Call)
}

// Run does the work.
func (r *recording) Run() error {
	d := r.dev
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.enter("replay"); err != nil {
		return err
	}
	if r.work == nil {
		return attn.Errorf(ops.ErrArgument, "replay", "recording", "an open recording", "a closed one")
	}
	d.counts.Replays++
	defer d.open()()
	var errs []error
	for _, w := range r.work {
		if err := w(); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// Close forgets the work.
func (r *recording) Close() error {
	r.dev.mu.Lock()
	defer r.dev.mu.Unlock()
	r.work = nil
	return nil
}
