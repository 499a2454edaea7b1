//go:build gpu && linux && amd64 && cgo

package fakecuda

// #include <cuda.h>
import "C"

import "unsafe"

// on is within for functions of a stream, which must be of the current context's device.
func on(function string, h C.CUstream, f func(s *stream) int) C.CUresult {
	return within(function, func(d *device) int {
		s := host.streams[uintptr(unsafe.Pointer(h))]
		switch {
		case s == nil:
			return invalidHandle
		case s.device != d:
			return invalidContext
		}
		return f(s)
	})
}

// waits is on for functions that wait, which a capture forbids.
func waits(function string, h C.CUstream, f func(s *stream) int) C.CUresult {
	return on(function, h, func(s *stream) int {
		if s.capturing {
			s.spoilt = true
			return captureRefused
		}
		return f(s)
	})
}

//export fakeStreamCreate
func fakeStreamCreate(p *C.CUstream, flags C.uint) C.CUresult {
	return within("cuStreamCreate", func(d *device) int {
		h := host.handle(d)
		host.streams[h] = &stream{device: d}
		*(*uintptr)(unsafe.Pointer(p)) = h
		return success
	})
}

//export fakeStreamDestroy
func fakeStreamDestroy(h C.CUstream) C.CUresult {
	return call("cuStreamDestroy", func() int {
		s := host.streams[uintptr(unsafe.Pointer(h))]
		if s == nil {
			return invalidHandle
		}
		delete(host.streams, uintptr(unsafe.Pointer(h)))
		return s.drain(len(s.pending))
	})
}

//export fakeStreamSynchronize
func fakeStreamSynchronize(h C.CUstream) C.CUresult {
	return waits("cuStreamSynchronize", h, func(s *stream) int { return s.drain(len(s.pending)) })
}

//export fakeStreamBeginCapture
func fakeStreamBeginCapture(h C.CUstream, mode C.CUstreamCaptureMode) C.CUresult {
	return waits("cuStreamBeginCapture", h, func(s *stream) int {
		s.capturing, s.spoilt, s.recorded = true, false, nil
		return success
	})
}

//export fakeStreamEndCapture
func fakeStreamEndCapture(h C.CUstream, p *C.CUgraph) C.CUresult {
	return on("cuStreamEndCapture", h, func(s *stream) int {
		if !s.capturing {
			return captureNotBegun
		}
		s.capturing = false
		if s.spoilt {
			return 901 // CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
		}
		g := host.handle(s.device)
		host.graphs[g] = s.recorded
		*(*uintptr)(unsafe.Pointer(p)) = g
		return success
	})
}

//export fakeGraphInstantiate
func fakeGraphInstantiate(p *C.CUgraphExec, g C.CUgraph, flags C.ulonglong) C.CUresult {
	return call("cuGraphInstantiateWithFlags", func() int {
		ops, ok := host.graphs[uintptr(unsafe.Pointer(g))]
		if !ok {
			return invalidHandle
		}
		h := host.handle(host.owner[uintptr(unsafe.Pointer(g))])
		host.graphs[h] = ops
		*(*uintptr)(unsafe.Pointer(p)) = h
		return success
	})
}

func destroyGraph(function string, h uintptr) C.CUresult {
	return call(function, func() int {
		if _, ok := host.graphs[h]; !ok {
			return invalidHandle
		}
		delete(host.graphs, h)
		return success
	})
}

//export fakeGraphDestroy
func fakeGraphDestroy(g C.CUgraph) C.CUresult {
	return destroyGraph("cuGraphDestroy", uintptr(unsafe.Pointer(g)))
}

//export fakeGraphExecDestroy
func fakeGraphExecDestroy(g C.CUgraphExec) C.CUresult {
	return destroyGraph("cuGraphExecDestroy", uintptr(unsafe.Pointer(g)))
}

//export fakeGraphLaunch
func fakeGraphLaunch(g C.CUgraphExec, h C.CUstream) C.CUresult {
	return on("cuGraphLaunch", h, func(s *stream) int {
		ops, ok := host.graphs[uintptr(unsafe.Pointer(g))]
		if !ok {
			return invalidHandle
		}
		for _, o := range ops {
			s.put(o)
		}
		return success
	})
}

//export fakeEventCreate
func fakeEventCreate(p *C.CUevent, flags C.uint) C.CUresult {
	return within("cuEventCreate", func(d *device) int {
		h := host.handle(d)
		host.events[h] = &event{}
		*(*uintptr)(unsafe.Pointer(p)) = h
		return success
	})
}

