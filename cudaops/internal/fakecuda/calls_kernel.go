//go:build gpu && linux && amd64 && cgo

package fakecuda

// #include <cuda.h>
import "C"

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"unsafe"

	"github.com/gaze-ml/gaze/cudaops/kernels"
)

// module is what an image holds.
type module struct{ entries []kernels.Entry }

// function is a kernel with the dynamic shared memory that it may ask for.
type function struct {
	kernels.Entry
	shared int
}

//export fakeModuleLoadDataEx
func fakeModuleLoadDataEx(p *C.CUmodule, image unsafe.Pointer, n C.uint, options *C.CUjit_option, values *unsafe.Pointer) C.CUresult {
	return within("cuModuleLoadDataEx", func(d *device) int {
		es, err := kernels.Inspect(imageAt(image))
		if err != nil {
			return invalidImage
		}
		h := host.handle(d)
		host.modules[h] = &module{es}
		*(*uintptr)(unsafe.Pointer(p)) = h
		return success
	})
}

// imageAt finds an image's end as the driver does: by the ELF header, whose section headers come last, or at PTX's zero byte.
func imageAt(p unsafe.Pointer) []byte {
	const header = 64
	if magic := unsafe.Slice((*byte)(p), 4); !bytes.Equal(magic, []byte(elf.ELFMAG)) {
		n := 0
		for *(*byte)(unsafe.Add(p, n)) != 0 {
			n++
		}
		return contents(p, n)
	}
	h := unsafe.Slice((*byte)(p), header)
	programs := binary.LittleEndian.Uint64(h[32:]) + uint64(binary.LittleEndian.Uint16(h[54:]))*uint64(binary.LittleEndian.Uint16(h[56:]))
	sections := binary.LittleEndian.Uint64(h[40:]) + uint64(binary.LittleEndian.Uint16(h[58:]))*uint64(binary.LittleEndian.Uint16(h[60:]))
	return contents(p, int(max(programs, sections)))
}

//export fakeModuleUnload
func fakeModuleUnload(m C.CUmodule) C.CUresult {
	return within("cuModuleUnload", func(*device) int {
		if host.modules[uintptr(unsafe.Pointer(m))] == nil {
			return invalidHandle
		}
		delete(host.modules, uintptr(unsafe.Pointer(m)))
		return success
	})
}

//export fakeModuleGetFunction
func fakeModuleGetFunction(p *C.CUfunction, m C.CUmodule, name *C.char) C.CUresult {
	return within("cuModuleGetFunction", func(d *device) int {
		mod := host.modules[uintptr(unsafe.Pointer(m))]
		if mod == nil {
			return invalidHandle
		}
		for _, e := range mod.entries {
			if e.Symbol == C.GoString(name) {
				h := host.handle(d)
				host.funcs[h] = &function{Entry: e, shared: 48 << 10}
				*(*uintptr)(unsafe.Pointer(p)) = h
				return success
			}
		}
		return notFound
	})
}

//export fakeFuncGetParamInfo
func fakeFuncGetParamInfo(f C.CUfunction, i C.size_t, offset, size *C.size_t) C.CUresult {
	return within("cuFuncGetParamInfo", func(*device) int {
		fn := host.funcs[uintptr(unsafe.Pointer(f))]
		if fn == nil || i > 0 {
			return invalidValue
		}
		*offset, *size = 0, C.size_t(fn.Params)
		return success
	})
}

//export fakeFuncGetAttribute
func fakeFuncGetAttribute(p *C.int, a C.CUfunction_attribute, f C.CUfunction) C.CUresult {
	return within("cuFuncGetAttribute", func(*device) int {
		if host.funcs[uintptr(unsafe.Pointer(f))] == nil {
			return invalidHandle
		}
		*p = 0
		return success
	})
}

//export fakeFuncSetAttribute
func fakeFuncSetAttribute(f C.CUfunction, a C.CUfunction_attribute, v C.int) C.CUresult {
	return within("cuFuncSetAttribute", func(*device) int {
		fn := host.funcs[uintptr(unsafe.Pointer(f))]
		if fn == nil {
			return invalidHandle
		}
		if a != C.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES || int(v) > host.Shared {
			return invalidValue
		}
		fn.shared = int(v)
		return success
	})
}

