package llamatest

import (
	"github.com/gaze-ml/gaze/graph"
	"github.com/gaze-ml/gaze/internal/attn"
	"github.com/gaze-ml/gaze/ops"
)

// Idle is a device on which every call of a Llama succeeds at once: what is left is the Machine itself.
type Idle struct{ graph.Device }

// Backend does nothing.
func (Idle) Backend() ops.Backend { return idle{} }

type idle struct{ attn.Unimplemented }

func (idle) Name() string                        { return "idle" }
func (idle) Supports(attn.Call) []error          { return nil }
func (idle) Decode(*attn.DecodeCall) error       { return nil }
func (idle) Append(*attn.AppendCall) error       { return nil }
func (idle) RMSNorm(*attn.RMSNormCall) error     { return nil }
func (idle) RoPE(*attn.RoPECall) error           { return nil }
func (idle) Linear(*attn.LinearCall) error       { return nil }
func (idle) SiLUMul(*attn.SiLUMulCall) error     { return nil }
func (idle) Embedding(*attn.EmbeddingCall) error { return nil }
