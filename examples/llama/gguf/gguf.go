// Package gguf reads and writes GGUF, the single-file model format of ggml and llama.cpp: a header, typed key/value
// metadata, tensor descriptions, and the tensors' bytes. Versions 2 and 3, little-endian, are read; version 3 is written.
//
// A file is taken as hostile until it is parsed: every count and offset is checked against the bytes that are there before
// anything is allocated, so memory use is proportional to the file's size, and each fault is an [*Error] that names the
// key or tensor, what it got and what it wants.
//
// The layout is that of the GGUF specification (docs/gguf.md of the ggml project); block sizes are those of
// ggml-common.h. Turning quantised blocks into numbers is not done here.
package gguf

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
)

// Type is a tensor's element type, numbered as in the file (enum ggml_type).
type Type uint32

// The element types that this package reads.
const (
	F32  Type = 0
	F16  Type = 1
	Q4_0 Type = 2
	Q4_1 Type = 3
	Q5_0 Type = 6
	Q5_1 Type = 7
	Q8_0 Type = 8
	Q4_K Type = 12
	Q5_K Type = 13
	Q6_K Type = 14
	BF16 Type = 30
)

// typeInfo describes how a type is stored: bytes for every elems elements, which lie next to each other in one row.
type typeInfo struct {
	name         string
	elems, bytes int
}

var types = map[Type]typeInfo{
	F32:  {"F32", 1, 4},
	F16:  {"F16", 1, 2},
	BF16: {"BF16", 1, 2},
	Q4_0: {"Q4_0", 32, 2 + 16},
	Q4_1: {"Q4_1", 32, 2 + 2 + 16},
	Q5_0: {"Q5_0", 32, 2 + 4 + 16},
	Q5_1: {"Q5_1", 32, 2 + 2 + 4 + 16},
	Q8_0: {"Q8_0", 32, 2 + 32},
	Q4_K: {"Q4_K", 256, 2 + 2 + 12 + 128},
	Q5_K: {"Q5_K", 256, 2 + 2 + 12 + 32 + 128},
	Q6_K: {"Q6_K", 256, 128 + 64 + 16 + 2},
}

// foreign names types of ggml that are not read here, for the error text.
var foreign = map[Type]string{
	4: "Q4_2", 5: "Q4_3", 9: "Q8_1", 10: "Q2_K", 11: "Q3_K", 15: "Q8_K", 16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS",
	19: "IQ1_S", 20: "IQ4_NL", 21: "IQ3_S", 22: "IQ2_S", 23: "IQ4_XS", 24: "I8", 25: "I16", 26: "I32", 27: "I64",
	28: "F64", 29: "IQ1_M", 34: "TQ1_0", 35: "TQ2_0", 39: "MXFP4",
}

const wantType = "F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K or Q6_K"

// String returns ggml's name of the type, such as "Q4_K".
func (t Type) String() string {
	if info, ok := types[t]; ok {
		return info.name
	}
	if name, ok := foreign[t]; ok {
		return name
	}
	return fmt.Sprintf("type %d", uint32(t))
}

// BlockElems returns the number of consecutive elements that are stored together: 1 for the plain types, 0 for a type that
// is not read here.
func (t Type) BlockElems() int { return types[t].elems }

// BlockBytes returns the size in bytes of BlockElems elements, or 0 for a type that is not read here.
func (t Type) BlockBytes() int { return types[t].bytes }

// Tensor is one tensor of a file.
type Tensor struct {
	Name string
	Type Type
	// Shape is row-major, outermost dimension first, so a weight is [out, in]; the file stores it the other way round.
	Shape []int
	// Data holds the tensor's blocks, row after row, little-endian. It is a view into the file: read-only, and valid
	// until File.Close.
	Data []byte
}

// Elems returns the number of elements, the product of the shape.
func (t Tensor) Elems() int {
	n := 1
	for _, d := range t.Shape {
		n *= d
	}
	return n
}

// RowBytes returns the size in bytes of one row, that is of the innermost dimension.
func (t Tensor) RowBytes() int {
	return t.Shape[len(t.Shape)-1] / t.Type.BlockElems() * t.Type.BlockBytes()
}

// File is a parsed GGUF file. Its methods may be called concurrently, save Close.
type File struct {
	Version   uint32
	Alignment int      // of the tensors' offsets, in bytes
	Tensors   []Tensor // in the order of the file

	keys   []string
	values map[string]any
	byName map[string]int
	close  func() error
}

// Open maps a file into memory (where the system can, else reads it) and parses it. The caller closes it. Faults of the
// content are an [*Error], those of the file system an *fs.PathError.
func Open(path string) (*File, error) {
	data, unmap, err := mapFile(path)
	if err != nil {
		return nil, err
	}
	f, err := Parse(data)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", path, err), unmap())
	}
	f.close = unmap
	return f, nil
}

// Close unmaps the file; no tensor's Data may be used after it. A second call does nothing.
func (f *File) Close() error {
	if f.close == nil {
		return nil
	}
	unmap := f.close
	f.close, f.Tensors, f.byName = nil, nil, nil
	return unmap()
}

// Keys returns the metadata keys in the order of the file.
func (f *File) Keys() []string { return append([]string(nil), f.keys...) }

// Lookup returns the named tensor and whether the file has it.
func (f *File) Lookup(name string) (Tensor, bool) {
	i, ok := f.byName[name]
	if !ok {
		return Tensor{}, false
	}
	return f.Tensors[i], true
}

// Tensor returns the named tensor, or an error that wraps [ErrMissing].
func (f *File) Tensor(name string) (Tensor, error) {
	if t, ok := f.Lookup(name); ok {
		return t, nil
	}
	return Tensor{}, &Error{Item: fmt.Sprintf("tensor %q", name), Got: "nothing",
		Want: fmt.Sprintf("one of the file's %d tensors", len(f.Tensors)), Err: ErrMissing}
}

// sizeOf returns the size of a regular file, or why it can't be held in memory.
func sizeOf(file *os.File) (int, error) {
	info, err := file.Stat()
	if err != nil {
		return 0, err
	}
	if !info.Mode().IsRegular() {
		return 0, &fs.PathError{Op: "open", Path: file.Name(), Err: errors.New("not a regular file")}
	}
	if info.Size() > math.MaxInt {
		return 0, &fs.PathError{Op: "open", Path: file.Name(), Err: errors.New("too large for this machine's address space")}
	}
	return int(info.Size()), nil
}
