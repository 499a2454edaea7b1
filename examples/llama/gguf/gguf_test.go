package gguf

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
)

// everything is a file with each kind of value and each tensor type.
func everything(t testing.TB) []byte {
	t.Helper()
	w := &Writer{}
	w.Set("general.architecture", "llama")
	w.Set("u8", uint8(200))
	w.Set("i8", int8(-100))
	w.Set("u16", uint16(60000))
	w.Set("i16", int16(-30000))
	w.Set("u32", uint32(1<<30))
	w.Set("i32", int32(-1<<31))
	w.Set("u64", uint64(1<<63))
	w.Set("i64", int64(-1<<31))
	w.Set("f32", float32(0.25))
	w.Set("f64", 1e-300)
	w.Set("yes", true)
	w.Set("no", false)
	w.Set("empty", "")
	w.Set("strings", []string{"", "Ġa", "\xff\x00"})
	w.Set("bytes", []uint8{1, 2, 3})
	w.Set("ints", []int32{-1, 0, 1})
	w.Set("longs", []uint64{1, 2})
	w.Set("long", []int64{1 << 40})
	w.Set("floats", []float32{1.5, -2})
	w.Set("bools", []bool{true, false})
	w.Set("none", []int16{})
	w.Set("nested", []any{[]int8{1}, []any{[]string{"x"}}, []float64{}})
	seed := byte(0)
	for _, kind := range []Type{F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K, Q6_K} {
		n := 3 * kind.BlockBytes() // three rows of one block
		data := make([]byte, n)
		for i := range data {
			seed = seed*5 + 1
			data[i] = seed
		}
		w.Add(Tensor{Name: "t." + kind.String(), Type: kind, Shape: []int{3, kind.BlockElems()}, Data: data})
	}
	return written(t, w)
}

func written(t testing.TB, w *Writer) []byte {
	t.Helper()
	var b bytes.Buffer
	n, err := w.WriteTo(&b)
	if err != nil {
		t.Fatal(err)
	}
	if n != int64(b.Len()) {
		t.Fatalf("WriteTo says %d bytes, wrote %d", n, b.Len())
	}
	return b.Bytes()
}

// rewritten writes what was parsed from a file again.
func rewritten(t testing.TB, f *File) []byte {
	t.Helper()
	w := &Writer{}
	for _, key := range f.Keys() {
		w.Set(key, f.values[key])
	}
	for _, tensor := range f.Tensors {
		w.Add(tensor)
	}
	return written(t, w)
}

func TestRoundTrip(t *testing.T) {
	data := everything(t)
	f, err := Parse(data)
	if err != nil {
		t.Fatal(err)
	}
	if f.Version != 3 || f.Alignment != 32 || len(f.Keys()) != 23 || len(f.Tensors) != 11 {
		t.Fatalf("got version %d, alignment %d, %d keys, %d tensors", f.Version, f.Alignment, len(f.Keys()), len(f.Tensors))
	}
	if again := rewritten(t, f); !bytes.Equal(again, data) {
		t.Fatal("a parsed file written again differs")
	}
	for _, tensor := range f.Tensors {
		if tensor.Elems() != 3*tensor.Type.BlockElems() || len(tensor.Data) != 3*tensor.RowBytes() {
			t.Errorf("%s: %d elements, %d bytes, rows of %d bytes", tensor.Name, tensor.Elems(), len(tensor.Data), tensor.RowBytes())
		}
		if !slices.Equal(tensor.Shape, []int{3, tensor.Type.BlockElems()}) {
			t.Errorf("%s: shape %v, want outermost first", tensor.Name, tensor.Shape)
		}
	}
	// Version 2 has the same layout.
	old := bytes.Clone(data)
	old[4] = 2
	if f, err := Parse(old); err != nil || f.Version != 2 || !bytes.Equal(rewritten(t, f), data) {
		t.Errorf("version 2: %v", err)
	}
}

// The bits per weight are well known from llama.cpp's quantize tool; they fix the block sizes independently of their parts.
func TestBitsPerWeight(t *testing.T) {
	want := map[Type]float64{F32: 32, F16: 16, BF16: 16, Q8_0: 8.5, Q4_0: 4.5, Q4_1: 5, Q5_0: 5.5, Q5_1: 6, Q4_K: 4.5, Q5_K: 5.5, Q6_K: 6.5625}
	for kind, bpw := range want {
		if got := float64(kind.BlockBytes()*8) / float64(kind.BlockElems()); got != bpw {
			t.Errorf("%v: %v bits per weight, want %v", kind, got, bpw)
		}
	}
}

func TestAlignment(t *testing.T) {
	for _, alignment := range []uint32{8, 64, 4096} {
		w := &Writer{}
		w.Set("general.alignment", alignment)
		w.Add(Tensor{Name: "a", Type: F32, Shape: []int{1}, Data: []byte{1, 2, 3, 4}})
		w.Add(Tensor{Name: "b", Type: F16, Shape: []int{1, 1, 1, 3}, Data: []byte{5, 6, 7, 8, 9, 10}})
		data := written(t, w)
		f, err := Parse(data)
		if err != nil {
			t.Fatal(err)
		}
		a, b := f.Tensors[0].Data, f.Tensors[1].Data
		if !bytes.Equal(a, []byte{1, 2, 3, 4}) || !bytes.Equal(b, []byte{5, 6, 7, 8, 9, 10}) {
			t.Errorf("alignment %d: got %v, %v", alignment, a, b)
		}
		if start := bytes.Index(data, a); start%int(alignment) != 0 {
			t.Errorf("alignment %d: data starts at byte %d", alignment, start)
		}
		if cap(a) != len(a) {
			t.Errorf("a tensor's view reaches into the next")
		}
	}
}

