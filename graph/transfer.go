package graph

import (
	"unsafe"

	"gorgonia.org/tensor"

	"github.com/gaze-ml/gaze/internal/attn"
	"github.com/gaze-ml/gaze/ops"
)

// Upload copies a host tensor, views included, to a new tensor on a device, which stays until [Release]: what several Machines
// shall read without a copy for each, such as weights. On the CPU it is a copy too.
func Upload(d Device, t *tensor.Dense) (*tensor.Dense, error) {
	if d == nil {
		return nil, attn.Errorf(ops.ErrNoDevice, "upload", "device", "a device", "nil")
	}
	src, err := hostView("upload", t)
	if err != nil {
		return nil, err
	}
	dst := attn.Of(src.DType, src.Shape[:src.Rank]...)
	if dst.Ptr, err = d.Alloc(dst.Bytes()); err != nil {
		return nil, err
	}
	var c carrier
	if err := c.upload(d, dst.Ptr, &src); err != nil {
		_ = d.Free(dst.Ptr)
		return nil, err
	}
	return headerOf(d, &dst), nil
}

// Release gives back the memory of a tensor that [Upload] made on a device. Tensors that share it end with it.
func Release(d Device, t *tensor.Dense) error {
	if d == nil {
		return attn.Errorf(ops.ErrNoDevice, "release", "device", "a device", "nil")
	}
	v, err := ops.View("release", "tensor", t)
	if err != nil {
		return err
	}
	return d.Free(v.Ptr)
}

// hostView describes a host tensor of one of gaze's dtypes.
func hostView(op string, t *tensor.Dense) (attn.Tensor, error) {
	v, err := ops.View(op, "tensor", t)
	if err != nil {
		return v, err
	}
	if ops.Dtype(v.DType).Type == nil {
		return v, attn.Errorf(ops.ErrDType, op, "tensor", "a dtype of gaze", "%v", t.Dtype())
	}
	on, err := ops.Locate(op, "tensor", t)
	if err == nil && on != nil {
		err = attn.Errorf(ops.ErrDevice, op, "tensor", "a host tensor", "memory of %s", on.Name())
	}
	return v, err
}

// carrier copies tensors between the host and a device. What isn't contiguous is packed on the way, in memory that it keeps.
type carrier struct{ scratch []byte }

func (c *carrier) room(n int) []byte {
	if n > len(c.scratch) {
		c.scratch = make([]byte, n)
	}
	return c.scratch[:n]
}

// upload packs the host's t into a device's memory.
func (c *carrier) upload(d Device, dst unsafe.Pointer, t *attn.Tensor) error {
	n := t.Bytes()
	if n == 0 {
		return nil
	}
	if t.Packed() {
		return d.Write(dst, bytesAt(t.Ptr, n))
	}
	packed := c.room(n)
	copyRows(unsafe.Pointer(unsafe.SliceData(packed)), t, 0, 0)
	return d.Write(dst, packed)
}

// download packs a device's t into the host's memory.
func (c *carrier) download(d Device, dst unsafe.Pointer, t *attn.Tensor) error {
	n := t.Bytes()
	if n == 0 {
		return nil
	}
	if t.Packed() {
		return d.Read(bytesAt(dst, n), t.Ptr)
	}
	all := c.room(ops.Span(t))
	if err := d.Read(all, t.Ptr); err != nil {
		return err
	}
	here := *t
	here.Ptr = unsafe.Pointer(unsafe.SliceData(all))
	copyRows(dst, &here, 0, 0)
	return nil
}

// copyRows packs the host's t, from dimension dim and element offset on, into dst and returns how many bytes it wrote.
func copyRows(dst unsafe.Pointer, t *attn.Tensor, dim, offset int) int {
	size := t.DType.Size()
	if dim == t.Rank {
		copy(bytesAt(dst, size), bytesAt(t.At(offset), size))
		return size
	}
	if dim == t.Rank-1 && t.Stride[dim] == 1 {
		size *= t.Shape[dim]
		copy(bytesAt(dst, size), bytesAt(t.At(offset), size))
		return size
	}
	n := 0
	for i := range t.Shape[dim] {
		n += copyRows(unsafe.Add(dst, n), t, dim+1, offset+i*t.Stride[dim])
	}
	return n
}
