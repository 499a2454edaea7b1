package gguf

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"slices"
)

const (
	magic            = "GGUF"
	defaultAlignment = 32
	maxAlignment     = 1 << 20
	maxKey           = 1<<16 - 1 // the specification's limit, in bytes
	maxName          = 64        // the specification's limit, in bytes
	maxDims          = 4
	maxDepth         = 4 // of arrays in arrays
	alignmentKey     = "general.alignment"
)

// Parse reads a whole file from memory. The tensors' Data are views of data, which must not change afterwards; every other
// part is copied. Each fault is an [*Error].
func Parse(data []byte) (*File, error) {
	p := &parser{data: data, item: "header"}
	f := &File{Alignment: defaultAlignment, values: map[string]any{}, byName: map[string]int{}}

	if got := p.take(4, "the magic bytes"); p.err == nil && string(got) != magic {
		p.fail(ErrFormat, fmt.Sprintf("%q", got), fmt.Sprintf("the magic bytes %q", magic))
	}
	f.Version = p.version()
	tensors, pairs := p.u64(), p.u64()

	for i := uint64(0); i < pairs && p.err == nil; i++ {
		p.pair(f, i)
	}
	f.Alignment = p.alignment(f)
	var offsets []uint64
	for i := uint64(0); i < tensors && p.err == nil; i++ {
		offsets = append(offsets, p.tensor(f, i))
	}
	p.place(f, offsets)
	if p.err != nil {
		return nil, p.err
	}
	return f, nil
}

// parser walks the bytes. Its first fault sticks: from then on reads return zero and move nothing.
type parser struct {
	data []byte
	pos  int
	item string // what is being read, for errors
	err  error
}

func (p *parser) fail(kind error, got, want string) {
	if p.err == nil {
		p.err = &Error{Item: p.item, Got: got, Want: want, Err: kind}
	}
}

func (p *parser) left() int { return len(p.data) - p.pos }

// take returns the next n bytes, a view.
func (p *parser) take(n uint64, what string) []byte {
	if p.err != nil {
		return nil
	}
	if n > uint64(p.left()) {
		p.fail(ErrFormat, fmt.Sprintf("the end of the file after %d bytes", p.left()), fmt.Sprintf("%d bytes of %s", n, what))
		return nil
	}
	b := p.data[p.pos : p.pos+int(n)]
	p.pos += int(n)
	return b
}

func (p *parser) u8() uint8 {
	if b := p.take(1, "a value"); b != nil {
		return b[0]
	}
	return 0
}

func (p *parser) u16() uint16 {
	if b := p.take(2, "a value"); b != nil {
		return binary.LittleEndian.Uint16(b)
	}
	return 0
}

