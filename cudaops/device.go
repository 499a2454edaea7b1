package cudaops

import (
	"fmt"

	"github.com/gaze-ml/gaze/cudaops/internal/driver"
)

// Properties describes a GPU.
type Properties struct {
	Ordinal      int
	Name         string // "NVIDIA H200"
	UUID         string
	Capability   int // compute capability, major·10 + minor: 90 is Hopper
	SMs          int // streaming multiprocessors
	Memory       int // bytes
	SharedMemory int // bytes a block may have
	L2           int // bytes of second-level cache
	Driver       int // the newest CUDA that the driver knows, 1000·major + 10·minor
}

// String gives "cuda:0 NVIDIA H200, compute capability 9.0, 132 SMs, 139 GiB, CUDA 13.0".
func (p Properties) String() string {
	return fmt.Sprintf("cuda:%d %s, compute capability %d.%d, %d SMs, %d GiB, CUDA %d.%d", p.Ordinal, p.Name, p.Capability/10, p.Capability%10,
		p.SMs, p.Memory>>30, p.Driver/1000, p.Driver%1000/10)
}

// Devices describes every GPU. Without one, or without the driver or the build tag for it, the error is ErrNoDevice and says what to do.
func Devices() ([]Properties, error) {
	n, err := driver.Count()
	if err != nil {
		return nil, translate("devices", err)
	}
	ps := make([]Properties, n)
	for i := range ps {
		if ps[i], err = query(i); err != nil {
			return nil, err
		}
	}
	return ps, nil
}

func query(n int) (Properties, error) {
	p, err := driver.Query(n)
	return Properties(p), translate("devices", err)
}
