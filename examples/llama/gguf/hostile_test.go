package gguf

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"runtime"
	"strings"
	"testing"
)

// raw builds a file field by field, so that it can be wrong.
type raw struct{ b []byte }

func header(tensors, pairs uint64) *raw { return (&raw{[]byte(magic)}).u32(3).u64(tensors).u64(pairs) }

func (r *raw) u8(v uint8) *raw   { r.b = append(r.b, v); return r }
func (r *raw) u32(v uint32) *raw { r.b = binary.LittleEndian.AppendUint32(r.b, v); return r }
func (r *raw) u64(v uint64) *raw { r.b = binary.LittleEndian.AppendUint64(r.b, v); return r }
func (r *raw) str(s string) *raw { r.b = appendString(r.b, s); return r }

// pair starts a key of value type t.
func (r *raw) pair(key string, t valueType) *raw { return r.str(key).u32(uint32(t)) }

// tensor describes one; its data is added by zeros.
func (r *raw) tensor(name string, kind Type, offset uint64, dims ...uint64) *raw {
	r.str(name).u32(uint32(len(dims)))
	for _, d := range dims {
		r.u64(d)
	}
	return r.u32(uint32(kind)).u64(offset)
}

// zeros pads to the data section and adds n bytes of it.
func (r *raw) zeros(n int) *raw {
	r.b = append(r.b, make([]byte, (32-len(r.b)%32)%32+n)...)
	return r
}

