// Package safetensors reads and writes the format of that name, in which tests and benchmarks exchange tensors with other software: eight
// bytes of length, a JSON header of names, dtypes, shapes and byte ranges, then the tensors' bytes.
package safetensors

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/gaze-ml/gaze/internal/attn"
)

// dtypes are the names of those that gaze has too.
var dtypes = map[attn.DType]string{
	attn.F32: "F32", attn.F16: "F16", attn.BF16: "BF16", attn.E4M3: "F8_E4M3", attn.U8: "U8", attn.U16: "U16", attn.I32: "I32", attn.U32: "U32", attn.I64: "I64",
}

// File is the contents of a file.
type File struct {
	Meta    map[string]string
	Tensors map[string]Tensor
}

// Tensor is a packed tensor: dtype and shape without memory, and its elements, little-endian.
type Tensor struct {
	attn.Tensor
	Bytes []byte
}

const metaKey = "__metadata__"

type entry struct {
	DType   string `json:"dtype"`
	Shape   []int  `json:"shape"`
	Offsets [2]int `json:"data_offsets"`
}

// Parse reads a whole file, whose bytes the tensors share.
func Parse(b []byte) (*File, error) {
	if len(b) < 8 || binary.LittleEndian.Uint64(b) > uint64(len(b)-8) {
		return nil, fmt.Errorf("safetensors: a file of %d bytes is cut", len(b))
	}
	n := int(binary.LittleEndian.Uint64(b))
	var header map[string]json.RawMessage
	if err := json.Unmarshal(b[8:8+n], &header); err != nil {
		return nil, fmt.Errorf("safetensors: header: %w", err)
	}
	f, data := &File{Tensors: make(map[string]Tensor)}, b[8+n:]
	for name, raw := range header {
		if name == metaKey {
			if err := json.Unmarshal(raw, &f.Meta); err != nil {
				return nil, fmt.Errorf("safetensors: metadata: %w", err)
			}
			continue
		}
		var e entry
		if err := json.Unmarshal(raw, &e); err != nil {
			return nil, fmt.Errorf("safetensors: %s: %w", name, err)
		}
		t, err := describe(e)
		if err != nil {
			return nil, fmt.Errorf("safetensors: %s: %w", name, err)
		}
		from, to := e.Offsets[0], e.Offsets[1]
		if from < 0 || to < from || to > len(data) || to-from != t.Bytes() {
			return nil, fmt.Errorf("safetensors: %s: %v at %v of %d bytes", name, t.String(), e.Offsets, len(data))
		}
		f.Tensors[name] = Tensor{t, data[from:to:to]}
	}
	return f, nil
}

func describe(e entry) (attn.Tensor, error) {
	for dt, name := range dtypes {
		if name != e.DType {
			continue
		}
		if len(e.Shape) > attn.MaxRank {
			return attn.Tensor{}, fmt.Errorf("rank %d, want %d or less", len(e.Shape), attn.MaxRank)
		}
		bytes := float64(dt.Size())
		for _, n := range e.Shape {
			if bytes *= float64(n); n < 0 || bytes > 1<<46 {
				return attn.Tensor{}, fmt.Errorf("shape %v, want sizes ≥ 0 and at most 2^46 bytes", e.Shape)
			}
		}
		return attn.Of(dt, e.Shape...), nil
	}
	return attn.Tensor{}, fmt.Errorf("dtype %q is not one of gaze", e.DType)
}

// Bytes is the file, tensors in the order of their names.
func (f *File) Bytes() ([]byte, error) {
	header := make(map[string]any, len(f.Tensors)+1)
	if f.Meta != nil {
		header[metaKey] = f.Meta
	}
	names, at := slices.Sorted(maps.Keys(f.Tensors)), 0
	for _, name := range names {
		t := f.Tensors[name]
		dt, ok := dtypes[t.DType]
		if !ok || len(t.Bytes) != t.Tensor.Bytes() {
			return nil, fmt.Errorf("safetensors: %s: %d bytes for %v", name, len(t.Bytes), t.String())
		}
		header[name] = entry{dt, append([]int{}, t.Shape[:t.Rank]...), [2]int{at, at + len(t.Bytes)}}
		at += len(t.Bytes)
	}
	text, err := json.Marshal(header)
	if err != nil {
		return nil, fmt.Errorf("safetensors: header: %w", err)
	}
	for len(text)%8 != 0 {
		text = append(text, ' ')
	}
	out := make([]byte, 0, 8+len(text)+at)
	out = append(binary.LittleEndian.AppendUint64(out, uint64(len(text))), text...)
	for _, name := range names {
		out = append(out, f.Tensors[name].Bytes...)
	}
	return out, nil
}
