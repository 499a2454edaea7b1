package safetensors

import (
	"encoding/binary"
	"reflect"
	"testing"

	"github.com/gaze-ml/gaze/internal/attn"
)

func TestRoundTrip(t *testing.T) {
	want := &File{Meta: map[string]string{"cases": `{"a": 1}`}, Tensors: map[string]Tensor{
		"b.query": {attn.Of(attn.BF16, 2, 3), []byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}},
		"a.none":  {attn.Of(attn.E4M3, 0, 4), []byte{}},
		"a.one":   {attn.Of(attn.F32), []byte{13, 14, 15, 16}},
	}}
	b, err := want.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	got, err := Parse(b)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v, %+v, want %+v", err, got, want)
	}
	for n := range len(b) {
		if _, err := Parse(b[:n]); err == nil {
			t.Fatalf("%d of %d bytes pass", n, len(b))
		}
	}
	if _, err := Parse(append(binary.LittleEndian.AppendUint64(nil, 1<<64-1), b[8:]...)); err == nil {
		t.Error("a header of 2^64 bytes passes")
	}
	want.Tensors["short"] = Tensor{attn.Of(attn.F32, 2), make([]byte, 4)}
	if _, err := want.Bytes(); err == nil {
		t.Error("a tensor with too few bytes passes")
	}
}

func TestParseRefuses(t *testing.T) {
	for _, header := range []string{
		`{`, `[]`, `{"a": 1}`, `{"__metadata__": {"a": 1}}`,
		`{"a": {"dtype": "F64", "shape": [1], "data_offsets": [0, 8]}}`,
		`{"a": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}}`,
		`{"a": {"dtype": "F32", "shape": [4294967296, 4294967296], "data_offsets": [0, 0]}}`,
		`{"a": {"dtype": "F32", "shape": [1, 1, 1, 1, 1, 1, 1, 1, 1, 1], "data_offsets": [0, 4]}}`,
		`{"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}}`,
		`{"a": {"dtype": "F32", "shape": [1], "data_offsets": [-4, 0]}}`,
		`{"a": {"dtype": "F32", "shape": [1], "data_offsets": [8, 4]}}`,
		`{"a": {"dtype": "F32", "shape": [1], "data_offsets": [6, 10]}}`,
	} {
		b := append(binary.LittleEndian.AppendUint64(nil, uint64(len(header))), header...)
		if f, err := Parse(append(b, make([]byte, 8)...)); err == nil {
			t.Errorf("%s gives %+v", header, f)
		}
	}
}