// hostile files, each with what its error must be and name.
var hostile = []struct {
	name  string
	file  *raw
	kind  error
	names []string // parts of the error's text: the item, got, want
}{
	{"magic", &raw{[]byte("GGML\x03\x00\x00\x00")}, ErrFormat, []string{`"GGML"`, `"GGUF"`}},
	{"version 1", (&raw{[]byte(magic)}).u32(1).u64(0).u64(0), ErrUnsupported, []string{"version", "got 1", "2 or 3"}},
	{"version 4", (&raw{[]byte(magic)}).u32(4).u64(0).u64(0), ErrUnsupported, []string{"version", "got 4"}},
	{"big-endian", (&raw{[]byte(magic)}).u32(3 << 24).u64(0).u64(0), ErrUnsupported, []string{"big-endian", "version 3"}},
	{"2^63 keys", header(0, 1<<63), ErrFormat, []string{"key 0"}},
	{"2^64-1 tensors", header(math.MaxUint64, 0), ErrFormat, []string{"tensor 0"}},
	{"empty key", header(0, 1).pair("", typeUint8).u8(1), ErrFormat, []string{"key 0", "0 bytes"}},
	{"key of 2^16 bytes", header(0, 1).pair(strings.Repeat("k", 1<<16), typeUint8).u8(1), ErrFormat, []string{"key 0", "65536 bytes", "65535"}},
	{"value of a long key", header(0, 1).pair(strings.Repeat("\xff", 1<<16-1), 13).u64(0), ErrFormat, []string{`key "\xff`, "…", "type 13"}},
	{"key of 2^63 bytes", header(0, 1).u64(1 << 63), ErrFormat, []string{"key 0"}},
	{"string of 2^63 bytes", header(0, 1).pair("s", typeString).u64(1 << 63), ErrFormat, []string{`key "s"`, "9223372036854775808 bytes"}},
	{"string of 2^64-1 bytes", header(0, 1).pair("s", typeString).u64(math.MaxUint64), ErrFormat, []string{`key "s"`}},
	{"value type 13", header(0, 1).pair("k", 13).u64(0), ErrFormat, []string{`key "k"`, "type 13", "0 to 12"}},
	{"bool 2", header(0, 1).pair("k", typeBool).u8(2), ErrFormat, []string{`key "k"`, "bool 2"}},
	{"array of 2^63 bytes", header(0, 1).pair("a", typeArray).u32(uint32(typeUint8)).u64(1 << 63), ErrFormat, []string{`key "a"`, "9223372036854775808 values"}},
	{"array of 2^61 u64", header(0, 1).pair("a", typeArray).u32(uint32(typeUint64)).u64(1 << 61), ErrFormat, []string{`key "a"`}},
	{"array of 2^60 strings", header(0, 1).pair("a", typeArray).u32(uint32(typeString)).u64(1 << 60), ErrFormat, []string{`key "a"`}},
	{"array of value type 99", header(0, 1).pair("a", typeArray).u32(99).u64(0), ErrFormat, []string{`key "a"`, "type 99"}},
	{"nested arrays", nest(1000), ErrFormat, []string{`key "a"`, "nested 5 deep"}},
	{"array of 2^62 arrays", header(0, 1).pair("a", typeArray).u32(uint32(typeArray)).u64(1 << 62), ErrFormat, []string{`key "a"`}},
	{"duplicate key", header(0, 2).pair("k", typeUint8).u8(1).pair("k", typeUint8).u8(1), ErrFormat, []string{`key "k"`, "second"}},
	{"alignment 0", header(0, 1).pair(alignmentKey, typeUint32).u32(0), ErrFormat, []string{alignmentKey, "got 0", "power of two"}},
	{"alignment 3", header(0, 1).pair(alignmentKey, typeUint32).u32(3), ErrFormat, []string{alignmentKey, "got 3"}},
	{"alignment 2^31", header(0, 1).pair(alignmentKey, typeUint32).u32(1 << 31), ErrFormat, []string{alignmentKey, "got 2147483648"}},
	{"alignment text", header(0, 1).pair(alignmentKey, typeString).str("32"), ErrFormat, []string{alignmentKey, "want a uint32"}},
	{"0 dimensions", header(1, 0).tensor("t", F32, 0).zeros(4), ErrFormat, []string{`tensor "t"`, "0 dimensions"}},
	{"5 dimensions", header(1, 0).tensor("t", F32, 0, 1, 1, 1, 1, 1).zeros(4), ErrFormat, []string{`tensor "t"`, "5 dimensions", "1 to 4"}},
	{"2^32-1 dimensions", header(1, 0).str("t").u32(math.MaxUint32).u64(1), ErrFormat, []string{`tensor "t"`, "4294967295 dimensions"}},
	{"dimension 0", header(1, 0).tensor("t", F32, 0, 4, 0).zeros(4), ErrFormat, []string{`tensor "t"`, "dimension 1 of size 0"}},
	{"dimension 2^63", header(1, 0).tensor("t", F32, 0, 1<<63).zeros(4), ErrFormat, []string{`tensor "t"`, "dimension 0"}},
	{"2^42+1 elements", header(1, 0).tensor("t", F32, 0, 1<<42+1).zeros(4), ErrFormat, []string{`tensor "t"`, "end within"}},
	{"2^64 elements", header(1, 0).tensor("t", F32, 0, 1<<32, 1<<32).zeros(4), ErrFormat, []string{`tensor "t"`, "shape"}},
	{"2^62+1 f32", header(1, 0).tensor("t", F32, 0, 1<<62+1).zeros(4), ErrFormat, []string{`tensor "t"`, "shape"}},
	{"bytes wrap to 4", header(1, 0).tensor("t", F32, 0, 1<<31, 1<<31, 1, 1).zeros(4), ErrFormat, []string{`tensor "t"`, "shape"}},
	{"part of a block", header(1, 0).tensor("t", Q4_K, 0, 128).zeros(144), ErrFormat, []string{`tensor "t"`, "128 elements", "256", "Q4_K"}},
	{"type Q2_K", header(1, 0).tensor("t", 10, 0, 256).zeros(84), ErrUnsupported, []string{`tensor "t"`, "Q2_K", "Q4_K"}},
	{"type 2^32-1", header(1, 0).tensor("t", math.MaxUint32, 0, 256).zeros(256), ErrUnsupported, []string{`tensor "t"`, "type 4294967295"}},
	{"unaligned offset", header(1, 0).tensor("t", F32, 4, 1).zeros(64), ErrFormat, []string{`tensor "t"`, "offset 4", "multiple of 32"}},
	{"offset beyond the end", header(1, 0).tensor("t", F32, 64, 1).zeros(64), ErrFormat, []string{`tensor "t"`, "offset 64", "64 bytes"}},
	{"offset 2^64-32", header(1, 0).tensor("t", F32, math.MaxUint64-31, 8).zeros(64), ErrFormat, []string{`tensor "t"`}},
	{"data cut", header(1, 0).tensor("t", F32, 0, 4).zeros(15), ErrFormat, []string{`tensor "t"`, "16 bytes at offset 0", "15 bytes"}},
	{"no data at all", header(1, 0).tensor("t", F32, 0, 1), ErrFormat, []string{`tensor "t"`, "0 bytes"}},
	{"overlap", header(2, 0).tensor("t", F32, 0, 16).tensor("u", F32, 32, 1).zeros(64), ErrFormat, []string{`tensor "u"`, "64", `"t"`}},
	{"same place", header(2, 0).tensor("t", F32, 0, 1).tensor("u", F32, 0, 1).zeros(64), ErrFormat, []string{`tensor "u"`, `"t"`}},
	{"duplicate tensor", header(2, 0).tensor("t", F32, 0, 1).tensor("t", F32, 32, 1).zeros(64), ErrFormat, []string{`tensor "t"`, "second"}},
	{"name of 65 bytes", header(1, 0).tensor(strings.Repeat("n", 65), F32, 0, 1).zeros(4), ErrFormat, []string{"tensor 0", "65 bytes", "1 to 64"}},
	{"name of 2^63 bytes", header(1, 0).u64(1 << 63), ErrFormat, []string{"tensor 0"}},
}

