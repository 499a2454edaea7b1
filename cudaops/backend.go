package cudaops

import "github.com/gaze-ml/gaze/internal/attn"

// Backend is a Runtime as attn.Backend. A call returns when it has been launched; what is wrong with values on the device shows at
// the next call that waits.
type Backend struct{ rt *Runtime }

var _ attn.Backend = (*Backend)(nil)

// Name is the Runtime's.
func (b *Backend) Name() string { return b.rt.Name() }

// Supports tells why this GPU can't run a call: nil, or every reason.
func (b *Backend) Supports(c attn.Call) []error {
	_, why := b.rt.decide(c)
	return why
}

// WorkspaceSize is the number of bytes that a decode call may use as its Workspace, 0 for the others. It is optional: the Runtime has
// one for all its calls.
func (b *Backend) WorkspaceSize(c attn.Call) (int, error) {
	k, why := b.rt.decide(c)
	if why != nil {
		return 0, why[0]
	}
	if k.Op == "decode" {
		return b.rt.decodeWorkspace(k), nil
	}
	return 0, nil
}

// MergeLSE joins attention over two sets of keys.
func (b *Backend) MergeLSE(c *attn.MergeLSECall) error {
	rt := b.rt
	k, err := rt.start(c)
	defer rt.mu.Unlock()
	if err != nil {
		return err
	}
	at := binding{rt: rt, op: c.Op()}
	p := &rt.frame.merge
	t, h, d := c.OutA.Shape[0], c.OutA.Shape[1], c.OutA.Shape[2]
	*p = mergeLSEParams{
		OutA: at.need("out_a", &c.OutA), OutB: at.need("out_b", &c.OutB), LSEA: at.need("lse_a", &c.LSEA), LSEB: at.need("lse_b", &c.LSEB),
		Out: at.need("out", &c.Out), LSE: at.may("lse", &c.LSE),
		AToken: int64(c.OutA.Stride[0]), AHead: int64(c.OutA.Stride[1]), BToken: int64(c.OutB.Stride[0]), BHead: int64(c.OutB.Stride[1]),
		LSEAToken: int64(c.LSEA.Stride[0]), LSEBToken: int64(c.LSEB.Stride[0]), Tokens: int64(t), Heads: int32(h), HeadDim: int32(d),
	}
	if at.err != nil || t*h*d == 0 {
		return at.err
	}
	const rowsPerBlock = 8 // a warp a row
	return launch(rt, k, c, rt.blocks(t*h, rowsPerBlock), 1, true, p)
}

// RMSNorm normalises rows.
func (b *Backend) RMSNorm(c *attn.RMSNormCall) error {
	rt := b.rt
	k, err := rt.start(c)
	defer rt.mu.Unlock()
	if err != nil {
		return err
	}
	at := binding{rt: rt, op: c.Op()}
	p := &rt.frame.norm
	*p = rmsNormParams{
		X: at.need("x", &c.X), Residual: at.may("residual", &c.Residual), Weight: at.need("weight", &c.Weight), Out: at.need("out", &c.Out),
		Sum: at.may("sum", &c.Sum), XRow: int64(c.X.Stride[0]), ResidualRow: int64(c.Residual.Stride[0]), Rows: int64(c.X.Shape[0]),
		Columns: int32(c.X.Shape[1]), Eps: float32(c.Eps),
	}
	if c.Weight.DType == attn.F32 && c.X.DType != attn.F32 {
		p.WeightF32 = 1
	}
	if at.err != nil || c.X.Len() == 0 {
		return at.err
	}
	return launch(rt, k, c, rt.blocks(c.X.Shape[0], 1), 1, true, p)
}

// SiLUMul is the gated activation.
func (b *Backend) SiLUMul(c *attn.SiLUMulCall) error {
	rt := b.rt
	k, err := rt.start(c)
	defer rt.mu.Unlock()
	if err != nil {
		return err
	}
	at := binding{rt: rt, op: c.Op()}
	p := &rt.frame.silu
	*p = siluMulParams{
		Gate: at.need("gate", &c.Gate), Up: at.need("up", &c.Up), Out: at.need("out", &c.Out), GateRow: int64(c.Gate.Stride[0]),
		UpRow: int64(c.Up.Stride[0]), Rows: int64(c.Gate.Shape[0]), Columns: int64(c.Gate.Shape[1]),
	}
	if at.err != nil || c.Gate.Len() == 0 {
		return at.err
	}
	return launch(rt, k, c, rt.blocks(c.Gate.Len(), elementsPerBlock), 1, true, p)
}

// elementsPerBlock is what a block of 256 threads does of an elementwise op, 8 elements a thread.
const elementsPerBlock = 2048

// Embedding gathers rows.
func (b *Backend) Embedding(c *attn.EmbeddingCall) error {
	rt := b.rt
	k, err := rt.start(c)
	defer rt.mu.Unlock()
	if err != nil {
		return err
	}
	at := binding{rt: rt, op: c.Op()}
	p := &rt.frame.embedding
	*p = embeddingParams{
		IDs: at.table("ids", &c.IDs, false), Weight: at.need("weight", &c.Weight), Out: at.need("out", &c.Out), Fault: rt.faults,
		WeightRow: int64(c.Weight.Stride[0]), Rows: int64(c.IDs.Shape[0]), Columns: int64(c.Out.Shape[1]), Vocab: int64(c.Weight.Shape[0]),
		Op: opEmbedding,
	}
	if at.err != nil || c.Out.Len() == 0 {
		return at.err
	}
	if c.CheckValues {
		if err := rt.checkEmbedding(c); err != nil {
			return err
		}
	}
	return launch(rt, k, c, rt.blocks(c.Out.Len(), elementsPerBlock), 1, true, p)
}
