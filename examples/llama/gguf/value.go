package gguf

import (
	"fmt"
	"math"
	"reflect"
)

// valueType is the type of a metadata value, numbered as in the file (enum gguf_type).
type valueType uint32

const (
	typeUint8 valueType = iota
	typeInt8
	typeUint16
	typeInt16
	typeUint32
	typeInt32
	typeFloat32
	typeBool
	typeString
	typeArray
	typeUint64
	typeInt64
	typeFloat64
)

// value reads one metadata value: a number, bool or string of exactly the type in the file, a slice of those, or for an
// array of arrays []any holding slices.
func (p *parser) value(t valueType, depth int) any {
	switch t {
	case typeUint8:
		return p.u8()
	case typeInt8:
		return int8(p.u8())
	case typeUint16:
		return p.u16()
	case typeInt16:
		return int16(p.u16())
	case typeUint32:
		return p.u32()
	case typeInt32:
		return int32(p.u32())
	case typeFloat32:
		return math.Float32frombits(p.u32())
	case typeBool:
		return p.boolean()
	case typeString:
		return p.str()
	case typeUint64:
		return p.u64()
	case typeInt64:
		return int64(p.u64())
	case typeFloat64:
		return math.Float64frombits(p.u64())
	case typeArray:
		return p.array(depth + 1)
	}
	p.fail(ErrFormat, fmt.Sprintf("value type %d", t), "0 to 12")
	return nil
}

func (p *parser) boolean() bool {
	b := p.u8()
	if b > 1 {
		p.fail(ErrFormat, fmt.Sprintf("the bool %d", b), "0 or 1")
	}
	return b == 1
}

func (p *parser) array(depth int) any {
	if depth > maxDepth {
		p.fail(ErrFormat, fmt.Sprintf("arrays nested %d deep", depth), fmt.Sprintf("at most %d", maxDepth))
		return nil
	}
	t, n := valueType(p.u32()), p.u64()
	switch t {
	case typeUint8:
		return elements(p, n, 1, p.u8)
	case typeInt8:
		return elements(p, n, 1, func() int8 { return int8(p.u8()) })
	case typeUint16:
		return elements(p, n, 2, p.u16)
	case typeInt16:
		return elements(p, n, 2, func() int16 { return int16(p.u16()) })
	case typeUint32:
		return elements(p, n, 4, p.u32)
	case typeInt32:
		return elements(p, n, 4, func() int32 { return int32(p.u32()) })
	case typeFloat32:
		return elements(p, n, 4, func() float32 { return math.Float32frombits(p.u32()) })
	case typeBool:
		return elements(p, n, 1, p.boolean)
	case typeString:
		return elements(p, n, 8, p.str)
	case typeUint64:
		return elements(p, n, 8, p.u64)
	case typeInt64:
		return elements(p, n, 8, func() int64 { return int64(p.u64()) })
	case typeFloat64:
		return elements(p, n, 8, func() float64 { return math.Float64frombits(p.u64()) })
	case typeArray:
		return elements(p, n, 12, func() any { return p.array(depth + 1) })
	}
	p.fail(ErrFormat, fmt.Sprintf("an array of value type %d", t), "0 to 12")
	return nil
}

// elements reads n values that take at least size bytes each, which bounds n before anything is allocated.
func elements[T any](p *parser, n uint64, size int, read func() T) any {
	if p.err == nil && n > uint64(p.left()/size) {
		p.fail(ErrFormat, fmt.Sprintf("an array of %d values with %d bytes left", n, p.left()),
			fmt.Sprintf("at most %d values", p.left()/size))
	}
	if p.err != nil {
		return nil
	}
	out := make([]T, n)
	for i := range out {
		if out[i] = read(); p.err != nil {
			return nil
		}
	}
	return out
}

// Value is what [Get] can return: int from any integer, float64 from any float, the slices likewise.
type Value interface {
	int | float64 | bool | string | []string | []int32 | []float32
}

// Get returns a metadata value as T. The error wraps [ErrMissing] if the file has no such key and [ErrType] if the value
// is of another type or out of T's range.
func Get[T Value](f *File, key string) (T, error) {
	var out T
	v, ok := f.values[key]
	if !ok {
		return out, &Error{Item: fmt.Sprintf("key %q", key), Got: "nothing", Want: fmt.Sprintf("%T", out), Err: ErrMissing}
	}
	switch dst := any(&out).(type) {
	case *int:
		*dst, ok = integer(v, math.MinInt, math.MaxInt)
	case *float64:
		switch v := v.(type) {
		case float32:
			*dst = float64(v)
		case float64:
			*dst = v
		default:
			ok = false
		}
	case *[]int32:
		*dst, ok = int32s(v)
	default: // bool, string, []string, []float32: as they are in the file
		out, ok = v.(T)
	}
	if !ok {
		var zero T
		return zero, &Error{Item: fmt.Sprintf("key %q", key), Got: describe(v), Want: fmt.Sprintf("%T", zero), Err: ErrType}
	}
	return out, nil
}

// GetOr is [Get] with a value for a key that the file doesn't have. A value of the wrong type is still an error.
func GetOr[T Value](f *File, key string, missing T) (T, error) {
	if _, ok := f.values[key]; !ok {
		return missing, nil
	}
	return Get[T](f, key)
}

// integer converts any integer value to an int within [low, high].
func integer(v any, low, high int64) (int, bool) {
	r := reflect.ValueOf(v)
	var n int64
	switch {
	case r.CanInt():
		n = r.Int()
	case r.CanUint() && r.Uint() <= math.MaxInt64:
		n = int64(r.Uint())
	default:
		return 0, false
	}
	return int(n), n >= low && n <= high
}

// int32s converts a slice of any integer type.
func int32s(v any) ([]int32, bool) {
	if s, ok := v.([]int32); ok {
		return s, true
	}
	r := reflect.ValueOf(v)
	if r.Kind() != reflect.Slice {
		return nil, false
	}
	out := make([]int32, r.Len())
	for i := range out {
		n, ok := integer(r.Index(i).Interface(), math.MinInt32, math.MaxInt32)
		if !ok {
			return nil, false
		}
		out[i] = int32(n)
	}
	return out, true
}

// describe says what a value is, for errors: its type, and its size or number.
func describe(v any) string {
	switch r := reflect.ValueOf(v); {
	case r.Kind() == reflect.Slice:
		return fmt.Sprintf("%T of %d", v, r.Len())
	case r.Kind() == reflect.String:
		return fmt.Sprintf("a string of %d bytes", r.Len())
	}
	return fmt.Sprintf("%T %v", v, v)
}