// nest is a file with arrays of one array each, depth deep.
func nest(depth int) *raw {
	r := header(0, 1).pair("a", typeArray)
	for range depth {
		r.u32(uint32(typeArray)).u64(1)
	}
	return r.u32(uint32(typeUint8)).u64(0)
}

// parse is Parse, with the bytes that it allocated on the way.
func parse(data []byte) (f *File, allocated uint64, err error) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f, err = Parse(data)
	runtime.ReadMemStats(&after)
	return f, after.TotalAlloc - before.TotalAlloc, err
}

// allowed is the most that a file of n bytes may make the parser allocate: its values in Go's representation, and text
// for errors.
func allowed(n int) uint64 { return uint64(16*n + 64<<10) }

func TestHostile(t *testing.T) {
	for _, c := range hostile {
		_, allocated, err := parse(c.file.b)
		var typed *Error
		if !errors.As(err, &typed) || !errors.Is(err, c.kind) {
			t.Errorf("%s: got %v, want an *Error that is %q", c.name, err, c.kind)
			continue
		}
		for _, part := range c.names {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s: %q doesn't say %q", c.name, err, part)
			}
		}
		if len(err.Error()) > 1000 {
			t.Errorf("%s: an error of %d bytes", c.name, len(err.Error()))
		}
		if allocated > allowed(len(c.file.b)) {
			t.Errorf("%s: %d bytes allocated for a file of %d", c.name, allocated, len(c.file.b))
		}
	}
}

// The tables' own building blocks make a good file, so each fault above is the one intended.
func TestHostileBaseline(t *testing.T) {
	good := header(2, 1).pair("k", typeUint8).u8(1).tensor("t", F32, 0, 8).tensor("u", F32, 32, 1).zeros(36)
	f, err := Parse(good.b)
	if err != nil || len(f.Tensors) != 2 || len(f.Tensors[0].Data) != 32 || len(f.Tensors[1].Data) != 4 {
		t.Fatalf("got %v", err)
	}
}

func TestCutAnywhere(t *testing.T) {
	data := everything(t)
	last := bytes.TrimRight(data, "\x00") // the last tensor's padding may be missing
	for n := range len(last) {
		_, allocated, err := parse(data[:n:n])
		if !errors.Is(err, ErrFormat) {
			t.Fatalf("cut to %d of %d bytes: got %v, want ErrFormat", n, len(data), err)
		}
		if allocated > allowed(n) {
			t.Fatalf("cut to %d bytes: %d allocated", n, allocated)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(everything(f))
	for _, c := range hostile {
		f.Add(c.file.b)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		file, allocated, err := parse(data)
		if allocated > allowed(len(data))+1<<20 { // the fuzzer allocates in this process too
			t.Fatalf("%d bytes allocated for a file of %d", allocated, len(data))
		}
		if err != nil {
			var typed *Error
			if !errors.As(err, &typed) || typed.Item == "" || typed.Got == "" || typed.Want == "" {
				t.Fatalf("got %#v, want a whole *Error", err)
			}
			return
		}
		for _, tensor := range file.Tensors {
			if len(tensor.Data) != tensor.Elems()/tensor.Type.BlockElems()*tensor.Type.BlockBytes() {
				t.Fatalf("tensor %q %v %v has %d bytes", tensor.Name, tensor.Type, tensor.Shape, len(tensor.Data))
			}
		}
		once := rewritten(t, file)
		again, err := Parse(once)
		if err != nil {
			t.Fatalf("a valid file written again: %v", err)
		}
		if !bytes.Equal(rewritten(t, again), once) {
			t.Fatal("writing is not stable")
		}
	})
}
