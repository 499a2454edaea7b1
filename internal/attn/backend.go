package attn

// Call is what every call struct can do.
type Call interface {
	Op() string
	// Infer checks everything that needs no tensor value and describes the outputs that were left empty. It joins every
	// reason into one error, each an [*Error]. It allocates nothing when all is well.
	Infer() error
	Run(Backend) error
}

// Backend runs calls on one kind of device. Every method checks the values that Infer can't see (lengths, block tables,
// offsets, ids) before it writes anything, or, where they lie on the device and the call has no CheckValues, while it runs; refuses
// what it can't do with ErrUnsupported; and keeps nothing of the call.
// Calls must have passed Infer. Methods may be called from several goroutines.
type Backend interface {
	Name() string
	// Supports tells why a call can't run here: nil, or every reason. It looks at dtypes, shapes and scalars only.
	Supports(Call) []error
	// WorkspaceSize is the number of bytes that the call wants as its Workspace; 0 where it needs none.
	WorkspaceSize(Call) (int, error)

	Decode(*DecodeCall) error
	Prefill(*PrefillCall) error
	Append(*AppendCall) error
	MergeLSE(*MergeLSECall) error
	RMSNorm(*RMSNormCall) error
	RoPE(*RoPECall) error
	Linear(*LinearCall) error
	SiLUMul(*SiLUMulCall) error
	Embedding(*EmbeddingCall) error
	Cast(*CastCall) error
	Argmax(*ArgmaxCall) error
	Softmax(*SoftmaxCall) error
	TopK(*TopKCall) error
}

// Unimplemented refuses every call politely. A backend embeds it and overrides what it can do.
type Unimplemented struct{}

func refuse(c Call) error {
	return Errorf(ErrUnsupported, c.Op(), "", "a backend that has it", "a backend without this op")
}

// Supports gives one reason.
func (Unimplemented) Supports(c Call) []error { return []error{refuse(c)} }

// WorkspaceSize is 0.
func (Unimplemented) WorkspaceSize(Call) (int, error) { return 0, nil }

// Decode refuses.
func (Unimplemented) Decode(c *DecodeCall) error { return refuse(c) }

// Prefill refuses.
func (Unimplemented) Prefill(c *PrefillCall) error { return refuse(c) }

// Append refuses.
func (Unimplemented) Append(c *AppendCall) error { return refuse(c) }

// MergeLSE refuses.
func (Unimplemented) MergeLSE(c *MergeLSECall) error { return refuse(c) }

// RMSNorm refuses.
func (Unimplemented) RMSNorm(c *RMSNormCall) error { return refuse(c) }

// RoPE refuses.
func (Unimplemented) RoPE(c *RoPECall) error { return refuse(c) }

// Linear refuses.
func (Unimplemented) Linear(c *LinearCall) error { return refuse(c) }

// SiLUMul refuses.
func (Unimplemented) SiLUMul(c *SiLUMulCall) error { return refuse(c) }

// Embedding refuses.
func (Unimplemented) Embedding(c *EmbeddingCall) error { return refuse(c) }

// Cast refuses.
func (Unimplemented) Cast(c *CastCall) error { return refuse(c) }

// Argmax refuses.
func (Unimplemented) Argmax(c *ArgmaxCall) error { return refuse(c) }

// Softmax refuses.
func (Unimplemented) Softmax(c *SoftmaxCall) error { return refuse(c) }

// TopK refuses.
func (Unimplemented) TopK(c *TopKCall) error { return refuse(c) }
