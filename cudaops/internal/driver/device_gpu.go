//go:build gpu && linux && amd64 && cgo

package driver

// #include <cuda.h>
import "C"

import (
	"fmt"
	"reflect"

	"gorgonia.org/cu"

	"github.com/gaze-ml/gaze/cudaops/internal/lazycuda"
)

// check names a result of a C call.
func check(call string, r C.CUresult) error {
	if r == C.CUDA_SUCCESS {
		return nil
	}
	return failed(call, r)
}

func failed(call string, r C.CUresult) *Error {
	var name, text *C.char
	if C.cuGetErrorName(r, &name) != C.CUDA_SUCCESS || C.cuGetErrorString(r, &text) != C.CUDA_SUCCESS {
		return &Error{Call: call, Code: int(r), Text: fmt.Sprintf("CUresult %d", int(r))}
	}
	return &Error{Call: call, Code: int(r), Text: C.GoString(name) + ": " + C.GoString(text)}
}

// checkCU names an error of package cu, whose type is not exported: a CUresult as an int.
func checkCU(call string, err error) error {
	if err == nil {
		return nil
	}
	if v := reflect.ValueOf(err); v.CanInt() {
		return failed(call, C.CUresult(v.Int()))
	}
	return absent(call, "%v", err)
}

func load(call string) error {
	if err := lazycuda.Load(); err != nil {
		return absent(call, "no CUDA driver: %v (install NVIDIA's driver 580 or newer)", err)
	}
	return nil
}

// Count is the number of devices.
func Count() (int, error) {
	if err := load("cuDeviceGetCount"); err != nil {
		return 0, err
	}
	n, err := cu.NumDevices()
	return n, checkCU("cuDeviceGetCount", err)
}

func get(n int) (cu.Device, error) {
	count, err := Count()
	if err != nil {
		return 0, err
	}
	if n < 0 || n >= count {
		return 0, absent("cuDeviceGet", "device %d of %d", n, count)
	}
	d, err := cu.GetDevice(n)
	return d, checkCU("cuDeviceGet", err)
}

// Query describes device n.
func Query(n int) (Properties, error) {
	p := Properties{Ordinal: n}
	d, err := get(n) // loads the driver, which has no version before
	if err != nil {
		return p, err
	}
	p.Driver = cu.Version()
	if p.Name, err = d.Name(); err != nil {
		return p, checkCU("cuDeviceGetName", err)
	}
	id, err := d.UUID()
	if err != nil {
		return p, checkCU("cuDeviceGetUuid", err)
	}
	p.UUID = id.String()
	bytes, err := d.TotalMem()
	if err != nil {
		return p, checkCU("cuDeviceTotalMem", err)
	}
	p.Memory = int(bytes)
	var major, minor int
	for _, a := range []struct {
		of cu.DeviceAttribute
		to *int
	}{
		{cu.ComputeCapabilityMajor, &major}, {cu.ComputeCapabilityMinor, &minor}, {cu.MultiprocessorCount, &p.SMs},
		{C.CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, &p.SharedMemory}, {cu.L2CacheSize, &p.L2},
	} {
		if *a.to, err = d.Attribute(a.of); err != nil {
			return p, checkCU("cuDeviceGetAttribute", err)
		}
	}
	p.Capability = 10*major + minor
	return p, nil
}
