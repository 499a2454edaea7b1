package cudaops

import (
	"fmt"
	"math"

	"github.com/gaze-ml/gaze/internal/attn"
)

// Softmax turns logits into probabilities.
func (b *Backend) Softmax(c *attn.SoftmaxCall) error {
	rt := b.rt
	k, err := rt.start(c)
	defer rt.mu.Unlock()
	if err != nil {
		return err
	}
	at := binding{rt: rt, op: c.Op()}
	p := &rt.frame.softmax
	const tiny = 0x1p-126 // the least normal number: 0 times -Inf would be NaN
	*p = softmaxParams{
		Logits: at.need("logits", &c.Logits), Out: at.need("out", &c.Out), LogitsRow: int64(c.Logits.Stride[0]), Rows: int64(c.Logits.Shape[0]),
		Columns: int64(c.Logits.Shape[1]), Scale: float32(min(max(math.Log2E/c.Temperature, tiny), math.MaxFloat32)),
	}
	if at.err != nil || c.Logits.Shape[0] == 0 {
		return at.err
	}
	return launch(rt, k, c, rt.blocks(c.Logits.Shape[0], 1), 1, true, p)
}

// mostTopK is the largest k of the kernel, the threads of its blocks.
const mostTopK = 1024

func (rt *Runtime) decideTopK(c *attn.TopKCall) (*kernel, []error) {
	found, why := rt.decidePlain(c, key{Op: c.Op(), A: c.Logits.DType}, "logits")
	if c.K > mostTopK {
		return nil, append(why, rt.unsupported(c, "k", []string{fmt.Sprintf("%d or less", mostTopK)}, fmt.Sprint(c.K)))
	}
	return found, why
}

// TopK gives the largest elements of each row and their columns.
func (b *Backend) TopK(c *attn.TopKCall) error {
	rt := b.rt
	k, err := rt.start(c)
	defer rt.mu.Unlock()
	if err != nil {
		return err
	}
	at := binding{rt: rt, op: c.Op()}
	p := &rt.frame.topK
	*p = topKParams{
		Logits: at.need("logits", &c.Logits), Values: at.need("values", &c.Values), Indices: at.need("indices", &c.Indices),
		LogitsRow: int64(c.Logits.Stride[0]), Rows: int64(c.Logits.Shape[0]), Columns: int64(c.Logits.Shape[1]), K: int32(c.K),
	}
	if at.err != nil || c.Logits.Shape[0] == 0 {
		return at.err
	}
	return launch(rt, k, c, rt.blocks(c.Logits.Shape[0], 1), 1, true, p)
}
