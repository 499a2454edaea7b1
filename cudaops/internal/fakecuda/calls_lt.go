//go:build gpu && linux && amd64 && cgo

package fakecuda

// #include <cuda.h>
// #include "table.h"
import "C"

import "unsafe"

// Product is one cuBLASLt product as the library got it: d[m,n] = aᵀ·b + bias, column-major.
type Product struct {
	Type          int
	M, N, K       int
	LDA, LDB, LDD int
	A, B, Bias, D uint64
}

// BLAS gives the find function of a recording cuBLASLt, for package cublaslt's Use. What a product does is f's to say.
func BLAS(f func(m *Memory, p *Product) error) unsafe.Pointer {
	mu.Lock()
	defer mu.Unlock()
	host.product = f
	return C.fake_find_lt
}

// Products gives the products since the last call.
func Products() []Product {
	mu.Lock()
	defer mu.Unlock()
	p := host.products
	host.products = nil
	return p
}

const (
	ltInvalid      = 7
	ltNotSupported = 15
	ltMagic        = 0x6c74
)

// ltObject is a descriptor, a layout or a preference.
type ltObject struct {
	compute, scale int
	attributes     map[int]uint64
	kind           int
	rows, cols, ld int
}

func ltMake(p *uintptr, o *ltObject) C.int {
	return C.int(call("cublasLt", func() int {
		h := host.handle(nil)
		host.lt[h] = o
		*p = h
		return success
	}))
}

//export fakeLtCreate
func fakeLtCreate(p *uintptr) C.int { return ltMake(p, &ltObject{}) }

//export fakeLtDestroy
func fakeLtDestroy(h uintptr) C.int {
	return C.int(call("cublasLtDestroy", func() int {
		if host.lt[h] == nil {
			return ltInvalid
		}
		delete(host.lt, h)
		return success
	}))
}

//export fakeLtDescCreate
func fakeLtDescCreate(p *uintptr, compute, scale C.int) C.int {
	return ltMake(p, &ltObject{compute: int(compute), scale: int(scale), attributes: map[int]uint64{}})
}

//export fakeLtLayoutCreate
func fakeLtLayoutCreate(p *uintptr, kind C.int, rows, cols C.uint64_t, ld C.int64_t) C.int {
	return ltMake(p, &ltObject{kind: int(kind), rows: int(rows), cols: int(cols), ld: int(ld)})
}

//export fakeLtPreferenceCreate
func fakeLtPreferenceCreate(p *uintptr) C.int {
	return ltMake(p, &ltObject{attributes: map[int]uint64{}})
}

//export fakeLtSetAttribute
func fakeLtSetAttribute(h uintptr, attribute C.int, value unsafe.Pointer, size C.size_t) C.int {
	return C.int(call("cublasLtSetAttribute", func() int {
		o := host.lt[h]
		if o == nil || o.attributes == nil {
			return ltInvalid
		}
		switch size {
		case 4:
			o.attributes[int(attribute)] = uint64(*(*uint32)(value))
		case 8:
			o.attributes[int(attribute)] = *(*uint64)(value)
		default:
			return ltInvalid
		}
		return success
	}))
}

// ltResult is cublasLtMatmulHeuristicResult_t.
type ltResult struct {
	algo      [8]uint64
	workspace uint64
	state     int32
	waves     float32
	reserved  [4]int32
}

//export fakeLtHeuristic
func fakeLtHeuristic(h, desc, a, b, c, d, preference uintptr, wanted C.int, result unsafe.Pointer, found *C.int) C.int {
	return C.int(call("cublasLtMatmulAlgoGetHeuristic", func() int {
		la, lb, ld, p := host.lt[a], host.lt[b], host.lt[d], host.lt[preference]
		if host.lt[h] == nil || host.lt[desc] == nil || la == nil || lb == nil || ld == nil || p == nil || c != d {
			return ltInvalid
		}
		if la.rows != lb.rows || la.cols != ld.rows || lb.cols != ld.cols || la.ld < la.rows || lb.ld < lb.rows || ld.ld < ld.rows {
			return ltInvalid
		}
		*found = 0
		if la.kind != ld.kind || lb.kind != ld.kind {
			return ltNotSupported
		}
		r := (*ltResult)(result)
		r.algo = [8]uint64{ltMagic, p.attributes[5], p.attributes[6], p.attributes[8], p.attributes[1]}
		*found = 1
		return success
	}))
}

//export fakeLtMatmul
func fakeLtMatmul(h, desc uintptr, alpha *float32, a C.CUdeviceptr, la uintptr, b C.CUdeviceptr, lb uintptr, beta *float32, c C.CUdeviceptr, lc uintptr,
	d C.CUdeviceptr, ld uintptr, algorithm unsafe.Pointer, workspace C.CUdeviceptr, bytes C.size_t, queue C.CUstream) C.int {
	return C.int(on("cublasLtMatmul", queue, func(s *stream) int {
		o, A, B, D := host.lt[desc], host.lt[la], host.lt[lb], host.lt[ld]
		const compute32F, transposed, bias = 68, 1, 4
		algo := (*[8]uint64)(algorithm)
		if o == nil || A == nil || B == nil || D == nil || lc != ld || c != d || o.compute != compute32F || o.attributes[3] != transposed || *alpha != 1 || *beta != 0 {
			return ltInvalid
		}
		if algo[0] != ltMagic || uint64(a)%algo[1] != 0 || uint64(b)%algo[2] != 0 || uint64(d)%algo[3] != 0 || uint64(bytes) < algo[4] || !s.device.inside(uint64(workspace), int(bytes)) {
			return ltInvalid
		}
		p := Product{Type: A.kind, M: D.rows, N: D.cols, K: A.rows, LDA: A.ld, LDB: B.ld, LDD: D.ld, A: uint64(a), B: uint64(b), D: uint64(d)}
		if o.attributes[7] == bias {
			p.Bias = o.attributes[8]
		}
		host.products = append(host.products, p)
		f, m := host.product, s.device.Memory
		s.put(op{run: func() (code int) {
			defer func() {
				if recover() != nil {
					code = illegalAddress
				}
			}()
			if f != nil && f(m, &p) != nil {
				return illegalAddress
			}
			return success
		}})
		return success
	}))
}

// NoBLAS gives the find function of a machine without cuBLASLt.
func NoBLAS() unsafe.Pointer { return C.fake_find_none }
