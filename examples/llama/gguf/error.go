package gguf

import "errors"

// What kind of fault an [*Error] is; test with errors.Is.
var (
	// ErrFormat: the bytes are no valid GGUF file.
	ErrFormat = errors.New("malformed GGUF")
	// ErrUnsupported: a valid file of a kind that is not read here (version, byte order, tensor type).
	ErrUnsupported = errors.New("unsupported GGUF")
	// ErrMissing: the file has no such key or tensor.
	ErrMissing = errors.New("missing in the GGUF file")
	// ErrType: the key's value has another type, or does not fit the type asked for.
	ErrType = errors.New("wrong type in the GGUF file")
)

// Error is a fault of a GGUF file.
type Error struct {
	Item string // what is wrong: `tensor "output.weight" offset`, `key "general.alignment"`
	Got  string
	Want string
	Err  error // ErrFormat, ErrUnsupported, ErrMissing or ErrType
}

func (e *Error) Error() string {
	return "gguf: " + e.Item + ": got " + e.Got + ", want " + e.Want + " (" + e.Err.Error() + ")"
}

// Unwrap returns the kind of fault.
func (e *Error) Unwrap() error { return e.Err }
