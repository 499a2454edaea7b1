package cudaops

import (
	"fmt"

	"gorgonia.org/tensor"

	"github.com/gaze-ml/gaze/cudaops/internal/driver"
	"github.com/gaze-ml/gaze/internal/attn"
	"github.com/gaze-ml/gaze/ops"
)

// NewTensor makes a zeroed device tensor that stays until FreeTensor or Close.
func (rt *Runtime) NewTensor(dt tensor.Dtype, shape ...int) (*tensor.Dense, error) {
	const op = "new_tensor"
	t := attn.Of(ops.DTypeOf(dt), shape...)
	if ops.Dtype(t.DType) != dt {
		return nil, attn.Errorf(attn.ErrDType, op, "dtype", "a dtype of gaze", "%v", dt)
	}
	if len(shape) > attn.MaxRank {
		return nil, attn.Errorf(attn.ErrShape, op, "shape", fmt.Sprintf("rank %d or less", attn.MaxRank), "%v", shape)
	}
	for _, n := range shape {
		if n < 0 {
			return nil, attn.Errorf(attn.ErrShape, op, "shape", "sizes ≥ 0", "%v", shape)
		}
	}
	p, err := rt.Alloc(t.Bytes())
	if err != nil {
		return nil, err
	}
	return rt.engine.dense(dt, tensor.Shape(shape).Clone(), driver.Of(p), t.Bytes()), nil
}

// FreeTensor takes back the memory of a tensor of NewTensor or Upload, as [Runtime.Free] does. Tensors that share it end with it.
func (rt *Runtime) FreeTensor(t *tensor.Dense) error {
	if t == nil {
		return attn.Errorf(attn.ErrArgument, "free", "tensor", "a tensor", "nil")
	}
	return rt.Free(driver.Addr(t.Uintptr()).Pointer())
}

// Upload makes a device tensor of a contiguous host tensor. It returns when the host tensor has been read.
func (rt *Runtime) Upload(host *tensor.Dense) (*tensor.Dense, error) {
	const op = "upload"
	src, err := rt.contiguous(op, "host", host)
	if err != nil {
		return nil, err
	}
	d, err := rt.NewTensor(host.Dtype(), host.Shape()...)
	if err != nil {
		return nil, err
	}
	if err := rt.Write(driver.Addr(d.Uintptr()).Pointer(), driver.Host(src.Ptr, src.Bytes())); err != nil {
		return nil, join(err, rt.FreeTensor(d))
	}
	return d, nil
}

// CopyIn copies a contiguous host tensor over a contiguous device tensor of its dtype and shape. It returns when the host tensor has
// been read.
func (rt *Runtime) CopyIn(device, host *tensor.Dense) error {
	d, h, err := rt.sides("copy_in", device, host)
	if err != nil {
		return err
	}
	return rt.Write(d.Ptr, driver.Host(h.Ptr, h.Bytes()))
}

// CopyOut waits for what was launched before and copies a contiguous device tensor over a contiguous host tensor. It returns what
// [Runtime.Sync] does.
func (rt *Runtime) CopyOut(host, device *tensor.Dense) error {
	d, h, err := rt.sides("copy_out", device, host)
	if err != nil {
		return err
	}
	return rt.Read(driver.Host(h.Ptr, h.Bytes()), d.Ptr)
}

// Download is CopyOut to a new host tensor.
func (rt *Runtime) Download(device *tensor.Dense) (*tensor.Dense, error) {
	if device == nil {
		return nil, attn.Errorf(attn.ErrArgument, "download", "device", "a tensor", "nil")
	}
	host := tensor.New(tensor.Of(device.Dtype()), tensor.WithShape(device.Shape()...))
	return host, rt.CopyOut(host, device)
}

// sides describes both tensors of a copy.
func (rt *Runtime) sides(op string, device, host *tensor.Dense) (d, h attn.Tensor, err error) {
	if d, err = packed(op, "device", device); err != nil {
		return d, h, err
	}
	if h, err = rt.contiguous(op, "host", host); err != nil {
		return d, h, err
	}
	if d.DType != h.DType || d.Rank != h.Rank || d.Shape != h.Shape {
		err = attn.Errorf(attn.ErrShape, op, "host", d.String(), "%v", h.String())
	}
	return d, h, err
}

// packed describes a contiguous tensor.
func packed(op, arg string, t *tensor.Dense) (attn.Tensor, error) {
	v, err := ops.View(op, arg, t)
	if err == nil && !v.Packed() {
		err = attn.Errorf(attn.ErrShape, op, arg, "a contiguous tensor", "strides %v of %v", v.Stride[:v.Rank], v.String())
	}
	return v, err
}

// contiguous is packed for a host tensor. Its memory is asked, not its flags: machines label host tensors as the engine's.
func (rt *Runtime) contiguous(op, arg string, t *tensor.Dense) (attn.Tensor, error) {
	v, err := packed(op, arg, t)
	if err != nil || v.Len() == 0 {
		return v, err
	}
	host, err := rt.onHost(op, v.Ptr)
	if err == nil && !host {
		err = attn.Errorf(attn.ErrDevice, op, arg, "host memory", "device memory under %v", v.String())
	}
	return v, err
}
