package cudaops

import (
	"errors"

	"github.com/gaze-ml/gaze/cudaops/internal/driver"
	"github.com/gaze-ml/gaze/cudaops/kernels"
)

// images is the code that a Runtime has loaded: a module is loaded when the first of its kernels is launched.
type images struct {
	manifest  *kernels.Manifest
	modules   map[string]*driver.Module
	functions map[*kernel]*driver.Function
}

// function gives a kernel's function, ready for launches with its shared memory.
func (im *images) function(ctx *driver.Context, k *kernel, capability int) (*driver.Function, error) {
	if f := im.functions[k]; f != nil {
		return f, nil
	}
	if im.manifest == nil {
		m, err := kernels.Load()
		if err != nil {
			return nil, err
		}
		im.manifest, im.modules, im.functions = m, map[string]*driver.Module{}, map[*kernel]*driver.Function{}
	}
	m, err := im.module(ctx, k, capability)
	if err != nil {
		return nil, err
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
	im.functions[k] = f
	return f, nil
}

// module loads the image that holds the kernel: the cubin where the GPU is of its generation, else the PTX.
func (im *images) module(ctx *driver.Context, k *kernel, capability int) (*driver.Module, error) {
	image := im.find(k.Symbol, capability)
	if image == nil {
		return nil, errors.New("no embedded image holds " + k.Symbol)
	}
	if m := im.modules[image.File]; m != nil {
		return m, nil
	}
	b, err := kernels.Bytes(image)
	if err != nil {
		return nil, err
	}
	m, err := ctx.Load(b)
	if err != nil {
		return nil, err
	}
	im.modules[image.File] = m
	return m, nil
}

func (im *images) find(symbol string, capability int) *kernels.Image {
	for i := range im.manifest.Images {
		image := &im.manifest.Images[i]
		if !image.Runs(capability) {
			continue
		}
		for _, e := range image.Entries {
			if e.Symbol == symbol {
				return image
			}
		}
	}
	return nil
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