//export fakeLaunchKernelEx
func fakeLaunchKernelEx(c *C.CUlaunchConfig, f C.CUfunction, params, extra *unsafe.Pointer) C.CUresult {
	return on("cuLaunchKernelEx", c.hStream, func(s *stream) int {
		fn := host.funcs[uintptr(unsafe.Pointer(f))]
		if fn == nil {
			return invalidHandle
		}
		l := Launch{Device: s.device.ordinal, Symbol: fn.Symbol, Shared: uint32(c.sharedMemBytes), Params: contents(*params, fn.Params),
			Grid:  [3]uint32{uint32(c.gridDimX), uint32(c.gridDimY), uint32(c.gridDimZ)},
			Block: [3]uint32{uint32(c.blockDimX), uint32(c.blockDimY), uint32(c.blockDimZ)}}
		for _, a := range unsafe.Slice(c.attrs, int(c.numAttrs)) {
			v := (*[4]uint32)(unsafe.Pointer(&a.value))
			switch a.id {
			case C.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
				l.Cluster = v[0]
			case C.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION:
				l.Overlap = v[0] != 0
			default:
				return invalidValue
			}
		}
		threads := uint64(l.Block[0]) * uint64(l.Block[1]) * uint64(l.Block[2])
		blocks := uint64(l.Grid[0]) * uint64(l.Grid[1]) * uint64(l.Grid[2])
		switch {
		case threads == 0 || threads > 1024 || blocks == 0 || l.Grid[0] > 1<<31-1 || l.Grid[1] > 65535 || l.Grid[2] > 65535:
			return invalidValue
		case int(l.Shared) > fn.shared:
			return invalidValue
		case l.Cluster > 0 && l.Grid[0]%l.Cluster != 0:
			return invalidValue
		}
		s.put(op{run: s.device.run(&l), launch: &l})
		return success
	})
}

// Tiled is what a tensor map of the fake says.
type Tiled struct {
	Address uint64
	Dims    [4]uint64
	Strides [3]uint64
	Box     [2]uint32 // the outer two are 1
	BF16    bool
}

const mapMagic = 0x70616d // in a map's first word

// MapOf reads a map; false where it is none of the fake's.
func MapOf(m [16]uint64) (Tiled, bool) {
	t := Tiled{Address: m[1], Dims: [4]uint64(m[2:6]), Strides: [3]uint64(m[6:9]), Box: [2]uint32{uint32(m[9]), uint32(m[10])}, BF16: m[11] == 1}
	return t, m[0] == mapMagic
}

//export fakeTensorMapEncodeTiled
func fakeTensorMapEncodeTiled(m *C.CUtensorMap, kind C.CUtensorMapDataType, rank C.cuuint32_t, address unsafe.Pointer, dims, strides *C.cuuint64_t,
	box, each *C.cuuint32_t, interleave C.CUtensorMapInterleave, swizzle C.CUtensorMapSwizzle, l2 C.CUtensorMapL2promotion, fill C.CUtensorMapFloatOOBfill) C.CUresult {
	return within("cuTensorMapEncodeTiled", func(*device) int {
		d, s := unsafe.Slice((*uint64)(dims), 4), unsafe.Slice((*uint64)(strides), 3)
		b, e := unsafe.Slice((*uint32)(box), 4), unsafe.Slice((*uint32)(each), 4)
		bf16 := uint64(0)
		switch kind {
		case C.CU_TENSOR_MAP_DATA_TYPE_BFLOAT16:
			bf16 = 1
		case C.CU_TENSOR_MAP_DATA_TYPE_FLOAT16:
		default:
			return invalidValue
		}
		ok := rank == 4 && uintptr(address)%16 == 0 && uintptr(unsafe.Pointer(m))%64 == 0 && interleave == C.CU_TENSOR_MAP_INTERLEAVE_NONE &&
			swizzle == C.CU_TENSOR_MAP_SWIZZLE_128B && fill == C.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE && b[0] == 64 && b[2] == 1 && b[3] == 1
		for i := range 4 {
			ok = ok && d[i] > 0 && d[i] <= 1<<32 && b[i] > 0 && b[i] <= 256 && e[i] == 1
		}
		for i := range 3 {
			ok = ok && s[i]%16 == 0 && s[i] < 1<<40
		}
		if !ok {
			return invalidValue
		}
		*(*[16]uint64)(unsafe.Pointer(m)) = [16]uint64{mapMagic, uint64(uintptr(address)), d[0], d[1], d[2], d[3], s[0], s[1], s[2], uint64(b[0]), uint64(b[1]), bf16}
		return success
	})
}
