package ops

import "github.com/gaze-ml/gaze/internal/attn"

// Error is the one error type of gaze: which op refused which argument, what it got and what it wants. Its fields are Kind, one
// of the sentinels, to which it unwraps, and the strings Op, Arg (FlashInfer's name of the argument), Got and Want.
type Error = attn.Error

// Sentinels for errors.Is.
var (
	ErrShape       = attn.ErrShape       // a rank, size or stride
	ErrDType       = attn.ErrDType       // a dtype, or a combination of dtypes
	ErrArgument    = attn.ErrArgument    // a missing, contradictory or out-of-range argument
	ErrDevice      = attn.ErrDevice      // memory of another place than wanted, or given back
	ErrUnsupported = attn.ErrUnsupported // a valid call that this backend can't run
	ErrNoDevice    = attn.ErrNoDevice    // no such device, or a build without it
	ErrCacheFull   = attn.ErrCacheFull   // a paged KV cache without enough free pages
	ErrOutOfMemory = attn.ErrOutOfMemory // device memory
)

// Backend runs calls on one kind of device.
type Backend = attn.Backend