func TestGet(t *testing.T) {
	f, err := Parse(everything(t))
	if err != nil {
		t.Fatal(err)
	}
	check := func(key string, got, want any, err error) {
		t.Helper()
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %v, %v, want %v", key, got, err, want)
		}
	}
	for key, want := range map[string]int{"u8": 200, "i8": -100, "u16": 60000, "i16": -30000, "u32": 1 << 30, "i32": -1 << 31, "i64": -1 << 31} {
		got, err := Get[int](f, key)
		check(key, got, want, err)
	}
	f32, err := Get[float64](f, "f32")
	check("f32", f32, 0.25, err)
	f64, err := Get[float64](f, "f64")
	check("f64", f64, 1e-300, err)
	yes, err := Get[bool](f, "yes")
	check("yes", yes, true, err)
	text, err := Get[string](f, "general.architecture")
	check("general.architecture", text, "llama", err)
	list, err := Get[[]string](f, "strings")
	check("strings", list, []string{"", "Ġa", "\xff\x00"}, err)
	ints, err := Get[[]int32](f, "longs")
	check("longs", ints, []int32{1, 2}, err)
	floats, err := Get[[]float32](f, "floats")
	check("floats", floats, []float32{1.5, -2}, err)
	missing, err := GetOr(f, "no such key", 7)
	check("missing", missing, 7, err)
	present, err := GetOr(f, "u8", 7)
	check("present", present, 200, err)

	if _, err := Get[int](f, "no such key"); !errors.Is(err, ErrMissing) {
		t.Errorf("a missing key: %v", err)
	}
	for _, err := range []error{
		second(Get[int](f, "u64")), // 2^63 doesn't fit
		second(Get[int](f, "f32")), // a float is no integer
		second(Get[int](f, "yes")),
		second(Get[float64](f, "u8")),
		second(Get[bool](f, "u8")),
		second(Get[string](f, "strings")),
		second(Get[[]string](f, "ints")),
		second(Get[[]int32](f, "floats")),
		second(Get[[]int32](f, "u8")),
		second(Get[[]int32](f, "long")), // 2^40 doesn't fit
		second(GetOr(f, "yes", 7)),
	} {
		if !errors.Is(err, ErrType) {
			t.Errorf("got %v, want ErrType", err)
		}
	}
	if _, err := f.Tensor("no such tensor"); !errors.Is(err, ErrMissing) {
		t.Errorf("a missing tensor: %v", err)
	}
	if got, err := f.Tensor("t.Q4_K"); err != nil || got.Type != Q4_K {
		t.Errorf("t.Q4_K: %v, %v", got.Type, err)
	}
}

func second[T any](_ T, err error) error { return err }

func TestOpen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "model.gguf")
	data := everything(t)
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(rewritten(t, f), data) {
		t.Error("the opened file differs from what was written")
	}
	if err := errors.Join(f.Close(), f.Close()); err != nil {
		t.Errorf("closing twice: %v", err)
	}
	if _, ok := f.Lookup("t.F32"); ok {
		t.Error("a closed file still hands out tensors")
	}

	if _, err := Open(filepath.Join(t.TempDir(), "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
	var pathError *os.PathError
	if _, err := Open(t.TempDir()); !errors.As(err, &pathError) {
		t.Errorf("a folder: %v", err)
	}
	for _, content := range []string{"", "GGU", "not a model at all"} {
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(path); !errors.Is(err, ErrFormat) {
			t.Errorf("content %q: %v", content, err)
		}
	}
}

func TestWriterRefuses(t *testing.T) {
	for name, build := range map[string]func(*Writer){
		"int":            func(w *Writer) { w.Set("k", 1) },
		"nil":            func(w *Writer) { w.Set("k", nil) },
		"struct":         func(w *Writer) { w.Set("k", struct{}{}) },
		"mixed array":    func(w *Writer) { w.Set("k", []any{[]int8{1}, "text"}) },
		"deep":           func(w *Writer) { w.Set("k", []any{[]any{[]any{[]any{[]int8{}}}}}) },
		"twice":          func(w *Writer) { w.Set("k", int8(1)); w.Set("k", int8(1)) },
		"no key":         func(w *Writer) { w.Set("", int8(1)) },
		"alignment":      func(w *Writer) { w.Set("general.alignment", uint32(24)) },
		"data too short": func(w *Writer) { w.Add(Tensor{Name: "t", Type: F32, Shape: []int{2}, Data: make([]byte, 7)}) },
		"part of block":  func(w *Writer) { w.Add(Tensor{Name: "t", Type: Q8_0, Shape: []int{33}, Data: make([]byte, 34)}) },
		"unknown type":   func(w *Writer) { w.Add(Tensor{Name: "t", Type: 10, Shape: []int{256}}) },
		"no shape":       func(w *Writer) { w.Add(Tensor{Name: "t", Type: F32, Data: make([]byte, 4)}) },
		"negative":       func(w *Writer) { w.Add(Tensor{Name: "t", Type: F32, Shape: []int{-1}}) },
		"same name": func(w *Writer) {
			for range 2 {
				w.Add(Tensor{Name: "t", Type: F32, Shape: []int{1}, Data: make([]byte, 4)})
			}
		},
	} {
		w, b := &Writer{}, bytes.Buffer{}
		build(w)
		if n, err := w.WriteTo(&b); err == nil || n != 0 || b.Len() != 0 {
			t.Errorf("%s: got %v after %d bytes, want an error before the first", name, err, b.Len())
		}
	}
}