//export fakeEventDestroy
func fakeEventDestroy(e C.CUevent) C.CUresult {
	return call("cuEventDestroy", func() int {
		if host.events[uintptr(unsafe.Pointer(e))] == nil {
			return invalidHandle
		}
		delete(host.events, uintptr(unsafe.Pointer(e)))
		return success
	})
}

//export fakeEventRecord
func fakeEventRecord(e C.CUevent, h C.CUstream) C.CUresult {
	return on("cuEventRecord", h, func(s *stream) int {
		ev := host.events[uintptr(unsafe.Pointer(e))]
		if ev == nil {
			return invalidHandle
		}
		done := new(bool)
		ev.stream, ev.done = s, done
		s.put(op{run: func() int { *done = true; return success }})
		return success
	})
}

//export fakeEventSynchronize
func fakeEventSynchronize(e C.CUevent) C.CUresult {
	return call("cuEventSynchronize", func() int {
		ev := host.events[uintptr(unsafe.Pointer(e))]
		if ev == nil {
			return invalidHandle
		}
		if ev.stream != nil && ev.stream.capturing {
			ev.stream.spoilt = true
			return captureRefused
		}
		return ev.wait()
	})
}

//export fakeEventElapsedTime
func fakeEventElapsedTime(ms *C.float, a, b C.CUevent) C.CUresult {
	return call("cuEventElapsedTime", func() int {
		for _, e := range []C.CUevent{a, b} {
			ev := host.events[uintptr(unsafe.Pointer(e))]
			if ev == nil || ev.done == nil {
				return invalidHandle
			}
			if !*ev.done {
				return notReady
			}
		}
		*ms = 1
		return success
	})
}

//export fakeMemcpyHtoDAsync
func fakeMemcpyHtoDAsync(dst C.CUdeviceptr, src unsafe.Pointer, n C.size_t, h C.CUstream) C.CUresult {
	return on("cuMemcpyHtoDAsync", h, func(s *stream) int {
		if !s.device.inside(uint64(dst), int(n)) {
			return invalidValue
		}
		to := s.device.Bytes(uint64(dst), int(n))
		if isPinned(src, int(n)) {
			from := unsafe.Slice((*byte)(src), int(n))
			s.put(op{run: func() int { copy(to, from); return success }})
			return success
		}
		if s.capturing {
			s.spoilt = true
			return captureRefused
		}
		from := contents(src, int(n))
		s.put(op{run: func() int { copy(to, from); return success }})
		return success
	})
}

//export fakeMemcpyDtoHAsync
func fakeMemcpyDtoHAsync(dst unsafe.Pointer, src C.CUdeviceptr, n C.size_t, h C.CUstream) C.CUresult {
	return on("cuMemcpyDtoHAsync", h, func(s *stream) int {
		if !s.device.inside(uint64(src), int(n)) {
			return invalidValue
		}
		from, to := s.device.Bytes(uint64(src), int(n)), unsafe.Slice((*byte)(dst), int(n))
		if isPinned(dst, int(n)) {
			s.put(op{run: func() int { copy(to, from); return success }})
			return success
		}
		if s.capturing {
			s.spoilt = true
			return captureRefused
		}
		code := s.drain(len(s.pending))
		if code == success {
			copy(to, from)
		}
		return code
	})
}

//export fakeMemcpyDtoDAsync
func fakeMemcpyDtoDAsync(dst, src C.CUdeviceptr, n C.size_t, h C.CUstream) C.CUresult {
	return on("cuMemcpyDtoDAsync", h, func(s *stream) int {
		if !s.device.inside(uint64(src), int(n)) || !s.device.inside(uint64(dst), int(n)) {
			return invalidValue
		}
		to, from := s.device.Bytes(uint64(dst), int(n)), s.device.Bytes(uint64(src), int(n))
		s.put(op{run: func() int { copy(to, from); return success }})
		return success
	})
}

//export fakeMemsetD8Async
func fakeMemsetD8Async(dst C.CUdeviceptr, v C.uchar, n C.size_t, h C.CUstream) C.CUresult {
	return on("cuMemsetD8Async", h, func(s *stream) int {
		if !s.device.inside(uint64(dst), int(n)) {
			return invalidValue
		}
		to := s.device.Bytes(uint64(dst), int(n))
		s.put(op{run: func() int {
			for i := range to {
				to[i] = byte(v)
			}
			return success
		}})
		return success
	})
}
