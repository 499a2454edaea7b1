package gguf

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
)

// Writer collects metadata and tensors and writes a version 3 file. The zero value is ready to use. What can't be written
// is reported by WriteTo.
type Writer struct {
	keys    []string
	values  map[string]any
	tensors []Tensor
	err     error
}

// Set adds a metadata value: a sized integer, float32, float64, bool, string, a slice of those, or []any of slices.
// The key general.alignment, a uint32, also sets the alignment of the tensors.
func (w *Writer) Set(key string, value any) {
	if w.values == nil {
		w.values = map[string]any{}
	}
	if _, dup := w.values[key]; dup {
		w.err = errors.Join(w.err, fmt.Errorf("gguf: key %q: set twice", key))
		return
	}
	w.keys = append(w.keys, key)
	w.values[key] = value
}

// Add adds a tensor; its shape is row-major, outermost first, as in [Tensor], and its data is kept, not copied.
func (w *Writer) Add(t Tensor) { w.tensors = append(w.tensors, t) }

// WriteTo writes the file. What is written can be read by [Parse]; anything else is an error before the first byte.
func (w *Writer) WriteTo(dst io.Writer) (int64, error) {
	if w.err != nil {
		return 0, w.err
	}
	alignment := uint64(defaultAlignment)
	if a, ok := w.values[alignmentKey].(uint32); ok && a >= 8 && a <= maxAlignment && a&(a-1) == 0 {
		alignment = uint64(a)
	}
	aligned := func(n uint64) uint64 { return (n + alignment - 1) &^ (alignment - 1) }

	head := []byte(magic)
	head = binary.LittleEndian.AppendUint32(head, 3)
	head = binary.LittleEndian.AppendUint64(head, uint64(len(w.tensors)))
	head = binary.LittleEndian.AppendUint64(head, uint64(len(w.keys)))
	for _, key := range w.keys {
		head = appendString(head, key)
		t, body, err := encode(w.values[key])
		if err != nil {
			return 0, fmt.Errorf("gguf: key %q: %w", key, err)
		}
		head = append(binary.LittleEndian.AppendUint32(head, uint32(t)), body...)
	}
	offset := uint64(0)
	for _, t := range w.tensors {
		head = appendString(head, t.Name)
		head = binary.LittleEndian.AppendUint32(head, uint32(len(t.Shape)))
		for _, d := range slices.Backward(t.Shape) {
			head = binary.LittleEndian.AppendUint64(head, uint64(d))
		}
		head = binary.LittleEndian.AppendUint32(head, uint32(t.Type))
		head = binary.LittleEndian.AppendUint64(head, offset)
		offset = aligned(offset + uint64(len(t.Data)))
	}
	head = append(head, make([]byte, aligned(uint64(len(head)))-uint64(len(head)))...)
	if err := w.check(head); err != nil {
		return 0, err
	}

	n, err := io.Copy(dst, bytes.NewReader(head))
	for _, t := range w.tensors {
		pad := aligned(uint64(len(t.Data))) - uint64(len(t.Data))
		for _, part := range [][]byte{t.Data, make([]byte, pad)} {
			if err == nil {
				var wrote int
				wrote, err = dst.Write(part)
				n += int64(wrote)
			}
		}
	}
	return n, err
}

// check parses what is about to be written, without copying the tensors, so that the reader's rules are the writer's.
func (w *Writer) check(head []byte) error {
	p := &parser{data: head, pos: len(magic) + 4, item: "header"}
	f := &File{values: map[string]any{}, byName: map[string]int{}}
	tensors, pairs := p.u64(), p.u64()
	for i := range pairs {
		p.pair(f, i)
	}
	p.alignment(f)
	for i := range tensors {
		p.tensor(f, i)
		if p.err != nil {
			break
		}
		t := w.tensors[i]
		if n, ok := tensorBytes(t.Type, t.Shape); !ok || n != uint64(len(t.Data)) {
			p.fail(ErrFormat, fmt.Sprintf("%d bytes of data", len(t.Data)), fmt.Sprintf("those of %v %v", t.Type, t.Shape))
		}
	}
	return p.err
}

func appendString(b []byte, s string) []byte {
	return append(binary.LittleEndian.AppendUint64(b, uint64(len(s))), s...)
}

// kinds gives each kind of number or bool its type in the file.
var kinds = map[reflect.Kind]valueType{
	reflect.Uint8: typeUint8, reflect.Int8: typeInt8, reflect.Uint16: typeUint16, reflect.Int16: typeInt16,
	reflect.Uint32: typeUint32, reflect.Int32: typeInt32, reflect.Uint64: typeUint64, reflect.Int64: typeInt64,
	reflect.Float32: typeFloat32, reflect.Float64: typeFloat64, reflect.Bool: typeBool,
}

// encode returns a value's type and bytes.
func encode(value any) (valueType, []byte, error) {
	var elem valueType // of a slice
	var n int
	var body []byte
	var err error
	switch v := value.(type) {
	case string:
		return typeString, appendString(nil, v), nil
	case []string:
		elem, n = typeString, len(v)
		for _, s := range v {
			body = appendString(body, s)
		}
	case []any:
		elem, n = typeArray, len(v)
		for _, e := range v {
			t, b, err := encode(e)
			if err == nil && t != typeArray {
				err = fmt.Errorf("got %T in an array of arrays, want a slice", e)
			}
			if err != nil {
				return 0, nil, err
			}
			body = append(body, b...)
		}
	default:
		r, isSlice, known := reflect.ValueOf(v), false, false
		if isSlice = r.Kind() == reflect.Slice; isSlice {
			n = r.Len()
			elem, known = kinds[r.Type().Elem().Kind()]
		} else {
			elem, known = kinds[r.Kind()]
		}
		if !known {
			return 0, nil, fmt.Errorf("got a %T, want a sized number, bool, string or slice", v)
		}
		if body, err = binary.Append(nil, binary.LittleEndian, v); err != nil || !isSlice {
			return elem, body, err
		}
	}
	head := binary.LittleEndian.AppendUint32(nil, uint32(elem))
	return typeArray, append(binary.LittleEndian.AppendUint64(head, uint64(n)), body...), nil
}