func (p *parser) u32() uint32 {
	if b := p.take(4, "a value"); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

func (p *parser) u64() uint64 {
	if b := p.take(8, "a value"); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

func (p *parser) str() string { return string(p.take(p.u64(), "text")) }

// label reads a key or a tensor's name.
func (p *parser) label(limit uint64) string {
	n := p.u64()
	if p.err == nil && (n == 0 || n > limit) {
		p.fail(ErrFormat, fmt.Sprintf("a name of %d bytes", n), fmt.Sprintf("1 to %d", limit))
	}
	return string(p.take(n, "a name"))
}

func (p *parser) version() uint32 {
	p.item = "version"
	v := p.u32()
	switch {
	case p.err != nil || v == 2 || v == 3:
	case v > math.MaxUint16 && bits.ReverseBytes32(v) <= math.MaxUint16:
		p.fail(ErrUnsupported, fmt.Sprintf("a big-endian file of version %d", bits.ReverseBytes32(v)), "a little-endian one")
	default:
		p.fail(ErrUnsupported, fmt.Sprint(v), "2 or 3")
	}
	p.item = "header"
	return v
}

// quoted is a name in an error's text: a key may be long, and nothing but noise.
func quoted(name string) string {
	const most = 100
	if len(name) > most {
		return fmt.Sprintf("%q…", name[:most])
	}
	return fmt.Sprintf("%q", name)
}

// pair reads one key and its value.
func (p *parser) pair(f *File, i uint64) {
	p.item = fmt.Sprintf("key %d", i)
	key := p.label(maxKey)
	if p.err != nil {
		return
	}
	p.item = "key " + quoted(key)
	if _, dup := f.values[key]; dup {
		p.fail(ErrFormat, "a second value", "each key once")
		return
	}
	v := p.value(valueType(p.u32()), 0)
	if p.err == nil {
		f.keys = append(f.keys, key)
		f.values[key] = v
	}
}

func (p *parser) alignment(f *File) int {
	v, set := f.values[alignmentKey]
	if p.err != nil || !set {
		return defaultAlignment
	}
	p.item = fmt.Sprintf("key %q", alignmentKey)
	n, ok := v.(uint32)
	if !ok {
		p.fail(ErrFormat, describe(v), "a uint32")
	} else if n < 8 || n > maxAlignment || n&(n-1) != 0 {
		p.fail(ErrFormat, fmt.Sprint(n), fmt.Sprintf("a power of two from 8 to %d", maxAlignment))
	}
	return int(n)
}

// tensor reads one tensor's description and returns its offset; where its data lies is settled by place.
func (p *parser) tensor(f *File, i uint64) uint64 {
	p.item = fmt.Sprintf("tensor %d", i)
	t := Tensor{Name: p.label(maxName)}
	if p.err != nil {
		return 0
	}
	p.item = fmt.Sprintf("tensor %q", t.Name)
	if _, dup := f.byName[t.Name]; dup {
		p.fail(ErrFormat, "a second description", "each tensor once")
	}
	n := p.u32()
	if p.err == nil && (n < 1 || n > maxDims) {
		p.fail(ErrFormat, fmt.Sprintf("%d dimensions", n), fmt.Sprintf("1 to %d", maxDims))
	}
	for d := uint32(0); d < n && p.err == nil; d++ {
		size := p.u64()
		if p.err == nil && (size < 1 || size > math.MaxInt) {
			p.fail(ErrFormat, fmt.Sprintf("dimension %d of size %d", d, size), fmt.Sprintf("1 to %d", math.MaxInt))
		}
		t.Shape = append(t.Shape, int(size))
	}
	t.Type = Type(p.u32())
	offset := p.u64()
	if p.err != nil {
		return 0
	}
	if t.Type.BlockElems() == 0 {
		p.fail(ErrUnsupported, t.Type.String(), wantType)
	} else if t.Shape[0]%t.Type.BlockElems() != 0 {
		p.fail(ErrFormat, fmt.Sprintf("rows of %d elements", t.Shape[0]),
			fmt.Sprintf("a multiple of %d, the block of %v", t.Type.BlockElems(), t.Type))
	}
	slices.Reverse(t.Shape)
	f.byName[t.Name] = len(f.Tensors)
	f.Tensors = append(f.Tensors, t)
	return offset
}

// place gives each tensor its bytes: aligned, inside the file, and shared with no other tensor, so that the sizes of all
// tensors together are bounded by the file's.
func (p *parser) place(f *File, offsets []uint64) {
	if p.err != nil || len(offsets) == 0 {
		return
	}
	start := uint64(p.pos+f.Alignment-1) &^ uint64(f.Alignment-1)
	size := uint64(len(p.data)) - min(start, uint64(len(p.data)))
	order := make([]int, len(offsets))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int {
		if offsets[a] != offsets[b] {
			if offsets[a] < offsets[b] {
				return -1
			}
			return 1
		}
		return a - b
	})
	end, before := uint64(0), "" // of the tensor placed last
	for _, i := range order {
		t, offset := &f.Tensors[i], offsets[i]
		p.item = fmt.Sprintf("tensor %q", t.Name)
		bytes, ok := tensorBytes(t.Type, t.Shape)
		switch {
		case !ok:
			p.fail(ErrFormat, fmt.Sprintf("the shape %v", t.Shape), fmt.Sprintf("at most %d bytes", math.MaxInt))
		case offset%uint64(f.Alignment) != 0:
			p.fail(ErrFormat, fmt.Sprintf("the offset %d", offset), fmt.Sprintf("a multiple of %d", f.Alignment))
		case offset > size || bytes > size-offset:
			p.fail(ErrFormat, fmt.Sprintf("%d bytes at offset %d", bytes, offset), fmt.Sprintf("an end within the data's %d bytes", size))
		case offset < end:
			p.fail(ErrFormat, fmt.Sprintf("the offset %d", offset), fmt.Sprintf("one from %d, where tensor %q ends", end, before))
		}
		if p.err != nil {
			return
		}
		t.Data = p.data[start+offset : start+offset+bytes : start+offset+bytes]
		end, before = offset+bytes, t.Name
	}
}

// tensorBytes returns the size of a tensor's data, and false if it overflows an int. The type is known and the rows are
// whole blocks.
func tensorBytes(t Type, shape []int) (uint64, bool) {
	n := uint64(t.BlockBytes())
	for i, d := range shape {
		if i == len(shape)-1 {
			d /= t.BlockElems()
		}
		hi, lo := bits.Mul64(n, uint64(d))
		if hi != 0 || lo > math.MaxInt {
			return 0, false
		}
		n = lo
	}
	return n, true
}
