package cudaops

import (
	"errors"

	"github.com/gaze-ml/gaze/cudaops/internal/driver"
	"github.com/gaze-ml/gaze/cudaops/kernels"
)

// source finds the image that holds a kernel for a GPU: its name, which tells images apart, and its bytes.
type source func(symbol string, capability int) (name string, load func() ([]byte, error), err error)

// embedded is the source of every program; tests have another.
var embedded source = func(symbol string, capability int) (string, func() ([]byte, error), error) {
	m, err := kernels.Load()
	if err != nil {
		return "", nil, err
	}
	for i := range m.Images {
		image := &m.Images[i]
		if !image.Runs(capability) {
			continue
		}
		for _, e := range image.Entries {
			if e.Symbol == symbol {
				return image.File, func() ([]byte, error) { return kernels.Bytes(image) }, nil
			}
		}
	}
	return "", nil, errors.New("no embedded image holds " + symbol)
}

// images is the code that a Runtime has loaded: a module is loaded when the first of its kernels is launched.
type images struct {
	modules map[string]*driver.Module
}

// function gives the function of one of the Runtime's kernels, ready for launches with its shared memory.
func (im *images) function(ctx *driver.Context, k *kernel, capability int) (*driver.Function, error) {
	if k.function != nil {
		return k.function, nil
	}
	name, load, err := embedded(k.Symbol, capability)
	if err != nil {
		return nil, err
	}
	m := im.modules[name]
	if m == nil {
		b, err := load()
		if err != nil {
			return nil, err
		}
		if m, err = ctx.Load(b); err != nil {
			return nil, err
		}
		if im.modules == nil {
			im.modules = map[string]*driver.Module{}
		}
		im.modules[name] = m
	}
	f, err := ctx.Function(m, k.Symbol)
	if err != nil {
		return nil, err
	}
	if k.Shared > 0 {
		if err := ctx.AllowShared(f, k.Shared); err != nil {
			return nil, err
		}
	}
	k.function = f
	return f, nil
}

// close gives the modules back.
func (im *images) close(ctx *driver.Context) error {
	var errs []error
	for _, m := range im.modules {
		errs = append(errs, ctx.Unload(m))
	}
	*im = images{}
	return errors.Join(errs...)
}
