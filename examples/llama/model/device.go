package model

import (
	"errors"

	"gorgonia.org/tensor"

	"github.com/gaze-ml/gaze/graph"
	"github.com/gaze-ml/gaze/ops"
)

// deviceDType is the dtype of activations and matrices on a device. Vectors, which norms and biases are, stay float32.
var deviceDType = ops.Float16

// upload puts every tensor on a device, matrices dequantised.
func (w *weights) upload(d graph.Device) error {
	w.device = d
	for name, t := range w.tensors {
		var err error
		if t.Dims() > 1 {
			if t, err = ops.Convert(t, deviceDType); err != nil {
				return err
			}
		}
		if t, err = graph.Upload(d, t); err != nil {
			return err
		}
		w.tensors[name] = t
		w.owned = append(w.owned, t)
	}
	return nil
}

// release gives back what upload made.
func (w *weights) release() error {
	var errs []error
	for _, t := range w.owned {
		errs = append(errs, graph.Release(w.device, t))
	}
	w.owned = nil
	return errors.Join(errs...)
}

// elementBytes is the size of an element of a result.
func (c Config) elementBytes() int {
	dt := tensor.Float32
	if c.Device != nil {
		dt = deviceDType
	}
	return ops.DTypeOf(dt).Size()
}
